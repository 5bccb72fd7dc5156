//! ResourceSlices of this cluster: the fields that `liqoctl` leaves out, and the credentials that the provider issues.

use super::item::WorkItem;
use super::objects::{Local, label, label_peer, warn};
use super::{controller_reference, issued};
use crate::network::covers;
use control_api::authentication::auth_params::AuthParams;
use control_api::authentication::resource_slice::REPLICATION_FINALIZER;
use control_api::{Identity, ResourceSlice, labels};
use control_credentials::{ClusterKey, Subject, request};
use control_runtime::{Action, Cluster, Key, Plan, Ref, Write};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// Prefix of the name of a ResourceSlice's Identity.
const IDENTITY_PREFIX: &str = "resourceslice-";

/// Longest name: labels of the Identity and of the VirtualNode contain it.
const NAME_LEN_MAX: usize = 63;

/// Plans the request of a ResourceSlice, and its Identity.
pub(super) fn plan(local: &Local<'_>, key: &Key, slice: &ResourceSlice) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let labelled = label(&slice.metadata, labels::REMOTE_CLUSTER_ID);
    let provider = local.peer_of(&key.namespace);
    let (Some(consumer), Some(cluster_key), Some(provider)) =
        (local.cluster_id(), local.cluster_key(), provider)
    else {
        return plan;
    };
    if slice.metadata.deletion_timestamp.is_some() {
        plan.writes.extend(deletion(local, key, slice));
        return plan;
    }
    let object = Ref::of::<ResourceSlice>(&Cluster::Local, key);
    if labelled.is_some_and(|it| it != provider) {
        let message = format!(
            "the label {} differs from that of namespace {}: create the ResourceSlice in the tenant namespace of its \
             provider",
            labels::REMOTE_CLUSTER_ID,
            key.namespace
        );
        warn(&mut plan, object, ("NotTenantNamespace", message));
        return plan;
    }
    label_peer(&mut plan, &object, &slice.metadata, provider);
    if key.name.len() > NAME_LEN_MAX {
        let message = format!(
            "metadata.name has {} characters, but labels contain it: use {NAME_LEN_MAX} at most",
            key.name.len()
        );
        warn(&mut plan, object, ("InvalidName", message));
        return plan;
    }
    match request(slice, key, (consumer, provider), &cluster_key) {
        Ok(None) => {}
        Ok(Some(spec)) => {
            plan.writes.push(completion(object, slice, &spec));
            return plan;
        }
        Err(error) => {
            warn(&mut plan, object, ("InvalidName", error));
            return plan;
        }
    }
    let identity = identity_key(key);
    let issued = slice.status.as_ref().and_then(|it| it.auth_params.as_ref());
    let present = local.identities.get(&identity);
    let current = present.and_then(|it| it.spec.auth_params.as_ref());
    let identity_object = Ref::of::<Identity>(&Cluster::Local, &identity);
    let objects = (&object, &identity_object);
    let issued =
        issued.filter(|issued| issued::take(issued, current, &cluster_key, objects, &mut plan));
    let Some(issued) = issued else {
        return plan;
    };
    let fields = identity_fields(slice, key, provider, issued);
    let present = present.map(|present| serde_json::to_value(present).unwrap_or_default());
    if present.is_none_or(|present| !covers(&present, &fields)) {
        plan.apply(identity_object, fields);
    }

    plan
}

/// Returns the write that completes a ResourceSlice. It also sets the finalizer of the replication, which would be another
/// write, and replicates no ResourceSlice without it.
fn completion(object: Ref, slice: &ResourceSlice, spec: &Value) -> Write {
    let mut finalizers = slice.metadata.finalizers.clone().unwrap_or_default();
    let is_replicated = label(&slice.metadata, labels::REPLICATION) == Some("true");
    if !is_replicated || finalizers.iter().any(|it| it == REPLICATION_FINALIZER) {
        return Write::new(object, Action::Merge(json!({"spec": spec})));
    }
    finalizers.push(REPLICATION_FINALIZER.to_owned());
    let fields = json!({"metadata": {"finalizers": finalizers}, "spec": spec});
    let mut write = Write::new(object, Action::Merge(fields));
    // Others may have changed the list meanwhile.
    write.uid.clone_from(&slice.metadata.uid);
    write
        .resource_version
        .clone_from(&slice.metadata.resource_version);

    write
}

/// Returns the deletion of the Identity of a ResourceSlice. Garbage collection would delete it later.
fn deletion(local: &Local<'_>, key: &Key, slice: &ResourceSlice) -> Option<Write> {
    let identity = identity_key(key);
    let metadata = &local.identities.get(&identity)?.metadata;
    let owners = metadata.owner_references.iter().flatten();
    let is_owned = owners
        .into_iter()
        .any(|it| Some(&it.uid) == slice.metadata.uid.as_ref());
    let object = Ref::of::<Identity>(&Cluster::Local, &identity);
    let mut write = Write::new(object, Action::Delete);
    write.uid.clone_from(&metadata.uid);

    (is_owned && metadata.deletion_timestamp.is_none()).then_some(write)
}

fn identity_key(slice: &Key) -> Key {
    let name = format!("{IDENTITY_PREFIX}{}", slice.name);
    Key::new(slice.namespace.clone(), name)
}

/// Returns the fields of the request that are missing. A request for another key or name is replaced, because the provider
/// would refuse it.
///
/// # Errors
///
/// Returns why the name of the ResourceSlice cannot be part of a certificate.
fn request(
    slice: &ResourceSlice,
    key: &Key,
    (consumer, provider): (&str, &str),
    cluster_key: &ClusterKey,
) -> Result<Option<Value>, String> {
    let subject = Subject::resource_slice(consumer, &key.name);
    let spec = &slice.spec;
    let csr = spec.csr.as_ref();
    let is_valid =
        csr.is_some_and(|csr| request::check(&csr.0, &subject, cluster_key.public_key()).is_ok());
    let is_complete = is_valid
        && spec.consumer_cluster_id.as_deref() == Some(consumer)
        && spec.provider_cluster_id.as_deref() == Some(provider);
    if is_complete {
        return Ok(None);
    }
    let csr = match csr.filter(|_| is_valid) {
        Some(csr) => csr.clone(),
        None => {
            let text = request::create(cluster_key, &subject);
            let text = text.map_err(|error| format!("metadata.name: {error}"))?;
            ByteString(text.into_bytes())
        }
    };

    Ok(Some(
        json!({"consumerClusterID": consumer, "providerClusterID": provider, "csr": csr}),
    ))
}

/// Returns the fields of the Identity.
fn identity_fields(slice: &ResourceSlice, key: &Key, provider: &str, issued: &AuthParams) -> Value {
    json!({
        "metadata": {
            "labels": {
                labels::MANAGED: "true",
                labels::REMOTE_CLUSTER_ID: provider,
                labels::RESOURCE_SLICE_NAME: key.name,
            },
            "ownerReferences": [controller_reference(slice)],
        },
        "spec": {"authParams": issued, "clusterID": provider, "type": "ResourceSlice"},
    })
}
