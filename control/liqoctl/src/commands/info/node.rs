//! Reads the conditions of a Node. PURE.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// Returns the first unhealthy condition of a Node with its reason; none if the Node is ready.
pub(super) fn problem(node: &Node) -> Option<String> {
    let status = node.status.as_ref();
    let conditions = status.and_then(|it| it.conditions.as_deref());
    let conditions = conditions.unwrap_or_default();
    let unready = || conditions.iter().find(|it| it.type_ == "Ready");
    // The other conditions name the cause of an unready Node.
    let unhealthy = conditions
        .iter()
        .find(|it| it.type_ != "Ready" && it.status == "True");
    match unready() {
        Some(ready) if ready.status == "True" => unhealthy.map(show),
        Some(ready) => Some(match unhealthy {
            Some(cause) => format!("{}; {}", show(ready), show(cause)),
            None => show(ready),
        }),
        None => Some("the Node reports no condition Ready yet".to_owned()),
    }
}

fn show(condition: &NodeCondition) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (type_, status) = (&condition.type_, &condition.status);

    format!(
        "condition {type_} is {status}: {} ({})",
        text(&condition.reason),
        text(&condition.message)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn problem_of(conditions: &[(&str, &str)]) -> Option<String> {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status)| {
                json!({"type": type_, "status": status, "reason": "Why", "message": "because"})
            })
            .collect();
        let node: Node = from_value(json!({
            "metadata": {"name": "milan"}, "status": {"conditions": conditions},
        }))
        .unwrap();
        problem(&node)
    }

    #[test]
    fn the_unhealthy_conditions_are_named() {
        assert_eq!(
            problem_of(&[("Ready", "True"), ("NetworkUnavailable", "False")]),
            None
        );
        assert_eq!(
            problem_of(&[("MemoryPressure", "False"), ("Ready", "Unknown")]).unwrap(),
            "condition Ready is Unknown: Why (because)"
        );
        assert_eq!(
            problem_of(&[("Ready", "False"), ("NetworkUnavailable", "True")]).unwrap(),
            "condition Ready is False: Why (because); condition NetworkUnavailable is True: Why (because)"
        );
        assert!(problem_of(&[("Ready", "True"), ("DiskPressure", "True")]).is_some());
        assert!(problem_of(&[]).unwrap().contains("no condition Ready"));
    }
}
