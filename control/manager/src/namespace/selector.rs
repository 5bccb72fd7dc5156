//! Evaluation of node selectors (Kubernetes, `component-helpers/scheduling/corev1/nodeaffinity`).

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use std::collections::BTreeMap;

/// The field of a node that terms can name.
const NAME_FIELD: &str = "metadata.name";

/// A requirement that is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SelectorError {
    #[error("operator `{operator}` of key `{key}`: use In, NotIn, Exists, DoesNotExist, Gt or Lt")]
    Operator { key: String, operator: String },
    #[error("operator {operator} of key `{key}` has {found} values: {expected}")]
    Values {
        key: String,
        operator: String,
        found: usize,
        expected: &'static str,
    },
    #[error("field `{0}`: terms can select the field metadata.name only")]
    Field(String),
}

/// Returns whether a node matches a selector; without terms, every node does.
///
/// # Errors
///
/// Returns [`SelectorError`] if a requirement is invalid, whether or not other terms match.
pub(super) fn matches(
    selector: Option<&NodeSelector>,
    name: &str,
    labels: &BTreeMap<String, String>,
) -> Result<bool, SelectorError> {
    let terms = selector.map_or(&[][..], |it| &it.node_selector_terms);
    if terms.is_empty() {
        return Ok(true);
    }
    let mut is_match = false;
    for term in terms {
        is_match |= matches_term(term, name, labels)?;
    }

    Ok(is_match)
}

/// Returns whether a node meets all requirements of a term. A term without requirements matches no node.
fn matches_term(
    term: &NodeSelectorTerm,
    name: &str,
    labels: &BTreeMap<String, String>,
) -> Result<bool, SelectorError> {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let mut is_match = !expressions.is_empty() || !fields.is_empty();
    for requirement in expressions {
        let value = labels.get(&requirement.key).map(String::as_str);
        is_match &= meets(requirement, value)?;
    }
    for requirement in fields {
        if requirement.key != NAME_FIELD {
            return Err(SelectorError::Field(requirement.key.clone()));
        }
        is_match &= meets(requirement, Some(name))?;
    }

    Ok(is_match)
}

/// Returns whether the value of a key meets a requirement.
fn meets(
    requirement: &NodeSelectorRequirement,
    value: Option<&str>,
) -> Result<bool, SelectorError> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let invalid = |expected| {
        Err(SelectorError::Values {
            key: requirement.key.clone(),
            operator: requirement.operator.clone(),
            found: values.len(),
            expected,
        })
    };
    let contains = |value: &str| values.iter().any(|it| it == value);
    match (requirement.operator.as_str(), values) {
        ("In" | "NotIn", []) => invalid("one is needed at least"),
        ("In", _) => Ok(value.is_some_and(contains)),
        ("NotIn", _) => Ok(!value.is_some_and(contains)),
        ("Exists", []) => Ok(value.is_some()),
        ("DoesNotExist", []) => Ok(value.is_none()),
        ("Exists" | "DoesNotExist", _) => invalid("none is allowed"),
        ("Gt" | "Lt", [bound]) => {
            let Ok(bound) = bound.parse::<i64>() else {
                return invalid("an integer is needed");
            };
            // A label that is no integer matches neither.
            let value = value.and_then(|it| it.parse::<i64>().ok());
            let is_gt = requirement.operator == "Gt";
            Ok(value.is_some_and(|it| if is_gt { it > bound } else { it < bound }))
        }
        ("Gt" | "Lt", _) => invalid("an integer is needed"),
        (operator, _) => Err(SelectorError::Operator {
            key: requirement.key.clone(),
            operator: operator.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn evaluate(terms: Value) -> Result<bool, SelectorError> {
        let selector: NodeSelector = from_value(json!({"nodeSelectorTerms": terms})).unwrap();
        let labels = json!({"region": "south", "size": "7", "zone": "b"});
        matches(Some(&selector), "milan", &from_value(labels).unwrap())
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn an_absent_or_empty_selector_matches_every_node() {
        assert_eq!(matches(None, "milan", &BTreeMap::new()), Ok(true));
        assert_eq!(evaluate(json!([])), Ok(true));
    }

    #[test]
    fn an_empty_term_matches_no_node() {
        assert_eq!(evaluate(json!([{}])), Ok(false));
        assert_eq!(
            evaluate(json!([{}, expression("region", "Exists", &[])])),
            Ok(true)
        );
    }

    #[test]
    fn operators_compare_labels_as_kubernetes_does() {
        for (key, operator, values, expected) in [
            ("region", "In", &["north", "south"][..], true),
            ("region", "In", &["north"], false),
            ("absent", "In", &["north"], false),
            ("region", "NotIn", &["south"], false),
            ("absent", "NotIn", &["south"], true),
            ("region", "Exists", &[], true),
            ("absent", "Exists", &[], false),
            ("absent", "DoesNotExist", &[], true),
            ("size", "Gt", &["6"], true),
            ("size", "Gt", &["7"], false),
            ("size", "Lt", &["8"], true),
            ("region", "Lt", &["8"], false),
            ("absent", "Gt", &["-1"], false),
        ] {
            let result = evaluate(json!([expression(key, operator, values)]));
            assert_eq!(result, Ok(expected), "{key} {operator} {values:?}");
        }
    }

    #[test]
    fn all_requirements_of_one_term_must_be_met() {
        let both = |zone: &str| {
            json!([{"matchExpressions": [
                {"key": "region", "operator": "In", "values": ["south"]},
                {"key": "zone", "operator": "In", "values": [zone]},
            ]}])
        };
        assert_eq!(evaluate(both("b")), Ok(true));
        assert_eq!(evaluate(both("a")), Ok(false));
    }

    #[test]
    fn the_name_is_the_only_field() {
        let field = |key: &str, name: &str| json!([{"matchFields": [{"key": key, "operator": "In", "values": [name]}]}]);
        assert_eq!(evaluate(field("metadata.name", "milan")), Ok(true));
        assert_eq!(evaluate(field("metadata.name", "rome")), Ok(false));
        assert_eq!(
            evaluate(field("spec.unschedulable", "true")),
            Err(SelectorError::Field("spec.unschedulable".to_owned()))
        );
    }

    #[test]
    fn invalid_requirements_are_errors_also_beside_a_term_that_matches() {
        for (operator, values) in [
            ("In", &[][..]),
            ("NotIn", &[]),
            ("Exists", &["a"]),
            ("DoesNotExist", &["a"]),
            ("Gt", &["a"]),
            ("Lt", &["1", "2"]),
            ("in", &["a"]),
        ] {
            let terms = json!([
                expression("region", "Exists", &[]),
                expression("zone", operator, values)
            ]);
            assert!(evaluate(terms).is_err(), "{operator} {values:?}");
        }
    }
}
