//! JSON Patch (RFC 6902).

use serde_json::{Map, Value, json};

/// Changes of an object, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Patch(Vec<Value>);

impl Patch {
    /// Adds the change of a field of `object` to a value. Missing objects on the path are created.
    pub(super) fn set(&mut self, object: &Value, path: &[&str], value: Value) {
        let mut parent = object;
        for (depth, name) in path.iter().enumerate() {
            match parent.get(name).filter(|it| it.is_object()) {
                Some(child) if depth + 1 < path.len() => parent = child,
                Some(_) | None => {
                    let nested = path[depth + 1..].iter().rev();
                    let value = nested.fold(value, |value, name| {
                        Value::Object(Map::from_iter([((*name).to_owned(), value)]))
                    });
                    self.0.push(
                        json!({"op": "add", "path": pointer(&path[..=depth]), "value": value}),
                    );
                    return;
                }
            }
        }
    }

    /// Adds the removal of a field, which must exist.
    pub(super) fn remove(&mut self, path: &[&str]) {
        self.0.push(json!({"op": "remove", "path": pointer(path)}));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the operations.
    pub(super) fn into_json(self) -> Value {
        Value::Array(self.0)
    }
}

/// Returns a JSON Pointer (RFC 6901).
fn pointer(path: &[&str]) -> String {
    path.iter().fold(String::new(), |pointer, name| {
        pointer + "/" + &name.replace('~', "~0").replace('/', "~1")
    })
}
