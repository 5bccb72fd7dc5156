//! Merge patches (RFC 7386).

use serde_json::{Map, Value};

/// Returns the merge patch (RFC 7386) that changes `old` into `new`; `None` if they are equal.
pub fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let removed = before.keys().filter(|field| !after.contains_key(*field));
    let mut patch: Map<_, _> = removed.map(|field| (field.clone(), Value::Null)).collect();
    for (field, value) in after {
        let old = before.get(field).unwrap_or(&Value::Null);
        if let Some(change) = merge_patch(old, value) {
            patch.insert(field.clone(), change);
        }
    }

    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_apiserver::merged;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_patch_has_the_changes_and_removes_what_is_missing() {
        let old = json!({"a": 1, "b": {"c": 2, "d": [1]}, "e": {"f": 3}});
        let new = json!({"a": 1, "b": {"c": 2, "d": [2]}, "g": {}});

        let patch = merge_patch(&old, &new);

        assert_eq!(patch, Some(json!({"b": {"d": [2]}, "e": null, "g": {}})));
    }

    proptest! {
        #[test]
        fn a_patch_changes_the_old_object_into_the_new_one(old in object(), new in object()) {
            let patched = match merge_patch(&old, &new) {
                Some(patch) => merged(old, patch),
                None => old,
            };

            prop_assert_eq!(merge_patch(&patched, &new), None);
            prop_assert_eq!(patched, new);
        }
    }

    fn object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
            prop::collection::vec(0..3_u8, 0..3).prop_map(Value::from),
        ];
        let value = leaf.prop_recursive(3, 16, 4, map);
        map(value.boxed())
    }

    fn map(value: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
        let fields = prop::collection::btree_map("[a-d]", value, 0..4);
        fields.prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }
}
