//! Objects by path, with a log of changes.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Objects by path.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    objects: BTreeMap<String, Value>,
    changes: Vec<Change>,
    version: u64,
}

/// A change that watches report.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) path: String,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub(crate) event: &'static str,
    pub(crate) object: Value,
}

impl Objects {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Value> {
        self.objects.get(path)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.objects
            .iter()
            .map(|(path, object)| (path.as_str(), object))
    }

    /// Returns the changes after a resource version.
    pub(crate) fn since(&self, version: u64) -> impl Iterator<Item = &Change> {
        self.changes
            .iter()
            .filter(move |change| change.version > version)
    }

    /// Stores an object with the metadata that a server adds, and returns it.
    pub(crate) fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let old = self.objects.get(path);
        let metadata = &mut object["metadata"];
        let uid = old.map_or_else(
            || json!(format!("uid-{}", self.version)),
            |old| old["metadata"]["uid"].clone(),
        );
        metadata["uid"] = uid;
        metadata["resourceVersion"] = json!(self.version.to_string());
        let event = if old.is_some() { "MODIFIED" } else { "ADDED" };
        self.objects.insert(path.to_owned(), object.clone());
        self.record(path, event, object.clone());

        object
    }

    /// Removes an object and returns it.
    pub(crate) fn remove(&mut self, path: &str) -> Option<Value> {
        let mut object = self.objects.remove(path)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.record(path, "DELETED", object.clone());

        Some(object)
    }

    fn record(&mut self, path: &str, event: &'static str, object: Value) {
        self.changes.push(Change {
            version: self.version,
            path: path.to_owned(),
            event,
            object,
        });
    }
}

/// Returns `target` with a merge patch (RFC 7386) applied.
pub fn merged(target: Value, patch: Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch;
    };
    let mut fields = target.as_object().cloned().unwrap_or_default();
    for (field, change) in patch {
        if change.is_null() {
            fields.remove(&field);
        } else {
            let old = fields.remove(&field).unwrap_or_default();
            fields.insert(field, merged(old, change));
        }
    }

    Value::Object(fields)
}
