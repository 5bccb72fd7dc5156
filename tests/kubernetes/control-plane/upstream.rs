//! Tests with upstream's counterpart: the exact requests and waits of upstream's programs, and the objects of upstream's
//! clusters.

mod consumer;
mod counterparts;
mod decisions;
mod golden;
mod hostile_provider;
mod informer;
mod liqoctl;
pub(crate) mod offloading;
mod provider;
pub(crate) mod rest;
mod user;
mod written;

use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use anyhow::{Context as _, Result, bail, ensure};
use counterparts::{an_upstream_consumer_uses_a_provider, an_upstream_provider_serves_a_consumer};
use decisions::a_consumer_that_peers_again_changes_no_decision_of_the_provider;
use golden::Compared;
use hostile_provider::a_hostile_provider_gains_nothing_by_its_statuses;
use liqoctl::{Liqoctl, Side};
use rest::Rest;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use user::a_peering_user_may_do_what_upstreams_liqoctl_does;
use written::states_without_golden_objects_are_as_written;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        upstreams_liqoctl_peers_and_parts_repeatedly,
        the_objects_of_a_peering_are_upstreams,
        a_peering_user_may_do_what_upstreams_liqoctl_does,
        an_upstream_consumer_uses_a_provider,
        an_upstream_provider_serves_a_consumer,
        states_without_golden_objects_are_as_written,
        a_consumer_that_peers_again_changes_no_decision_of_the_provider,
        a_hostile_provider_gains_nothing_by_its_statuses,
    );
    offloading::add(suite);
}

/// Time after `unpeer` in which the last object of a peering disappears.
const GONE: Duration = Duration::from_secs(1);

/// Secret of a consumer with the nonce of a provider.
const SIGNED_NONCE: &str = "liqo-signed-nonce";

/// A public key of WireGuard.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Kinds of which a peering leaves no object.
const KINDS: [&str; 12] = [
    "Tenant",
    "Identity",
    "ResourceSlice",
    "Renew",
    "NamespaceMap",
    "VirtualNode",
    "Quota",
    "Configuration",
    "GatewayServer",
    "GatewayClient",
    "PublicKey",
    "Connection",
];

/// Returns upstream's `liqoctl` with the rights of both administrators.
fn liqoctl(consumer: &Site, provider: &Site) -> Liqoctl {
    let side = |site: &Site| Side::new(Rest::new(site.client.clone(), "liqoctl"), &site.name);
    Liqoctl::new(side(consumer), side(provider))
}

async fn upstreams_liqoctl_peers_and_parts_repeatedly(_: &'static Fixture) -> Result<()> {
    let rome = Site::start("rome", "milan", &[]).await?;
    let milan = Site::start("milan", "rome", &[]).await?;
    let collected = async {
        collects_garbage(&rome).await?;
        collects_garbage(&milan).await
    };
    let (collected, lived) = tokio::join!(collected, lives(&rome, &milan, false));
    collected?;
    lived?;

    lives(&milan, &rome, true).await
}

/// Waits until Kubernetes deletes objects without owner of the kinds of Liqo. It learns about the kinds every 30 s.
async fn collects_garbage(site: &Site) -> Result<()> {
    let rest = Rest::new(site.client.clone(), "kubectl");
    let name = "without-owner";
    rest.create(&json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "PublicKey",
        "metadata": {
            "name": name,
            "namespace": "default",
            "ownerReferences": [{
                "apiVersion": "networking.liqo.io/v1beta1",
                "kind": "GatewayServer",
                "name": "missing",
                "uid": "00000000-0000-0000-0000-000000000001",
            }],
        },
        "spec": {"publicKey": KEY},
    }))
    .await?;

    until_gone(&rest, "PublicKey", "default", "").await
}

