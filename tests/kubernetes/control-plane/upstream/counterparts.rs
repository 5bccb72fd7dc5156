//! Tests with upstream's controllers on the other side.

use super::consumer::Consumer;
use super::golden::Compared;
use super::liqoctl::{Liqoctl, Side, condition, decoded};
use super::provider::Provider;
use super::rest::{Rest, refusal};
use super::{KINDS, liqoctl, until_gone};
use crate::authentication::site::Site;
use crate::authentication::user;
use crate::fixture::{Deadline, Fixture, SOON, until};
use anyhow::{Context as _, Result, ensure};
use control_credentials::{ClusterKey, KeyType};
use k8s_openapi::ByteString;
use kubernetes_lab::control_plane::Options;
use kubernetes_lab::suite::artifacts;
use serde_json::{Value, json};

/// The consumer `turin` has an RSA key, and no cluster: the test writes what its controllers write.
pub(super) async fn an_upstream_consumer_uses_a_provider(_: &'static Fixture) -> Result<()> {
    let milan = Site::start("milan", "turin", &[]).await?;
    let turin = Consumer {
        id: "turin",
        provider: "milan",
        key: ClusterKey::generate(KeyType::Rsa, [5; 32])?,
    };
    let provider = liqoctl(&milan, &milan).provider;
    let (tenant, replicator) = join(&turin, &provider).await?;
    // `liqoctl` presents the stored nonce on each run.
    ensure!(turin.authenticate(&provider).await? == tenant);
    let remote = tenant["tenantNamespace"].as_str().context("no namespace")?;
    for kind in ["Renew", "ResourceSlice", "NamespaceMap"] {
        let found = replicator.list(kind, remote, &turin.selector()).await?;
        ensure!(found.is_empty(), "{found:?}");
    }

    let spec = json!({"consumerClusterID": "turin", "identityType": "ControlPlane"});
    let renew = turin.local("Renew", "controlplane-milan", &spec);
    turin.replicate(&replicator, &renew, remote).await?;
    replicator
        .until(("Renew", remote, "controlplane-milan"), |it| {
            it["status"]["authParams"] == tenant["authParams"]
        })
        .await?;
    slice(&turin, &replicator, remote).await?;
    let spec = json!({"desiredMapping": {"demo": "demo-turin"}});
    let map = turin.local("NamespaceMap", "milan", &spec);
    turin.replicate(&replicator, &map, remote).await?;

    for (kind, name) in [
        ("NamespaceMap", "milan"),
        ("ResourceSlice", "milan"),
        ("Renew", "controlplane-milan"),
    ] {
        replicator.delete(kind, remote, name).await?;
        until_gone(&replicator, kind, remote, &turin.selector()).await?;
    }
    until_gone(&provider.rest, "Quota", remote, "").await?;
    provider.rest.delete("Tenant", remote, "turin").await?;
    for kind in KINDS {
        until_gone(&provider.rest, kind, remote, "").await?;
    }
    until(Deadline::after(SOON), "the end of the rights", async || {
        let error = replicator.list("ResourceSlice", remote, "").await;
        let error = error.err().context("the consumer may list its objects")?;
        ensure!(refusal(&error) == Some(403), "{error:#}");
        Ok(())
    })
    .await
}

/// Authenticates a consumer. Returns the status of its Tenant, and a client of its replicator.
pub(super) async fn join(consumer: &Consumer, provider: &Side) -> Result<(Value, Rest)> {
    let tenant = consumer.authenticate(provider).await?;
    let replicator = consumer.client(&tenant["authParams"], "crd-replicator");
    let replicator = replicator.await?;

    Ok((tenant, replicator))
}

/// The replicator may see a ResourceSlice before its controller has completed it.
async fn slice(turin: &Consumer, replicator: &Rest, remote: &str) -> Result<()> {
    for (cpu, is_complete) in [("20", false), ("20", true), ("30", true)] {
        let spec = turin.slice("milan", cpu, is_complete)?;
        let local = turin.local("ResourceSlice", "milan", &spec);
        turin.replicate(replicator, &local, remote).await?;
        turin.replicate(replicator, &local, remote).await?;
        if !is_complete {
            continue;
        }
        let decided = replicator.until(("ResourceSlice", remote, "milan"), |it| {
            it["status"]["resources"]["cpu"] == cpu
        });
        let decided = decided.await?;
        for type_ in ["Authentication", "Resources"] {
            ensure!(
                condition(&decided, type_).as_deref() == Some("Accepted"),
                "{decided}"
            );
        }
        ensure!(decided["spec"] == spec, "{decided}");
        let virtual_kubelet = turin.connect(&decided["status"]["authParams"]).await?;
        let (name, groups) = user(&virtual_kubelet).await?;
        ensure!(name == "milan-5cd5d53aaf09", "{name}");
        ensure!(groups.contains(&"turin".to_owned()), "{groups:?}");
    }

    Ok(())
}

