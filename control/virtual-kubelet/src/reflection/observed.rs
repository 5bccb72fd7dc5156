//! The generations that a status is about.
//!
//! `observedGeneration`, in the status and in its conditions, is the generation of the provider's object. Clients compare it with that
//! of this cluster's object, for example `kubectl wait` and controllers of GitOps. So it is written as the generation of this
//! cluster's object that the provider has.

use serde_json::Value;

const OBSERVED: &str = "observedGeneration";
const CONDITIONS: &str = "conditions";

/// Removes the generations of a status. Returns the highest one; `None` if there are none.
pub(super) fn take(status: &mut Value) -> Option<i64> {
    let mut highest = None;
    each(status, |fields| {
        let observed = fields.remove(OBSERVED).and_then(|it| it.as_i64());
        highest = highest.max(observed);
    });

    highest
}

/// Adds a number to the generations of a status.
pub(super) fn shift(status: &mut Value, by: i64) {
    each(status, |fields| {
        if let Some(observed) = fields.get_mut(OBSERVED)
            && let Some(number) = observed.as_i64()
        {
            *observed = number.saturating_add(by).into();
        }
    });
}

/// Calls `change` with the fields of the status, and with those of each condition.
fn each(status: &mut Value, mut change: impl FnMut(&mut serde_json::Map<String, Value>)) {
    let Some(fields) = status.as_object_mut() else {
        return;
    };
    change(fields);
    let conditions = fields.get_mut(CONDITIONS).and_then(Value::as_array_mut);
    let conditions = conditions.into_iter().flatten();
    conditions.filter_map(Value::as_object_mut).for_each(change);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn generations_of_status_and_conditions_are_removed_and_shifted_together() {
        let status = json!({
            "observedGeneration": 7,
            "ready": 3,
            "conditions": [
                {"type": "Ready", "observedGeneration": 6},
                {"type": "Old"},
                "text",
            ],
        });
        let mut taken = status.clone();
        assert_eq!(take(&mut taken), Some(7));
        let conditions = json!([{"type": "Ready"}, {"type": "Old"}, "text"]);
        assert_eq!(taken, json!({"ready": 3, "conditions": conditions}));
        assert_eq!(take(&mut taken), None);

        let mut shifted = status;
        shift(&mut shifted, -5);
        assert_eq!(shifted["observedGeneration"], 2);
        assert_eq!(shifted["conditions"][0]["observedGeneration"], 1);
        assert_eq!(shifted["ready"], 3);
    }

    #[test]
    fn a_status_of_another_shape_has_no_generations() {
        for mut status in [
            json!("ok"),
            json!({"conditions": {"a": 1}}),
            json!({"observedGeneration": "x"}),
            json!({"observedGeneration": i64::MAX}),
        ] {
            shift(&mut status, 5);
            take(&mut status);
        }
    }
}
