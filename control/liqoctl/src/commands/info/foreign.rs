//! Reads a ForeignCluster. PURE.

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

/// A module of a peering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// `Healthy`, `Unhealthy` or `Disabled`.
    pub(crate) status: &'static str,
    /// Messages of the conditions that are not met.
    pub(crate) alerts: Vec<String>,
}

/// Returns the peer's cluster ID.
pub(crate) fn id(foreign: &DynamicObject) -> String {
    let id = foreign.data["spec"]["clusterID"].as_str();
    id.map_or_else(|| foreign.name_any(), ToOwned::to_owned)
}

/// Returns the role of the peer: `Consumer`, `Provider`, `ConsumerAndProvider` or `Unknown`.
pub(crate) fn role(foreign: &DynamicObject) -> String {
    let role = foreign.data["status"]["role"].as_str();
    role.unwrap_or("Unknown").to_owned()
}

/// Returns the URL of the peer's API server, or an empty text if it is unknown.
pub(crate) fn api_server(foreign: &DynamicObject) -> String {
    let url = foreign.data["status"]["apiServerUrl"].as_str();
    url.unwrap_or_default().to_owned()
}

/// Returns the state of a module.
pub(crate) fn module(foreign: &DynamicObject, name: &str) -> Module {
    let module = &foreign.data["status"]["modules"][name];
    if module["enabled"] != true {
        return Module {
            status: "Disabled",
            alerts: Vec::new(),
        };
    }
    let conditions = module["conditions"].as_array();
    let alerts: Vec<String> = conditions
        .into_iter()
        .flatten()
        .filter(|condition| !is_met(condition))
        .map(alert)
        .collect();
    Module {
        status: if alerts.is_empty() {
            "Healthy"
        } else {
            "Unhealthy"
        },
        alerts,
    }
}

fn is_met(condition: &Value) -> bool {
    condition["status"] == "Established" || condition["status"] == "Ready"
}

fn alert(condition: &Value) -> String {
    let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    let message = text("message");
    if message.is_empty() {
        format!("{} is {}", text("type"), text("status"))
    } else {
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn foreign(networking: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "core.liqo.io/v1beta1", "kind": "ForeignCluster",
            "metadata": {"name": "milan"}, "spec": {"clusterID": "milan"},
            "status": {"role": "Provider", "modules": {"networking": networking}},
        }))
        .unwrap()
    }

    #[test]
    fn a_module_is_healthy_if_all_its_conditions_are_met() {
        let healthy = json!({"enabled": true, "conditions": [
            {"type": "NetworkConfigurationStatus", "status": "Ready"},
            {"type": "NetworkConnectionStatus", "status": "Established"},
        ]});
        let unhealthy = json!({"enabled": true, "conditions": [
            {"type": "NetworkConfigurationStatus", "status": "Ready"},
            {"type": "NetworkConnectionStatus", "status": "Error", "message": "the path ends at the remote gateway"},
        ]});

        assert_eq!(module(&foreign(&healthy), "networking").status, "Healthy");
        let module = module(&foreign(&unhealthy), "networking");
        assert_eq!(module.status, "Unhealthy");
        assert_eq!(module.alerts, ["the path ends at the remote gateway"]);
    }

    #[test]
    fn a_missing_module_is_disabled() {
        let foreign = foreign(&json!({"enabled": false}));

        assert_eq!(module(&foreign, "networking").status, "Disabled");
        assert_eq!(module(&foreign, "offloading").status, "Disabled");
        assert_eq!(
            (id(&foreign), role(&foreign)),
            ("milan".into(), "Provider".into())
        );
    }
}
