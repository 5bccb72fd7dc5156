//! Quotas: what a consumer may use of a ResourceSlice that this cluster has accepted.
//!
//! A Quota is bound to the tenant namespace and the user of the slice's certificate, both of which the consumer cannot
//! choose: the namespace's label determines the cluster ID, and the cluster ID is part of the user's name.

use super::bounds::Bounds;
use super::item::WorkItem;
use super::objects::{BY_SLICE, Local, Refusal, annotation, is_accepted};
use super::write::{delete, owner, reach, set_owner};
use crate::authentication::{is_replica, label, warn};
use control_api::offloading::quota::LimitsEnforcement;
use control_api::{Quota, QuotaSpec, ResourceSlice, annotations, labels};
use control_credentials::Subject;
use control_runtime::{Cluster, Key, Plan, Ref};

/// Longest name of an object.
const NAME_LEN_MAX: usize = 253;

/// Plans the Quota of a slice.
pub(super) fn plan(local: &Local<'_>, enforcement: LimitsEnforcement, key: &Key) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    if local.is_terminating(&key.namespace) {
        return plan;
    }
    let slice = local.slices.get(key).filter(|slice| {
        is_replica(&slice.metadata)
            && is_accepted(slice)
            && slice.metadata.deletion_timestamp.is_none()
    });
    let user = slice.map(|slice| user(local, (key, slice))).transpose();
    let quota = match &user {
        Ok(user) => user
            .as_ref()
            .map(|user| Key::new(&*key.namespace, user.as_str())),
        Err(_) => None,
    };
    for (other, leftover) in local.quotas.indexed(BY_SLICE, &key.to_string()) {
        if Some(other) != quota.as_ref() {
            delete(&mut plan, other, leftover);
        }
    }
    let object = Ref::of::<ResourceSlice>(&Cluster::Local, key);
    if let Err(refusal) = user {
        warn(&mut plan, object, refusal);
        return plan;
    }
    let (Some(slice), Some(quota)) = (slice, quota) else {
        return plan;
    };
    let present = local.quotas.get(&quota);
    if present.is_some_and(|present| owner(&present.metadata) != Some(&key.name)) {
        let message =
            format!("Quota {quota} exists and is not of this ResourceSlice: delete the Quota");
        warn(&mut plan, object, ("QuotaExists", message));
        return plan;
    }
    if present.is_some_and(|present| present.metadata.deletion_timestamp.is_some()) {
        return plan;
    }
    let mut bounds = Bounds::new(&[]);
    let desired = desired(present, (slice, &quota), enforcement, &mut bounds);
    reach(&mut plan, &quota, present, &desired);
    if let Some(message) = bounds.into_message() {
        warn(&mut plan, object, ("InvalidStatus", message));
    }

    plan
}

/// Returns the slice whose Quota has this name.
pub(super) fn slice_of(quota: &Key) -> Option<Key> {
    // `Subject::resource_slice` appends a digest, which has no hyphen.
    let (slice, _) = quota.name.rsplit_once('-')?;
    Some(Key::new(&*quota.namespace, slice))
}

/// Returns the user of a slice's certificate, which is also the name of the Quota.
///
/// # Errors
///
/// Returns a refusal if the slice is another consumer's.
fn user(local: &Local<'_>, (key, slice): (&Key, &ResourceSlice)) -> Result<String, Refusal> {
    let named = [
        (
            "spec.consumerClusterID",
            slice.spec.consumer_cluster_id.as_deref(),
        ),
        (
            "label liqo.io/originID",
            label(&slice.metadata, labels::ORIGIN_ID),
        ),
        (
            "label liqo.io/remote-cluster-id",
            label(&slice.metadata, labels::REMOTE_CLUSTER_ID),
        ),
    ];
    let peer = local.peer(key, &named)?;
    let user = Subject::resource_slice(peer, &key.name).common_name;
    if user.len() > NAME_LEN_MAX {
        let message = format!(
            "the name of the slice has {} characters: use {} at most",
            key.name.len(),
            NAME_LEN_MAX - (user.len() - key.name.len())
        );
        return Err(("NameTooLong", message));
    }

    Ok(user)
}

fn desired(
    present: Option<&Quota>,
    (slice, key): (&ResourceSlice, &Key),
    enforcement: LimitsEnforcement,
    bounds: &mut Bounds<'_>,
) -> Quota {
    let mut quota = present.cloned().unwrap_or_else(|| {
        let mut quota = Quota::new(&key.name, QuotaSpec::default());
        quota.metadata.namespace = Some(key.namespace.clone());
        quota
    });
    set_owner(&mut quota.metadata, slice);
    let resources = slice.status.as_ref().map(|it| &it.resources);
    quota.spec = QuotaSpec {
        // Upstream's omit the field until a slice is cordoned.
        cordoned: is_cordoned(slice).then_some(true),
        limits_enforcement: Some(enforcement),
        resources: resources.map(|it| bounds.resources(it)).unwrap_or_default(),
        user: key.name.clone(),
    };

    quota
}

fn is_cordoned(slice: &ResourceSlice) -> bool {
    [annotations::CORDON, annotations::CORDON_TENANT]
        .into_iter()
        .filter_map(|key| annotation(&slice.metadata, key))
        .any(annotations::cordons)
}