/// Peers twice, parts, peers and parts, with signed nonces of an earlier life.
async fn lives(consumer: &Site, provider: &Site, has_network: bool) -> Result<()> {
    let upstream = liqoctl(consumer, provider);
    keep_signed_nonce(provider).await?;
    ensure!(upstream.peer().await? == ["Accepted", "Accepted"]);
    let first = state(&upstream, consumer, provider).await?;
    ensure!(upstream.peer().await? == ["Accepted", "Accepted"]);
    ensure!(state(&upstream, consumer, provider).await? == first);
    if has_network {
        connect(&upstream, consumer, provider).await?;
    }

    let rest = &upstream.consumer.rest;
    let local = consumer.tenant_namespace();
    rest.delete("Secret", &local, SIGNED_NONCE).await?;
    keep_signed_nonce(consumer).await?;
    let error = upstream.authenticate().await.err();
    let error = error.context("a nonce was replaced")?;
    ensure!(error.to_string().contains("different nonce"), "{error:#}");
    upstream.unpeer().await?;
    is_clean(consumer, provider).await?;
    until(
        Deadline::after(SOON),
        "the end of the signed nonce",
        async || {
            let found = rest.get_opt("Secret", &local, SIGNED_NONCE).await?;
            ensure!(found.is_none(), "{found:?}");
            Ok(())
        },
    )
    .await?;

    ensure!(upstream.peer().await? == ["Accepted", "Accepted"]);
    upstream.unpeer().await?;
    is_clean(consumer, provider).await?;
    // The provider's is of no peering: upstream's `liqoctl` refuses to replace it, and ours does.
    let remote = provider.tenant_namespace();
    ensure!(
        upstream
            .provider
            .rest
            .delete("Secret", &remote, SIGNED_NONCE)
            .await?
    );

    Ok(())
}

/// Creates the signed nonce of an earlier life in the tenant namespace of a cluster.
async fn keep_signed_nonce(site: &Site) -> Result<()> {
    let labels = json!({"liqo.io/signed-nonce": "true"});
    let data = json!({"nonce": "ZWFybGllcg=="});
    site.create_secret("liqo-signed-nonce", &labels, &data)
        .await
}

/// Returns what peering again must not change: UIDs and credentials.
async fn state(upstream: &Liqoctl, consumer: &Site, provider: &Site) -> Result<Value> {
    let (local, remote) = (consumer.tenant_namespace(), provider.tenant_namespace());
    let rest = &upstream.consumer.rest;
    let identity = format!("controlplane-{}", provider.name);
    let identity = rest.get("Identity", &local, &identity).await?;
    let slice = ("ResourceSlice", local.as_str(), provider.name.as_str());
    let slice = rest.until(slice, |it| !it["spec"]["csr"].is_null()).await?;
    let node = ("VirtualNode", local.as_str(), provider.name.as_str());
    let node = rest.until(node, |_| true).await?;
    let tenant = upstream
        .provider
        .rest
        .get("Tenant", &remote, &consumer.name)
        .await?;
    let uids = [&identity, &slice, &node, &tenant].map(|it| it["metadata"]["uid"].clone());
    Ok(json!({
        "uids": uids,
        "identity": identity["spec"],
        "csr": slice["spec"]["csr"],
        "slice": slice["status"]["authParams"],
        "tenant": tenant["status"],
    }))
}