/// The provider `milan` has no manager of ours: the test writes what its controllers write. `rome` is then as the golden
/// objects say.
pub(super) async fn an_upstream_provider_serves_a_consumer(_: &'static Fixture) -> Result<()> {
    let (rome, milan) = peered().await?;
    let provider = Provider::new(&milan);
    let upstream = liqoctl(&rome, &milan);
    let clusters = ["rome"];
    let compared = Compared {
        consumer: &rome,
        provider: &milan,
        clusters: &clusters,
    };
    compared.compare().await?;
    renewals(&provider, &upstream).await?;

    upstream.unpeer().await?;
    for site in [&rome, &milan] {
        let rest = Rest::new(site.client.clone(), "kubectl");
        for kind in [
            "Tenant",
            "Identity",
            "ResourceSlice",
            "Renew",
            "VirtualNode",
        ] {
            until_gone(&rest, kind, &site.tenant_namespace(), "").await?;
        }
    }
    Ok(())
}

/// Starts `rome`, which is peered with `milan`, a provider without a manager of ours.
pub(super) async fn peered() -> Result<(Site, Site)> {
    let rome = Site::start("rome", "milan", &[]).await?;
    let mut options = Options::new(artifacts()?);
    options.audit = false;
    let milan = Site::start_unmanaged("milan", "rome", options).await?;
    peer(&rome, &milan).await?;

    Ok((rome, milan))
}

/// Peers `rome` with `milan`, a provider without a manager of ours.
pub(super) async fn peer(rome: &Site, milan: &Site) -> Result<()> {
    let (provider, upstream) = (Provider::new(milan), liqoctl(rome, milan));
    let (accepted, printed) = tokio::join!(accept(&provider), upstream.peer());
    accepted?;
    ensure!(printed? == ["Accepted", "Accepted"]);

    Ok(())
}

async fn accept(provider: &Provider<'_>) -> Result<()> {
    provider.fill_nonce().await?;
    provider.accept_tenant().await?;
    provider.renew().await?;
    let accepted = |type_: &str, subject: &str| {
        json!({
            "type": type_,
            "status": "Accepted",
            "reason": format!("ResourceSlice{type_}Accepted"),
            "message": format!("ResourceSlice {subject} accepted"),
            "lastTransitionTime": "2026-11-21T07:15:27Z",
        })
    };
    let resources = json!({
        "cpu": "20", "ephemeral-storage": "20Gi", "memory": "20Gi", "pods": "200",
    });
    provider
        .accept_slice(&json!({
            "conditions": [
                accepted("Authentication", "authentication"),
                accepted("Resources", "resources"),
            ],
            "nodeLabels": {"provider": "AWS", "region": "B"},
            "resources": resources,
            "storageClasses": [
                {"storageClassName": "liqo"},
                {"storageClassName": "standard", "default": true},
            ],
        }))
        .await
}

/// New credentials in the statuses of the provider reach the Identities byte for byte.
async fn renewals(provider: &Provider<'_>, upstream: &Liqoctl) -> Result<()> {
    let (local, remote) = ("liqo-tenant-milan", "liqo-tenant-rome");
    for (kind, name, identity) in [
        ("Renew", "controlplane-milan", "controlplane-milan"),
        ("ResourceSlice", "milan", "resourceslice-milan"),
    ] {
        let mut object = provider.rest.get(kind, remote, name).await?;
        let certificate = &mut object["status"]["authParams"]["signedCRT"];
        let text = certificate.as_str().context("no certificate")?;
        *certificate = append_line(text)?;
        let parameters = object["status"]["authParams"].clone();
        provider.rest.update_part("status", &object).await?;
        upstream
            .consumer
            .rest
            .until(("Identity", local, identity), |it| {
                it["spec"]["authParams"] == parameters
            })
            .await?;
    }

    Ok(())
}

/// Returns a certificate with an empty line after it: other bytes of the same certificate.
fn append_line(certificate: &str) -> Result<Value> {
    let mut bytes = decoded(&json!(certificate))?;
    bytes.push(b'\n');

    Ok(json!(ByteString(bytes)))
}
