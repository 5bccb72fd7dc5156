//! Comparison with objects that upstream wrote, for tests.

use serde_json::Value;

/// Returns an object without the fields that differ between any two clusters: UIDs, times and versions.
pub(crate) fn without_identity(mut object: Value) -> Value {
    let owners = object.pointer_mut("/metadata/ownerReferences");
    let owners = owners.and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten() {
        owner.as_object_mut().unwrap().remove("uid");
    }
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
    ] {
        metadata.remove(field);
    }
    object
}
