//! The provider's decision about a consumer: the field `tenantCondition` of its Tenant.

use crate::cluster::{Cluster, FIELD_MANAGER};
use crate::global::Global;
use crate::verbs::Run;
use crate::{progress, prompt};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use control_api::Tenant;
use control_api::authentication::tenant::TenantCondition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

/// Flags of `liqoctl activate tenant`.
#[derive(Args, Debug)]
pub(super) struct Activate {
    /// The name of the Tenant: the cluster ID of the consumer.
    name: String,
}

/// Flags of `liqoctl cordon tenant`.
#[derive(Args, Debug)]
pub(super) struct Cordon {
    /// The name of the Tenant: the cluster ID of the consumer.
    name: String,
}

/// Flags of `liqoctl uncordon tenant`.
#[derive(Args, Debug)]
pub(super) struct Uncordon {
    /// The name of the Tenant: the cluster ID of the consumer.
    name: String,
}

/// Flags of `liqoctl drain tenant`.
#[derive(Args, Debug)]
pub(super) struct Drain {
    /// The name of the Tenant: the cluster ID of the consumer.
    name: String,
}

impl Run for Activate {
    async fn run(self, global: &Global) -> Result<()> {
        set(global, &self.name, TenantCondition::Active, "activated").await
    }
}

impl Run for Cordon {
    async fn run(self, global: &Global) -> Result<()> {
        prompt::confirm_verb(global, "cordon").await?;
        set(global, &self.name, TenantCondition::Cordoned, "cordoned").await
    }
}

impl Run for Uncordon {
    async fn run(self, global: &Global) -> Result<()> {
        set(global, &self.name, TenantCondition::Active, "uncordoned").await
    }
}

impl Run for Drain {
    async fn run(self, global: &Global) -> Result<()> {
        prompt::confirm_verb(global, "drain").await?;
        set(global, &self.name, TenantCondition::Drained, "drained").await
    }
}

async fn set(global: &Global, name: &str, condition: TenantCondition, done: &str) -> Result<()> {
    let cluster = Cluster::local(global).await?;
    let tenant = find(&cluster, name).await?;
    let current = tenant.spec.tenant_condition;
    check(name, current, condition)?;
    if current != Some(condition) {
        let namespace = tenant.namespace().unwrap_or_default();
        let api = Api::<Tenant>::namespaced(cluster.client.clone(), &namespace);
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({"spec": {"tenantCondition": condition}}));
        api.patch(name, &params, &patch)
            .await
            .map_err(cluster.failed(&format!("change Tenant {name}")))?;
    }
    progress::info(format_args!("Tenant \"{name}\" {done}"));
    Ok(())
}

/// Returns the Tenant with this name, which is unique in a cluster.
async fn find(cluster: &Cluster, name: &str) -> Result<Tenant> {
    let api = Api::<Tenant>::all(cluster.client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = api.list(&params).await;
    let mut found = found.map_err(cluster.failed("list Tenants"))?.items;
    if found.len() > 1 {
        bail!(
            "{} has several Tenants {name}: delete all but one",
            cluster.place()
        );
    }
    found
        .pop()
        .with_context(|| format!("there is no Tenant {name} in {}", cluster.place()))
}

/// Checks that a Tenant may change to a condition. Cordoning a drained one would give resources back.
fn check(name: &str, current: Option<TenantCondition>, to: TenantCondition) -> Result<()> {
    if to == TenantCondition::Cordoned && current == Some(TenantCondition::Drained) {
        bail!(
            "Tenant {name} is drained, and only an active one can be cordoned: run `liqoctl activate tenant {name}` first"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drained_tenant_cannot_be_cordoned() {
        use TenantCondition::{Active, Cordoned, Drained};

        assert!(check("rome", Some(Drained), Cordoned).is_err());
        for (current, to) in [
            (None, Cordoned),
            (Some(Active), Cordoned),
            (Some(Cordoned), Cordoned),
            (Some(Cordoned), Drained),
            (Some(Drained), Active),
        ] {
            assert!(check("rome", current, to).is_ok());
        }
    }
}
