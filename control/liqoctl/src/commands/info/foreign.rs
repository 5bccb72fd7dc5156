//! What a ForeignCluster says of a peer. PURE.

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

/// A module of a peering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// `Healthy`, `Unhealthy` or `Disabled`.
    pub(crate) status: &'static str,
    /// What is wrong.
    pub(crate) alerts: Vec<String>,
}

/// Returns the peer's id.
pub(crate) fn id(foreign: &DynamicObject) -> String {
    let id = foreign.data["spec"]["clusterID"].as_str();
    id.map_or_else(|| foreign.name_any(), ToOwned::to_owned)
}

/// Returns what the peer is for this cluster.
pub(crate) fn role(foreign: &DynamicObject) -> String {
    let role = foreign.data["status"]["role"].as_str();
    role.unwrap_or("Unknown").to_owned()
}

/// Returns the URL of the peer's API server, if it is known.
pub(crate) fn api_server(foreign: &DynamicObject) -> String {
    let url = foreign.data["status"]["apiServerUrl"].as_str();
    url.unwrap_or_default().to_owned()
}

/// Returns how a module is.
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
        .filter(|condition| !is_fine(condition))
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

fn is_fine(condition: &Value) -> bool {
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
    fn a_module_is_as_well_as_its_worst_condition() {
        let well = json!({"enabled": true, "conditions": [
            {"type": "NetworkConfigurationStatus", "status": "Ready"},
            {"type": "NetworkConnectionStatus", "status": "Established"},
        ]});
        let ill = json!({"enabled": true, "conditions": [
            {"type": "NetworkConfigurationStatus", "status": "Ready"},
            {"type": "NetworkConnectionStatus", "status": "Error", "message": "the way ends at the remote gateway"},
        ]});

        assert_eq!(module(&foreign(&well), "networking").status, "Healthy");
        let module = module(&foreign(&ill), "networking");
        assert_eq!(module.status, "Unhealthy");
        assert_eq!(module.alerts, ["the way ends at the remote gateway"]);
    }

    #[test]
    fn what_is_not_there_is_disabled() {
        let foreign = foreign(&json!({"enabled": false}));

        assert_eq!(module(&foreign, "networking").status, "Disabled");
        assert_eq!(module(&foreign, "offloading").status, "Disabled");
        assert_eq!(
            (id(&foreign), role(&foreign)),
            ("milan".into(), "Provider".into())
        );
    }
}
