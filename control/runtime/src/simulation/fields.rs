//! Which manager owns which fields of an object.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Path of a field. Lists are fields as a whole, so they have one owner.
pub(super) type Path = Vec<String>;

/// Manager, and subresource that it writes.
pub(super) type Manager = (String, Option<&'static str>);

/// Fields of metadata that the server sets or that identify the object.
const UNOWNED: [&str; 8] = [
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
];

/// Owners of the fields of one object.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    applied: BTreeMap<Manager, BTreeSet<Path>>,
}

impl Owners {
    /// Merges the fields of an Apply into an object.
    ///
    /// # Errors
    ///
    /// Returns another manager that owns a field of another value, unless `force` takes it.
    pub(super) fn apply(
        &mut self,
        object: &mut Value,
        manager: Manager,
        fields: &Value,
        force: bool,
    ) -> Result<(), String> {
        let (new, present) = (leaves(fields), leaves(object));
        let changed = |path: &Path| present.get(path) != new.get(path);
        for (other, owned) in &mut self.applied {
            let taken: Vec<_> = owned
                .iter()
                .filter(|path| new.contains_key(*path) && changed(path))
                .cloned()
                .collect();
            if *other != manager && !taken.is_empty() && !force {
                return Err(format!("{} owns {}", other.0, taken[0].join(".")));
            }
            if *other != manager {
                owned.retain(|path| !taken.contains(path));
            }
        }
        let before = self.applied.remove(&manager).unwrap_or_default();
        for path in before.iter().filter(|path| !new.contains_key(*path)) {
            if !self.applied.values().any(|owned| owned.contains(path)) {
                remove(object, path);
            }
        }
        for (path, value) in &new {
            set(object, path, value.clone());
        }
        self.applied.insert(manager, new.into_keys().collect());
        Ok(())
    }

    /// Notes that fields were changed by another operation than Apply: their former owners lose them.
    pub(super) fn update(&mut self, before: &Value, after: &Value) {
        let (before, after) = (leaves(before), leaves(after));
        for owned in self.applied.values_mut() {
            owned.retain(|path| before.get(path) == after.get(path));
        }
    }

    /// Makes a manager the owner of the fields of a new object, as if it had applied them.
    pub(super) fn own(&mut self, manager: Manager, created: Option<&Value>) {
        if let Some(created) = created {
            let owned = leaves(created).into_keys().collect();
            self.applied.insert(manager, owned);
        }
    }

    /// Returns the fields that more than one manager owns.
    pub(super) fn shared(&self) -> Vec<(Path, Vec<String>)> {
        let mut owners = BTreeMap::<_, Vec<_>>::new();
        for ((manager, _), owned) in &self.applied {
            for path in owned {
                owners.entry(path).or_default().push(manager.clone());
            }
        }
        let shared = owners.into_iter().filter(|(_, owners)| owners.len() > 1);
        shared
            .map(|(path, owners)| (path.clone(), owners))
            .collect()
    }
}

/// Returns the fields of an object that managers own.
fn leaves(object: &Value) -> BTreeMap<Path, Value> {
    let mut found = BTreeMap::new();
    collect(object, &mut Vec::new(), &mut found);
    found.retain(|path, _| match path.as_slice() {
        [first] => !matches!(first.as_str(), "apiVersion" | "kind" | "metadata"),
        [first, second, ..] => first != "metadata" || !UNOWNED.contains(&second.as_str()),
        [] => false,
    });
    found
}

fn collect(value: &Value, path: &mut Path, found: &mut BTreeMap<Path, Value>) {
    let members = value.as_object().filter(|members| !members.is_empty());
    let Some(members) = members else {
        found.insert(path.clone(), value.clone());
        return;
    };
    for (name, member) in members {
        path.push(name.clone());
        collect(member, path, found);
        path.pop();
    }
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let mut place = object;
    for name in path {
        if !place.is_object() {
            *place = Value::Object(serde_json::Map::new());
        }
        place = &mut place[name.as_str()];
    }
    // An empty object removes no fields of other managers.
    if !(place.is_object() && value.is_object()) {
        *place = value;
    }
}

/// Removes a field, and the objects around it that are empty then.
fn remove(object: &mut Value, path: &[String]) {
    let (Some((name, rest)), Some(members)) = (path.split_first(), object.as_object_mut()) else {
        return;
    };
    let is_empty = members.get_mut(name).is_some_and(|member| {
        remove(member, rest);
        rest.is_empty() || member.as_object().is_some_and(serde_json::Map::is_empty)
    });
    if is_empty {
        members.remove(name);
    }
}

/// Applies a merge patch (RFC 7386).
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    for (name, change) in patch {
        if change.is_null() {
            target.as_object_mut().and_then(|it| it.remove(name));
        } else {
            merge(&mut target[name.as_str()], change);
        }
    }
}
