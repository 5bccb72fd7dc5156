//! Required node affinity: lists of terms, of which a node must match one.
//!
//! Terms are kept as they are written, so that fields of later versions of Kubernetes survive.

use crate::labels;
use serde_json::{Value, json};

/// Path of the terms in a pod's spec.
pub const TERMS: [&str; 4] = [
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
];

/// The lists of a term, all of whose entries a node must match.
pub const LISTS: [&str; 2] = ["matchExpressions", "matchFields"];

/// Returns the terms in the spec of a pod; `None` if it has no required node affinity.
pub fn terms(spec: &Value) -> Option<&Vec<Value>> {
    TERMS
        .iter()
        .try_fold(spec, |value, name| value.get(name))?
        .as_array()
}

/// Returns an expression about the label of virtual nodes.
pub fn of_virtual_nodes(operator: &str) -> Value {
    let mut expression = json!({"key": labels::NODE_TYPE, "operator": operator});
    if operator != "DoesNotExist" {
        expression["values"] = json!([labels::NODE_TYPE_VIRTUAL]);
    }
    expression
}

/// Returns a term that requires an expression besides its own ones. One without entries matches no node, and stays so.
pub fn with_expression(mut term: Value, expression: Value) -> Value {
    if is_empty(&term) || entries(&term, LISTS[0]).contains(&expression) {
        return term;
    }
    let mut expressions = entries(&term, LISTS[0]).to_vec();
    expressions.push(expression);
    term[LISTS[0]] = expressions.into();
    term
}

/// Returns whether a term has no entries, so that it matches no node.
pub fn is_empty(term: &Value) -> bool {
    LISTS.iter().all(|list| entries(term, list).is_empty())
}

/// Returns the entries of one of the [`LISTS`] of a term.
pub fn entries<'a>(term: &'a Value, list: &str) -> &'a [Value] {
    let entries = term.get(list).and_then(Value::as_array);
    entries.map_or(&[], Vec::as_slice)
}
