//! Changes of objects, as values.

use crate::kind::{Key, Kind};
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
    /// Makes it, unless one of this name is there.
    Create(Value),
    /// Makes it so, by server-side apply.
    Apply(Value),
    /// Changes fields, by a merge patch.
    Merge(Value),
    /// Sets its status, by server-side apply.
    Status(Value),
    /// Removes fields of its status, whichever field manager has set them, by a merge patch.
    PruneStatus(Value),
    /// Removes it, if it has this uid still.
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

    /// Creates the change of a status from `old` to `new`, if they differ.
    ///
    /// An Apply removes no field that another field manager has set too, so fields are removed by a
    /// merge patch once all others are right. A forged status is corrected in this way.
    pub(crate) fn status<S: Serialize>(
        kind: Kind,
        key: &Key,
        old: Option<&S>,
        new: &S,
    ) -> Option<Self> {
        let value = |status: &S| serde_json::to_value(status).unwrap_or_default();
        let old = old.map_or_else(|| json!({}), value);
        let new = value(new);
        let patch = difference(&old, &new)?;
        let action = if removes_only(&patch) {
            Action::PruneStatus(json!({"status": patch}))
        } else {
            Action::Status(json!({"status": new}))
        };

        Some(Self::new(kind, key, action))
    }
}

/// Returns the merge patch (RFC 7386) that makes `new` of `old`, if they differ.
///
/// Nulls within `new` cannot be told from absent fields.
pub(crate) fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new_fields)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (field, value) in new_fields {
        let change = match old.get(field) {
            Some(old) => difference(old, value),
            None => Some(value.clone()),
        };
        patch.extend(change.map(|change| (field.clone(), change)));
    }
    let gone = old.keys().filter(|field| !new_fields.contains_key(*field));
    patch.extend(gone.map(|field| (field.clone(), Value::Null)));

    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Returns whether a merge patch sets no field.
fn removes_only(patch: &Value) -> bool {
    match patch {
        Value::Object(fields) => fields.values().all(removes_only),
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    }
}

/// Returns whether every field of `wanted` is in `actual`, with its value; lists are compared item by item.
pub(crate) fn covers(actual: &Value, wanted: &Value) -> bool {
    match (actual, wanted) {
        (Value::Object(actual), Value::Object(wanted)) => wanted.iter().all(|(field, wanted)| {
            let found = actual.get(field);
            found.is_some_and(|found| covers(found, wanted)) || is_empty(wanted) && found.is_none()
        }),
        (Value::Array(actual), Value::Array(wanted)) => {
            let mut pairs = actual.iter().zip(wanted);
            actual.len() == wanted.len() && pairs.all(|(actual, wanted)| covers(actual, wanted))
        }
        _ => actual == wanted,
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
        let applied = json!({"status": {"ip": "10.0.0.1"}});
        assert_eq!(other.unwrap().action, Action::Status(applied));
        let pruned = json!({"status": {"cidr": null}});
        assert_eq!(none.unwrap().action, Action::PruneStatus(pruned));
    }

    #[test]
    fn what_others_added_is_covered_and_what_they_changed_is_not() {
        let wanted = json!({"spec": {"ports": [{"port": 1}], "type": "NodePort", "none": {}}});
        let added =
            json!({"spec": {"ports": [{"port": 1, "nodePort": 2}], "type": "NodePort", "x": 1}});
        let longer = json!({"spec": {"ports": [{"port": 1}, {"port": 2}], "type": "NodePort"}});
        let other = json!({"spec": {"ports": [{"port": 1}], "type": "ClusterIP"}});

        assert!(covers(&added, &wanted));
        assert!(!covers(&longer, &wanted));
        assert!(!covers(&other, &wanted));
    }

    proptest! {
        #[test]
        fn a_difference_makes_the_new_of_the_old(old in value(), new in value()) {
            let patched = difference(&old, &new).map_or(old.clone(), |patch| merged(old, patch));

            prop_assert_eq!(patched, new);
        }

        #[test]
        fn a_value_covers_itself_and_differs_not(value in value()) {
            prop_assert!(covers(&value, &value));
            prop_assert_eq!(difference(&value, &value), None);
        }
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
