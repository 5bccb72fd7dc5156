//! The taint of virtual nodes.

use k8s_openapi::api::core::v1::Toleration;

/// Key of the taint by which only pods of offloaded namespaces are scheduled on virtual nodes. Effect: `NoExecute`; value:
/// `true`.
pub const NOT_ALLOWED: &str = "virtual-node.liqo.io/not-allowed";

/// Returns whether a pod with these tolerations tolerates [`NOT_ALLOWED`], as Kubernetes' scheduler compares them.
pub fn is_tolerated(tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|it| {
        let text = |text: &'_ Option<String>| text.clone().unwrap_or_default();
        let (key, effect) = (text(&it.key), text(&it.effect));
        let has_value = match text(&it.operator).as_str() {
            "Exists" => true,
            "" | "Equal" => !key.is_empty() && it.value.as_deref() == Some("true"),
            // `Lt` and `Gt` compare numbers.
            _ => false,
        };

        has_value
            && (key.is_empty() || key == NOT_ALLOWED)
            && (effect.is_empty() || effect == "NoExecute")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn a_toleration_is_compared_by_key_effect_operator_and_value() {
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"operator": "Exists", "effect": "NoExecute"}), true),
            (json!({"operator": "Exists", "effect": "NoSchedule"}), false),
            (json!({"key": NOT_ALLOWED, "operator": "Exists"}), true),
            (json!({"key": NOT_ALLOWED, "value": "true"}), true),
            (
                json!({"key": NOT_ALLOWED, "operator": "Equal", "value": "true", "effect": "NoExecute"}),
                true,
            ),
            (json!({"key": NOT_ALLOWED, "value": "false"}), false),
            (json!({"key": NOT_ALLOWED}), false),
            (
                json!({"key": NOT_ALLOWED, "operator": "Gt", "value": "0"}),
                false,
            ),
            (json!({"key": "other", "operator": "Exists"}), false),
            (json!({}), false),
        ] {
            let toleration: Toleration = from_value(toleration).unwrap();
            assert_eq!(
                is_tolerated(std::slice::from_ref(&toleration)),
                expected,
                "{toleration:?}"
            );
        }
        assert!(!is_tolerated(&[]));
    }
}
