//! Renews: they return the certificate of a consumer's control plane after each renewal.
//!
//! The consumer keeps one for each Identity of a control plane, and it is replicated to the provider, which writes the
//! credentials of the Tenant into its status.

use super::item::WorkItem;
use super::objects::{Local, origin, warn};
use super::{controller_reference, issued};
use crate::network::covers;
use control_api::authentication::auth_params::AuthParams;
use control_api::authentication::identity::IdentityType;
use control_api::authentication::resource_slice::REPLICATION_FINALIZER;
use control_api::{Identity, Renew, RenewStatus, labels};
use control_credentials::ClusterKey;
use control_runtime::{Action, Cluster, Key, Plan, Ref, Write};
use kube::ResourceExt as _;
use serde_json::json;

/// Plans the Renew of an Identity, and takes renewed credentials into the Identity.
pub(super) fn plan_own(
    local: &Local<'_>,
    key: &Key,
    (identity, cluster_key): (&Identity, &ClusterKey),
    plan: &mut Plan<WorkItem>,
) {
    let is_control_plane = identity.spec.type_ == Some(IdentityType::ControlPlane);
    let provider = identity.spec.cluster_id.as_deref();
    let (Some(consumer), Some(provider), true) = (local.cluster_id(), provider, is_control_plane)
    else {
        return;
    };
    let present = local.renews.get(key);
    if present.is_some_and(|it| {
        it.metadata.deletion_timestamp.is_some() || origin(&it.metadata).is_some()
    }) {
        return;
    }
    let fields = json!({
        "metadata": {
            "labels": {
                labels::REMOTE_CLUSTER_ID: provider,
                labels::REMOTE_ID: provider,
                labels::REPLICATION: "true",
            },
            "ownerReferences": [controller_reference(identity)],
        },
        "spec": {"consumerClusterID": consumer, "identityType": "ControlPlane"},
    });
    let object = Ref::of::<Renew>(&Cluster::Local, key);
    let Some(renew) = present else {
        // With the finalizer of the replication, which would be another write.
        let mut created = fields;
        created["metadata"]["finalizers"] = json!([REPLICATION_FINALIZER]);
        plan.apply(object, created);
        return;
    };
    // Garbage collection deletes the Renew of an earlier Identity.
    let is_owned = renew
        .owner_references()
        .iter()
        .any(|owner| Some(&owner.uid) == identity.metadata.uid.as_ref());
    if !is_owned {
        plan.delete(object, renew.metadata.uid.clone().unwrap_or_default());
        return;
    }
    if !covers(&serde_json::to_value(renew).unwrap_or_default(), &fields) {
        plan.apply(object, fields);
    }
    let renewed = renew
        .status
        .as_ref()
        .and_then(|status| status.auth_params.as_ref());
    let present = identity.spec.auth_params.as_ref();
    // The proxy is a decision of this cluster, which the provider returns. It may return an earlier one as long as it is not
    // reached, which is the reason for another proxy.
    let renewed = renewed.map(|renewed| AuthParams {
        proxy_url: present
            .map_or(&renewed.proxy_url, |it| &it.proxy_url)
            .clone(),
        ..renewed.clone()
    });
    if let Some(renewed) = renewed.filter(|renewed| present != Some(renewed)) {
        let source = Ref::of::<Renew>(&Cluster::Local, key);
        let identity = Ref::of::<Identity>(&Cluster::Local, key);
        if issued::take(&renewed, present, cluster_key, (&source, &identity), plan) {
            plan.apply(identity, json!({"spec": {"authParams": renewed}}));
        }
    }
}

/// Plans the status of a Renew that a consumer has replicated to this cluster.
pub(super) fn plan_replica(local: &Local<'_>, key: &Key) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let Some(renew) = local.renews.get(key) else {
        return plan;
    };
    let consumer = origin(&renew.metadata);
    if consumer.is_none() {
        return plan; // One of this cluster.
    }
    let is_valid = local.peer_of(&key.namespace) == consumer
        && renew.spec.consumer_cluster_id.as_deref() == consumer;
    if !is_valid {
        let message = format!(
            "spec.consumerClusterID, the label {} and namespace {} are of different consumers",
            labels::ORIGIN_ID,
            key.namespace
        );
        let object = Ref::of::<Renew>(&Cluster::Local, key);
        warn(&mut plan, object, ("NotTenantNamespace", message));
        return plan;
    }
    let mut tenants = local.tenants.within(&key.namespace);
    let tenant = tenants.find(|(_, tenant)| tenant.spec.cluster_id.as_deref() == consumer);
    let issued = tenant.and_then(|(_, tenant)| tenant.status.as_ref()?.auth_params.clone());
    let Some(issued) = issued.filter(|issued| issued.signed_crt.is_some()) else {
        return plan;
    };
    let status = RenewStatus {
        auth_params: Some(issued),
    };
    if renew.status.as_ref() != Some(&status) {
        let object = Ref::of::<Renew>(&Cluster::Local, key);
        let apply = Action::Apply(json!({"status": status}));
        plan.writes
            .push(Write::new(object, apply).subresource("status"));
    }

    plan
}
