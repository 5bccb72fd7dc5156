//! Selection of the watched objects of a resource.

use std::collections::BTreeMap;

/// Selects the watched objects of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    /// Label selector; empty for all objects.
    pub labels: String,
    /// Name of the only object; `None` for all objects. A role with `resourceNames` permits a list
    /// or watch with exactly this field selector.
    pub name: Option<String>,
    /// Node of pods; `None` for the pods of all nodes.
    pub node: Option<String>,
    /// Further terms of the field selector, for example `type=Warning`; empty for none. Not for resources that requests return:
    /// their objects would count as selected.
    pub terms: String,
}

impl Selector {
    /// Returns the field selector; empty for all objects.
    pub fn fields(&self) -> String {
        let name = self
            .name
            .as_ref()
            .map(|name| format!("metadata.name={name}"));
        let node = self
            .node
            .as_ref()
            .map(|node| format!("spec.nodeName={node}"));
        let further = Some(self.terms.clone()).filter(|terms| !terms.is_empty());
        let terms: Vec<_> = name.into_iter().chain(node).chain(further).collect();

        terms.join(",")
    }

    /// Returns whether the label selector matches these labels. Supports the forms `key=value`,
    /// `key==value`, `key` and `!key`; other forms match no object.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let mut terms = self.labels.split(',').filter(|term| !term.is_empty());
        terms.all(
            |term| match (term.strip_prefix('!'), term.split_once('=')) {
                (Some(key), _) => !labels.contains_key(key),
                (None, Some((key, value))) => {
                    let value = value.strip_prefix('=').unwrap_or(value);
                    labels.get(key).is_some_and(|found| found == value)
                }
                (None, None) => labels.contains_key(term),
            },
        )
    }
}
