//! A peering user in the place of the provider's administrator.

use super::liqoctl::{Liqoctl, Side};
use super::rest::{Rest, refusal};
use super::{is_clean, liqoctl};
use crate::authentication::site::{self, Site};
use crate::fixture::{Deadline, Fixture, SOON, until};
use crate::liqoctl::run;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authorization::v1::{
    ResourceRule, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use std::collections::BTreeSet;

/// Rights of upstream's peering user in the namespace of Liqo: group, resource and verbs.
const IN_LIQO: &[(&str, &str, &str)] = &[
    ("", "configmaps", "get list watch"),
    ("ipam.liqo.io", "ips", "get"),
    ("ipam.liqo.io", "networks", "get list"),
    ("networking.liqo.io", "wggatewayclienttemplates", "get list"),
    ("networking.liqo.io", "wggatewayservertemplates", "get list"),
];

/// Rights of upstream's peering user in the tenant namespace, without those on IPs: upstream's `liqoctl` never writes
/// one there, and an IP makes an address of the provider reachable.
const IN_TENANT_NAMESPACE: &[(&str, &str, &str)] = &[
    ("", "namespaces", "get"),
    ("", "services", "get"),
    ("", "secrets", "create delete get list"),
    ("apps", "deployments", "get"),
    (
        "authentication.liqo.io",
        "tenants",
        "create delete get list update",
    ),
    (
        "networking.liqo.io",
        "configurations",
        "create delete get list update",
    ),
    (
        "networking.liqo.io",
        "gatewayclients",
        "create delete get list update",
    ),
    (
        "networking.liqo.io",
        "gatewayservers",
        "create delete get list update",
    ),
    (
        "networking.liqo.io",
        "publickeies",
        "create delete get list update",
    ),
    ("networking.liqo.io", "connections", "get list"),
    ("networking.liqo.io", "gatewayclients/status", "get"),
    ("networking.liqo.io", "gatewayservers/status", "get"),
];

/// Rights that Kubernetes gives to each user, about the user itself.
const OF_ALL: &[(&str, &str, &str)] = &[
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
];

pub(super) async fn a_peering_user_may_do_what_upstreams_liqoctl_does(
    _: &'static Fixture,
) -> Result<()> {
    let rome = Site::start("rome", "milan", &[]).await?;
    let milan = Site::start("milan", "rome", &[]).await?;
    let generate = ["generate", "peering-user", "--consumer-cluster-id=rome"];
    let text = run(&milan, &generate).await?;
    let (_, kubeconfig) = text.split_once("apiVersion: v1").context("no kubeconfig")?;
    let user = site::client(&format!("apiVersion: v1{kubeconfig}")).await?;
    rights(&user, &milan).await?;

    let upstream = Liqoctl {
        provider: Side::new(Rest::new(user.clone(), "liqoctl"), "milan"),
        ..liqoctl(&rome, &milan)
    };
    for _ in 0..2 {
        ensure!(upstream.peer().await? == ["Accepted", "Accepted"]);
        ensure!(upstream.peer().await? == ["Accepted", "Accepted"]);
        upstream.unpeer().await?;
        is_clean(&rome, &milan).await?;
    }

    run(
        &milan,
        &["delete", "peering-user", "--consumer-cluster-id=rome"],
    )
    .await?;
    for (kind, namespace) in [
        ("Tenant", "liqo-tenant-rome"),
        ("Secret", "liqo-tenant-rome"),
        ("Configuration", "liqo-tenant-rome"),
        ("ConfigMap", "liqo"),
    ] {
        until(Deadline::after(SOON), "the end of the rights", async || {
            let found = upstream.provider.rest.list(kind, namespace, "").await;
            let error = found.err().with_context(|| format!("{kind} are listed"))?;
            ensure!(refusal(&error) == Some(403), "{error:#}");
            Ok(())
        })
        .await?;
    }
    let error = upstream.authenticate().await.err().context("it may peer")?;
    ensure!(refusal(&error) == Some(403), "{error:#}");

    Ok(())
}

/// Asserts that a peering user has upstream's rights, and no others.
async fn rights(user: &Client, milan: &Site) -> Result<()> {
    for (namespace, expected) in [
        ("liqo", IN_LIQO),
        ("liqo-tenant-rome", IN_TENANT_NAMESPACE),
        ("default", &[]),
        ("kube-system", &[]),
    ] {
        let expected = expected
            .iter()
            .chain(OF_ALL)
            .flat_map(|(group, resource, verbs)| {
                let verbs = verbs.split(' ');
                verbs.map(move |verb| format!("{verb} {resource}.{group}"))
            });
        let expected = BTreeSet::from_iter(expected);
        until(Deadline::after(SOON), "the rights", async || {
            let found = rules(user, namespace).await?;
            ensure!(
                found == expected,
                "in {namespace} of {}: {found:?}",
                milan.name
            );
            Ok(())
        })
        .await?;
    }

    Ok(())
}

/// Returns the rights of a user in a namespace, each as verb, resource and group.
async fn rules(user: &Client, namespace: &str) -> Result<BTreeSet<String>> {
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec {
            namespace: Some(namespace.to_owned()),
        },
        ..SelfSubjectRulesReview::default()
    };
    let api: Api<SelfSubjectRulesReview> = Api::all(user.clone());
    let review = api.create(&PostParams::default(), &review).await?;
    let status = review.status.context("no status")?;
    ensure!(!status.incomplete, "{status:?}");
    let mut found = BTreeSet::new();
    for ResourceRule {
        verbs,
        api_groups,
        resources,
        resource_names,
    } in status.resource_rules
    {
        for group in api_groups.iter().flatten() {
            for resource in resources.iter().flatten() {
                for verb in &verbs {
                    let names = resource_names.as_deref().unwrap_or_default();
                    let named = match names.is_empty() {
                        true => String::new(),
                        false => format!(" {names:?}"),
                    };
                    found.insert(format!("{verb} {resource}.{group}{named}"));
                }
            }
        }
    }

    Ok(found)
}
