//! Changes of objects, as values.

use crate::network::kind::{Key, Kind};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    pub(crate) action: Action,
}

/// How an object is changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Creates the object, unless one with this name exists.
    Create(Value),
    /// Creates or changes the object by server-side apply.
    Apply(Value),
    /// Changes fields by a merge patch.
    Merge(Value),
    /// Sets the status by server-side apply.
    Status(Value),
    /// Removes fields of the status by a merge patch, regardless of their field manager.
    PruneStatus(Value),
    /// Deletes the object if it has this UID.
    Delete(Option<String>),
}

impl Write {
    /// Creates a change.
    pub(crate) fn new(kind: Kind, key: &Key, action: Action) -> Self {
        Self {
            kind,
            key: key.clone(),
            action,
        }
    }

    /// Returns whether the API server must refuse the write if the object has changed since the plan, because another
    /// leader may have decided meanwhile. Creations fail if the name exists, and deletions name the UID instead.
    ///
    /// The keys of gateways are an exception: the items of all peers write to one Secret, each to a separate key.
    pub(crate) fn is_guarded(&self) -> bool {
        match self.action {
            Action::Create(_) | Action::Delete(_) => false,
            Action::Apply(_) | Action::Merge(_) | Action::Status(_) | Action::PruneStatus(_) => {
                self.kind != Kind::GatewayKeys
            }
        }
    }

    /// Creates the change of a status from `old` to `new`, if they differ.
    ///
    /// Fields and conditions are removed first, by a merge patch, and the others are applied once that
    /// has succeeded. An Apply alone would leave the parts of a field or condition that another field manager
    /// owns too, which can be invalid without the rest. This also corrects a forged status.
    pub(crate) fn status<S: Serialize>(
        kind: Kind,
        key: &Key,
        old: Option<&S>,
        new: &S,
    ) -> Option<Self> {
        let value = |status: &S| serde_json::to_value(status).unwrap_or_default();
        let old = old.map_or_else(|| json!({}), value);
        let new = value(new);
        if old == new {
            return None;
        }
        let action = match removals(&old, &new) {
            Some(patch) => Action::PruneStatus(json!({"status": patch})),
            None => Action::Status(json!({"status": new})),
        };

        Some(Self::new(kind, key, action))
    }
}

/// Returns the merge patch that removes the fields and conditions of `old` that `new` lacks, if any.
pub(crate) fn removals(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let patches = old.iter().filter_map(|(field, old)| {
                let patch = match new.get(field) {
                    Some(new) => removals(old, new)?,
                    None => Value::Null,
                };
                Some((field.clone(), patch))
            });
            let patch: Map<_, _> = patches.collect();
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (Value::Array(old), Value::Array(new)) => {
            // Other lists are replaced as a whole.
            let is_kept = |item: &&Value| {
                item["type"].is_null() || new.iter().any(|new| new["type"] == item["type"])
            };
            let kept: Vec<_> = old.iter().filter(is_kept).cloned().collect();
            (kept.len() < old.len()).then_some(Value::Array(kept))
        }
        _ => None,
    }
}

/// Returns whether `actual` has every field of `desired` with its value. Lists are compared item by item.
pub(crate) fn covers(actual: &Value, desired: &Value) -> bool {
    match (actual, desired) {
        (Value::Object(actual), Value::Object(desired)) => {
            desired.iter().all(|(field, desired)| {
                let found = actual.get(field);
                found.is_some_and(|found| covers(found, desired))
                    || is_empty(desired) && found.is_none()
            })
        }
        (Value::Array(actual), Value::Array(desired)) => {
            let mut pairs = actual.iter().zip(desired);
            actual.len() == desired.len() && pairs.all(|(actual, desired)| covers(actual, desired))
        }
        _ => actual == desired,
    }
}

/// The API server drops empty maps and lists.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_apiserver::merged;
    use proptest::prelude::*;

    #[test]
    fn a_status_that_is_equal_is_not_written() {
        let key = Key::new("liqo", "x");
        let old = json!({"cidr": "10.0.0.0/8"});

        let status = |new: &Value| Write::status(Kind::Network, &key, Some(&old), new);
        let same = status(&old);
        let other = status(&json!({"ip": "10.0.0.1"}));
        let none = status(&json!({}));

        assert_eq!(same, None);
        let pruned = json!({"status": {"cidr": null}});
        assert_eq!(other.unwrap().action, Action::PruneStatus(pruned.clone()));
        assert_eq!(none.unwrap().action, Action::PruneStatus(pruned));
    }

    #[test]
    fn conditions_are_removed_before_others_are_applied() {
        let old = json!({"conditions": [{"type": "A"}, {"type": "B"}], "list": ["x", "y"]});
        let new = json!({"conditions": [{"type": "B", "reason": "C"}], "list": ["x"]});
        let key = Key::new("liqo", "x");
        let action = |old: &Value| {
            let write = Write::status(Kind::Network, &key, Some(old), &new);
            write.unwrap().action
        };

        let pruned = json!({"status": {"conditions": [{"type": "B"}]}});
        let applied = Action::Status(json!({"status": new}));
        assert_eq!(
            action(&merged(old, json!({"list": ["x"]}))),
            Action::PruneStatus(pruned)
        );
        assert_eq!(
            action(&json!({"conditions": [{"type": "B"}], "list": ["x"]})),
            applied
        );
    }

    #[test]
    fn fields_of_others_are_covered_and_changed_fields_are_not() {
        let desired = json!({"spec": {"ports": [{"port": 1}], "type": "NodePort", "none": {}}});
        let added =
            json!({"spec": {"ports": [{"port": 1, "nodePort": 2}], "type": "NodePort", "x": 1}});
        let longer = json!({"spec": {"ports": [{"port": 1}, {"port": 2}], "type": "NodePort"}});
        let other = json!({"spec": {"ports": [{"port": 1}], "type": "ClusterIP"}});

        assert!(covers(&added, &desired));
        assert!(!covers(&longer, &desired));
        assert!(!covers(&other, &desired));
    }

    proptest! {
        /// The removals, followed by an Apply, which adds and replaces fields, change the old status to the new one.
        #[test]
        fn removals_and_an_apply_change_the_old_status_to_the_new_one(old in object(), new in object()) {
            let pruned = match removals(&old, &new) {
                Some(patch) => merged(old, patch),
                None => old,
            };

            prop_assert_eq!(removals(&pruned, &new), None);
            prop_assert_eq!(merged(pruned, new.clone()), new);
        }

        #[test]
        fn a_value_covers_itself(value in value()) {
            prop_assert!(covers(&value, &value));
        }
    }

    fn object() -> impl Strategy<Value = Value> {
        let fields = prop::collection::btree_map("[a-d]", value(), 0..4);
        fields.prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i8>().prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }
}
