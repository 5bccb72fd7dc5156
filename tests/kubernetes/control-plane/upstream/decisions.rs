//! Decisions of a provider, which a consumer does not undo: neither by peering again, nor by objects that are created again.

use super::rest::Rest;
use super::{liqoctl, until_gone};
use crate::authentication::site::{Site, tenant_namespace};
use crate::fixture::{Deadline, Fixture, SOON, until};
use crate::liqoctl::{execute, run};
use anyhow::{Result, ensure};
use control_api::{ResourceSlice, Tenant};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

pub(super) async fn a_consumer_that_peers_again_changes_no_decision_of_the_provider(
    _: &'static Fixture,
) -> Result<()> {
    let (rome, milan) = Site::pair().await?;
    let upstream = liqoctl(&rome, &milan);
    ensure!(upstream.peer().await? == ["Accepted", "Accepted"]);

    run(&milan, &["cordon", "tenant", "rome", "--skip-confirm"]).await?;
    // What was granted before is not withdrawn.
    ensure!(upstream.peer().await? == ["Accepted", "Accepted"]);
    unchanged(&rome, &milan, "Cordoned").await?;
    // A new ResourceSlice is denied.
    let slices: Api<ResourceSlice> = Api::namespaced(rome.client.clone(), &rome.tenant_namespace());
    slices.delete("milan", &DeleteParams::default()).await?;
    until_gone(
        &upstream.consumer.rest,
        "ResourceSlice",
        &rome.tenant_namespace(),
        "",
    )
    .await?;
    ensure!(upstream.peer().await? == ["Accepted", "Denied"]);
    created_again(&rome, &milan, "Cordoned").await?;

    run(&milan, &["drain", "tenant", "rome", "--skip-confirm"]).await?;
    forbidden(&slices).await?;
    ensure!(upstream.peer().await? == ["Accepted", "Denied"]);
    unchanged(&rome, &milan, "Drained").await?;
    created_again(&rome, &milan, "Drained").await
}

/// Peers with our `liqoctl`, which may report that the resources are denied.
async fn unchanged(rome: &Site, milan: &Site, condition: &str) -> Result<()> {
    let flag = format!("--remote-kubeconfig={}", milan.kubeconfig().display());
    let words = ["peer", "--networking-disabled", &flag];
    let (is_success, out, error) = execute(rome, &words).await?;
    ensure!(is_success || error.contains("Denied"), "{out}\n{error}");
    decided(milan, condition).await
}

/// Deletes the Tenant, and peers again.
async fn created_again(rome: &Site, milan: &Site, condition: &str) -> Result<()> {
    let tenants: Api<Tenant> = Api::namespaced(milan.client.clone(), &tenant_namespace("rome"));
    tenants.delete("rome", &DeleteParams::default()).await?;
    let rest = Rest::new(milan.client.clone(), "kubectl");
    until_gone(&rest, "Tenant", &milan.tenant_namespace(), "").await?;

    unchanged(rome, milan, condition).await
}

/// Checks that the decision stands.
async fn decided(milan: &Site, condition: &str) -> Result<()> {
    let tenants: Api<Tenant> = Api::namespaced(milan.client.clone(), &tenant_namespace("rome"));
    until(Deadline::after(SOON), condition, async || {
        let tenant = json!(tenants.get("rome").await?);
        let found = &tenant["spec"]["tenantCondition"];
        ensure!(found == condition, "{found}");
        Ok(())
    })
    .await
}

/// Waits until the consumer knows that it is refused.
async fn forbidden(slices: &Api<ResourceSlice>) -> Result<()> {
    until(Deadline::after(SOON), "ReplicationForbidden", async || {
        let slice = json!(slices.get("milan").await?);
        let text = slice["status"].to_string();
        ensure!(text.contains("ReplicationForbidden"), "{text}");
        Ok(())
    })
    .await
}
