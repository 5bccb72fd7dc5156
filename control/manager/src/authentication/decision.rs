//! The provider's decisions about a consumer, which outlive what the consumer writes.
//!
//! A consumer may apply its Tenant again, and delete and create ResourceSlices. So decisions are recorded in annotations of
//! the tenant namespace, and restored from there.

use super::item::WorkItem;
use super::objects::Local;
use control_api::authentication::tenant::TenantCondition;
use control_api::{ResourceSlice, Tenant, annotations};
use control_runtime::{Action, Cluster, Key, Plan, Ref, Write};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Largest number of recorded ResourceSlices, so that the annotation stays small.
const CORDONED_MAX: usize = 1000;

/// Returns the condition of a Tenant: that of its specification, or the recorded one.
pub(super) fn effective(local: &Local<'_>, key: &Key, tenant: &Tenant) -> TenantCondition {
    let recorded = annotation(local, &key.namespace, annotations::TENANT_CONDITION);
    let recorded = recorded.and_then(|text| serde_json::from_value(text.into()).ok());
    let explicit = tenant.spec.tenant_condition;

    explicit.or(recorded).unwrap_or_default()
}

/// Records the condition of a Tenant, and restores one that a consumer has left out.
pub(super) fn plan_tenant(
    local: &Local<'_>,
    (key, tenant): (&Key, &Tenant),
    object: &Ref,
    plan: &mut Plan<WorkItem>,
) {
    let condition = effective(local, key, tenant);
    let recorded = annotation(local, &key.namespace, annotations::TENANT_CONDITION);
    let desired = match condition {
        TenantCondition::Active => None,
        TenantCondition::Cordoned => Some("Cordoned"),
        TenantCondition::Drained => Some("Drained"),
    };
    if recorded != desired {
        let annotation = (annotations::TENANT_CONDITION, json!(desired));
        record(local, &key.namespace, annotation, plan);
    }
    if tenant.spec.tenant_condition.is_none() {
        plan.apply(
            object.clone(),
            json!({"spec": {"tenantCondition": condition}}),
        );
    }
}

/// Adds the condition that a consumer has left out to the write that adds the finalizer of a Tenant.
pub(super) fn complete(
    local: &Local<'_>,
    (key, tenant): (&Key, &Tenant),
    plan: &mut Plan<WorkItem>,
) {
    if tenant.spec.tenant_condition.is_some() {
        return;
    }
    let condition = effective(local, key, tenant);
    for write in &mut plan.writes {
        if let Action::Finalize(finalizers) = &write.action {
            write.action = Action::Merge(json!({
                "metadata": {"finalizers": finalizers},
                "spec": {"tenantCondition": condition},
            }));
        }
    }
}

/// Records whether a ResourceSlice is cordoned, restores that on one that was created again, and marks those of a Tenant
/// that is cordoned.
pub(super) fn plan_slice(
    local: &Local<'_>,
    (key, slice): (&Key, &ResourceSlice),
    (tenant_key, tenant): (&Key, &Tenant),
    plan: &mut Plan<WorkItem>,
) {
    let mut changed = BTreeMap::new();
    let of_tenant = effective(local, tenant_key, tenant) == TenantCondition::Cordoned;
    let has = |name: &str| {
        slice
            .metadata
            .annotations
            .as_ref()
            .and_then(|it| it.get(name))
    };
    let marked = has(annotations::CORDON_TENANT).map(String::as_str);
    if marked != of_tenant.then_some("true") {
        changed.insert(
            annotations::CORDON_TENANT,
            json!(of_tenant.then_some("true")),
        );
    }
    let recorded = annotation(local, &key.namespace, annotations::CORDONED_SLICES);
    let mut cordoned = parse(recorded.unwrap_or_default());
    let uid = slice.metadata.uid.clone().unwrap_or_default();
    let is_cordoned = has(annotations::CORDON).filter(|it| annotations::cordons(it));
    match (is_cordoned, cordoned.get(&key.name)) {
        (Some(_), Some(known)) if *known == uid => {}
        (Some(_), _) if cordoned.len() < CORDONED_MAX => {
            cordoned.insert(key.name.clone(), uid);
        }
        // The provider has removed the annotation: consumers may not.
        (None, Some(known)) if *known == uid => {
            cordoned.remove(&key.name);
        }
        (None, Some(_)) => {
            changed.insert(annotations::CORDON, json!("true"));
        }
        (Some(_) | None, _) => {}
    }
    let text = Vec::from_iter(cordoned.iter().map(|(name, uid)| format!("{name}={uid}"))).join(",");
    if text != recorded.unwrap_or_default() {
        let value = if text.is_empty() {
            Value::Null
        } else {
            text.into()
        };
        record(
            local,
            &key.namespace,
            (annotations::CORDONED_SLICES, value),
            plan,
        );
    }
    if !changed.is_empty() {
        let merge = Action::Merge(json!({"metadata": {"annotations": changed}}));
        let object = Ref::of::<ResourceSlice>(&Cluster::Local, key);
        plan.writes.push(Write::new(object, merge));
    }
}

/// Parses the recorded ResourceSlices: UID by name.
fn parse(text: &str) -> BTreeMap<String, String> {
    let records = text.split(',').filter_map(|record| record.split_once('='));
    records
        .map(|(name, uid)| (name.to_owned(), uid.to_owned()))
        .collect()
}

fn annotation<'a>(local: &Local<'a>, namespace: &str, name: &str) -> Option<&'a str> {
    let namespace = local.namespaces.get(&Key::cluster(namespace))?;
    namespace
        .metadata
        .annotations
        .as_ref()?
        .get(name)
        .map(String::as_str)
}

/// Changes an annotation of the version of a namespace that was read: plans of other objects change the same one.
fn record(
    local: &Local<'_>,
    namespace: &str,
    (name, value): (&str, Value),
    plan: &mut Plan<WorkItem>,
) {
    let object = Ref::of::<Namespace>(&Cluster::Local, &Key::cluster(namespace));
    let version = local.cache.entry(&object).and_then(|entry| entry.version);
    let merge = Action::Merge(json!({"metadata": {"annotations": {name: value}}}));
    let mut write = Write::new(object, merge);
    write.resource_version = version.map(|version| version.to_string());
    plan.writes.push(write);
}
