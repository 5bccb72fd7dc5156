//! ResourceQuotas of consumers: how many objects each of their namespaces may have.
//!
//! Kubernetes checks them for each request, so they hold for objects that a consumer writes with its own credentials.

use super::item::WorkItem;
use super::objects::Local;
use control_api::{TenantPolicySpec, labels};
use control_runtime::{Action, Cluster, Key, Plan, Ref, Write, merge_patch};
use k8s_openapi::api::core::v1::ResourceQuota;
use serde_json::{Map, Value, json};

/// Name of the ResourceQuota in each namespace of a consumer whose policy limits objects.
pub(super) const NAME: &str = "liqo-tenant";

/// Adds the change of the ResourceQuota of a namespace to a plan, and returns whether it is right already.
pub(super) fn plan(
    local: &Local<'_>,
    namespace: &str,
    policy: Option<&TenantPolicySpec>,
    plan: &mut Plan<WorkItem>,
) -> bool {
    let key = Key::new(namespace, NAME);
    let object = Ref::of::<ResourceQuota>(&Cluster::Local, &key);
    let hard = hard(policy);
    let Some(present) = local.quotas.get(&key) else {
        if hard.is_empty() {
            return true;
        }
        let create = json!({
            "metadata": {"name": NAME, "namespace": namespace, "labels": {labels::MANAGED: "true"}},
            "spec": {"hard": hard},
        });
        plan.writes.push(Write::new(object, Action::Create(create)));
        return false;
    };
    let uid = present.metadata.uid.clone();
    if hard.is_empty() {
        plan.delete(object, uid.unwrap_or_default());
        return true;
    }
    let old = serde_json::to_value(&present.spec).unwrap_or_default();
    let Some(patch) = merge_patch(&old, &json!({"hard": hard})) else {
        return true;
    };
    let mut write = Write::new(object, Action::Merge(json!({"spec": patch})));
    write.uid = uid;
    plan.writes.push(write);

    false
}

/// Returns the limits of a policy, with the keys of Kubernetes' object count quotas.
fn hard(policy: Option<&TenantPolicySpec>) -> Map<String, Value> {
    let mut hard = Map::new();
    let Some(policy) = policy else {
        return hard;
    };
    for (resource, max) in policy.objects.iter().flatten() {
        let is_of_services = resource.starts_with("services.");
        let key = if is_of_services {
            resource.clone()
        } else {
            format!("count/{resource}")
        };
        hard.insert(key, max.to_string().into());
    }
    // Types that are not listed are refused by a quota of none.
    let types = policy.service_types.as_deref();
    for (type_, key) in [
        ("NodePort", "services.nodeports"),
        ("LoadBalancer", "services.loadbalancers"),
    ] {
        let is_listed = types.is_none_or(|types| types.iter().any(|it| it == type_));
        // A load balancer has node ports.
        let needs_ports = key == "services.nodeports"
            && types.is_none_or(|types| types.iter().any(|it| it == "LoadBalancer"));
        if !is_listed && !needs_ports {
            hard.insert(key.to_owned(), "0".into());
        }
    }

    hard
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_value;

    fn limits(policy: Value) -> Value {
        let policy: TenantPolicySpec = from_value(policy).unwrap();
        hard(Some(&policy)).into()
    }

    #[test]
    fn a_policy_without_limits_needs_no_quota() {
        assert!(hard(None).is_empty());
        assert_eq!(limits(json!({})), json!({}));
    }

    #[test]
    fn objects_are_counted_by_resource() {
        let objects =
            json!({"services": 5, "ingresses.networking.k8s.io": 0, "services.loadbalancers": 1});
        assert_eq!(
            limits(json!({"objects": objects})),
            json!({
                "count/services": "5",
                "count/ingresses.networking.k8s.io": "0",
                "services.loadbalancers": "1",
            })
        );
    }

    #[test]
    fn types_of_services_that_are_not_listed_have_a_quota_of_none() {
        let none = json!({"services.nodeports": "0", "services.loadbalancers": "0"});
        assert_eq!(limits(json!({"serviceTypes": ["ClusterIP"]})), none);
        assert_eq!(
            limits(json!({"serviceTypes": ["ClusterIP", "NodePort"]})),
            json!({"services.loadbalancers": "0"})
        );
        assert_eq!(limits(json!({"serviceTypes": ["LoadBalancer"]})), json!({}));
    }
}