/// Creates the objects of `liqoctl network connect`. Without nodes, no gateway becomes ready.
async fn connect(upstream: &Liqoctl, consumer: &Site, provider: &Site) -> Result<()> {
    for (side, site, gateway) in [
        (&upstream.consumer, consumer, "GatewayClient"),
        (&upstream.provider, provider, "GatewayServer"),
    ] {
        let object = |kind: &str, spec: Value| {
            json!({
                "apiVersion": "networking.liqo.io/v1beta1",
                "kind": kind,
                "metadata": {
                    "name": site.peer,
                    "namespace": site.tenant_namespace(),
                    "labels": {"liqo.io/remote-cluster-id": site.peer},
                },
                "spec": spec,
            })
        };
        let endpoint = match gateway {
            "GatewayServer" => json!({"port": 51840, "serviceType": "LoadBalancer"}),
            _ => json!({"addresses": ["192.0.2.7"], "port": 51840, "protocol": "UDP"}),
        };
        let cidr = json!({"pod": ["10.244.0.0/16"], "external": ["10.70.0.0/16"]});
        side.rest
            .create(&object("Configuration", json!({"remote": {"cidr": cidr}})))
            .await?;
        let spec = json!({"endpoint": endpoint, "mtu": 1340});
        let owner = side.rest.create(&object(gateway, spec)).await?;
        let mut public_key = object("PublicKey", json!({"publicKey": KEY}));
        public_key["metadata"]["ownerReferences"] = json!([{
            "apiVersion": owner["apiVersion"],
            "kind": gateway,
            "name": site.peer,
            "uid": owner["metadata"]["uid"],
        }]);
        side.rest.create(&public_key).await?;
    }
    Ok(())
}

/// Asserts that a peering has left none of its objects.
async fn is_clean(consumer: &Site, provider: &Site) -> Result<()> {
    let start = Instant::now();
    let mut last = "none".to_owned();
    let mut looked = start;
    until(
        Deadline::after(SOON),
        "the absence of all objects",
        async || {
            looked = Instant::now();
            for site in [consumer, provider] {
                if let Some(left) = left_in(site).await? {
                    last = left;
                    bail!("{last}");
                }
            }
            Ok(())
        },
    )
    .await?;
    let taken = looked - start;
    eprintln!("upstream's unpeer: nothing is left {taken:?} later; last: {last}");
    ensure!(taken < GONE, "{taken:?} later there was {last}");

    Ok(())
}

/// Returns an object of a peering that is left, or an enabled module of a ForeignCluster.
async fn left_in(site: &Site) -> Result<Option<String>> {
    let rest = Rest::new(site.client.clone(), "kubectl");
    for kind in KINDS {
        let left = rest.list(kind, &site.tenant_namespace(), "").await?;
        if let Some(left) = left.first() {
            return Ok(Some(format!("{kind} in {}: {left}", site.name)));
        }
    }
    for summary in rest.list("ForeignCluster", "", "").await? {
        let modules = summary["status"]["modules"].as_object();
        let mut modules = modules.into_iter().flatten();
        if modules.any(|(_, module)| module["enabled"] == true) {
            return Ok(Some(format!("module in {}: {summary}", site.name)));
        }
    }

    Ok(None)
}

/// Waits until there are no objects of a kind with these labels.
async fn until_gone(rest: &Rest, kind: &str, namespace: &str, labels: &str) -> Result<()> {
    let what = format!("the absence of each {kind}");
    until(Deadline::after(SOON), &what, async || {
        let left = rest.list(kind, namespace, labels).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
}

/// The StorageClasses of the deployment from which the golden objects are.
const STORAGE: [(&str, bool); 2] = [("liqo", false), ("standard", true)];

async fn the_objects_of_a_peering_are_upstreams(_: &'static Fixture) -> Result<()> {
    let rome = Site::start("rome", "milan", &[]).await?;
    let milan = Site::start("milan", "rome", &["--cluster-labels=provider=AWS,region=B"]).await?;
    put_storage(&milan).await?;
    let upstream = liqoctl(&rome, &milan);
    ensure!(upstream.peer().await? == ["Accepted", "Accepted"]);
    let clusters = ["rome", "milan"];
    let compared = Compared {
        consumer: &rome,
        provider: &milan,
        clusters: &clusters,
    };
    compared.compare().await
}

async fn put_storage(site: &Site) -> Result<()> {
    for (name, is_default) in STORAGE {
        let annotations = match is_default {
            true => json!({"storageclass.kubernetes.io/is-default-class": "true"}),
            false => json!({}),
        };
        site.apply(&json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name, "annotations": annotations},
            "provisioner": "example.com/none",
        }))
        .await?;
    }
    Ok(())
}
