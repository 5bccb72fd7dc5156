//! Registrations: a controller declares the watched objects of a resource, the form in which the cache keeps
//! them, their indexes, and the required permissions.

use crate::entry::{DecodeError, Entry, Kept, Source};
use control_client::object::{Cluster, Resource};
use control_client::watch::Selector;
use control_client::watch::WatchId;
use kube::api::DynamicObject;
use serde_json::Value;
use std::any::{Any, TypeId};
use std::sync::Arc;

mod fields;
mod form;

pub(crate) use fields::{check, undeclared};
pub use form::RegistrationError;
use form::Typed;
pub(crate) use form::{Form, Index, merge};

/// Where the objects of a registration are watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// In the whole local cluster.
    All,
    /// In one namespace of the local cluster.
    Namespace(String),
    /// Where a plan adds a watch, in any cluster.
    Planned,
    /// In the namespaces where a plan binds the ClusterRole of this name to the process. For writes only.
    Bound(&'static str),
}

/// A resource as one controller uses it. Create it by [`Registration::of`].
#[derive(Clone)]
pub struct Registration {
    /// Resource of the objects.
    pub resource: Resource,
    /// Where the objects are watched.
    pub scope: Scope,
    /// Which objects are watched.
    pub selector: Selector,
    /// Verbs that the controller needs besides those of its watch, for example `patch`.
    pub verbs: Vec<&'static str>,
    /// Verbs on subresources, for example `("status", "patch")`.
    pub subresource_verbs: Vec<(&'static str, &'static str)>,
    /// Where the controller needs these verbs, if not in [`scope`](Self::scope).
    pub write_scope: Option<Scope>,
    /// Names of field managers of earlier releases. Before the first Apply to an object that one of
    /// them has changed by the operation `Update`, their fields are assigned to the new manager.
    pub adopted: Vec<&'static str>,
    /// Whether that happens only if an Apply leaves some of their fields.
    pub adopts_late: bool,
    /// Subresources whose Applies take fields from other field managers, and why; an empty name stands for the
    /// object itself.
    pub force: Vec<(&'static str, &'static str)>,
    /// Fields that the controller applies; if there are any, it applies no others.
    pub fields: Vec<&'static str>,
    /// Whether the controller plans before the objects are listed, for example because the cluster
    /// may lack the resource or the right to it.
    pub is_optional: bool,
    pub(crate) form: Arc<dyn Form>,
}

impl Registration {
    /// Registers a resource whose objects are kept as `keep` returns them. `keep` clears the fields
    /// that no controller of the process reads, above all those that change often.
    ///
    /// `keep` is a function or a closure without captures: all registrations of a resource in a process
    /// use the same one, unless one of them keeps the [whole](Self::whole) objects.
    pub fn of<K, T, F>(scope: Scope, keep: F) -> Self
    where
        K: Source,
        T: Kept,
        F: Fn(K) -> T + Copy + Send + Sync + 'static,
    {
        Self::by_cluster(scope, move |object, _: &Cluster| keep(object))
    }

    /// Registers a resource of whose objects the process keeps more or less, depending on their cluster.
    /// `keep` is as for [`Registration::of`].
    pub fn by_cluster<K, T, F>(scope: Scope, keep: F) -> Self
    where
        K: Source,
        T: Kept,
        F: Fn(K, &Cluster) -> T + Copy + Send + Sync + 'static,
    {
        Self::with_form(scope, T::resource(), Typed::new(T::resource(), keep))
    }

    /// Registers a resource whose objects are kept as they are. Of several registrations of a resource,
    /// this one takes precedence.
    pub fn whole<K: Kept + Source>(scope: Scope) -> Self {
        Self::with_form(scope, K::resource(), form::whole::<K>(K::resource()))
    }

    /// Registers a resource that is known at run time only, for example by a setting. Its objects are
    /// found by [`Cache::dynamic`](crate::Cache::dynamic).
    pub fn dynamic<T, F>(scope: Scope, resource: Resource, keep: F) -> Self
    where
        T: Any + PartialEq + Send + Sync,
        F: Fn(DynamicObject) -> T + Copy + Send + Sync + 'static,
    {
        let form = Typed::new(resource.clone(), move |object, _: &Cluster| keep(object));
        Self::with_form(scope, resource, form)
    }

    fn with_form(scope: Scope, resource: Resource, form: impl Form + 'static) -> Self {
        Self {
            resource,
            scope,
            selector: Selector::default(),
            verbs: Vec::new(),
            subresource_verbs: Vec::new(),
            write_scope: None,
            adopted: Vec::new(),
            adopts_late: false,
            force: Vec::new(),
            fields: Vec::new(),
            is_optional: false,
            form: Arc::new(form),
        }
    }

    /// Adds an index: objects are found by each of the values that `values` returns. `values` is a
    /// function or a closure without captures.
    ///
    /// # Panics
    ///
    /// Panics if the registration keeps another type than `T`.
    #[must_use]
    pub fn index<T, F>(mut self, name: &'static str, values: F) -> Self
    where
        T: Any + Send + Sync,
        F: Fn(&T) -> Vec<String> + Send + Sync + 'static,
    {
        assert_eq!(
            self.form.projection().kept,
            TypeId::of::<T>(),
            "the index is of another type"
        );
        let mut indexes = self.form.indexes().to_vec();
        indexes.push(Index::new(name, values));
        self.form = self.form.with(indexes, self.form.projection().is_full);
        self
    }

    /// Restricts the watch to objects with these labels.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.selector.labels = selector.into();
        self
    }

    /// Restricts the watch to the object of this name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.selector.name = Some(name.into());
        self
    }

    /// Restricts the watch to the pods of a node.
    #[must_use]
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.selector.node = Some(node.into());
        self
    }

    /// Adds verbs that the controller needs on the resource.
    #[must_use]
    pub fn verbs(mut self, verbs: &[&'static str]) -> Self {
        self.verbs.extend(verbs);
        self
    }

    /// Adds a verb that the controller needs on a subresource.
    #[must_use]
    pub fn subresource(mut self, subresource: &'static str, verb: &'static str) -> Self {
        self.subresource_verbs.push((subresource, verb));
        self
    }

    /// Limits the verbs of writes to another scope than that of the watch.
    #[must_use]
    pub fn written_in(mut self, scope: Scope) -> Self {
        self.write_scope = Some(scope);
        self
    }

    /// Assigns the fields of an earlier release's field manager to the new one. Needs the right to patch
    /// the object itself, also for fields of a subresource.
    #[must_use]
    pub fn adopt(mut self, manager: &'static str) -> Self {
        self.adopted.push(manager);
        self
    }

    /// Does the same for the fields that an Apply leaves, for objects that the controller itself creates: most need no request but
    /// the Apply then. It must be able to take fields of other field managers.
    #[must_use]
    pub fn adopt_rest(mut self, manager: &'static str) -> Self {
        self.adopts_late = true;
        self.adopt(manager)
    }

    /// Lets Applies of a subresource, or of the object itself for an empty name, take fields from other field
    /// managers. `reason` is why those must not have them.
    #[must_use]
    pub fn force(mut self, subresource: &'static str, reason: &'static str) -> Self {
        self.force.push((subresource, reason));
        self
    }

    /// Declares the fields that the controller applies, for example `spec.ports`, `status`, or
    /// `metadata.labels[liqo.io/managed]`. Field managers that declare fields of one resource must
    /// declare different ones, and an Apply of other fields fails.
    #[must_use]
    pub fn fields(mut self, fields: &[&'static str]) -> Self {
        self.fields.extend(fields);
        self
    }

    /// Has changes and responses carry the full objects, whatever the cache keeps of them. See
    /// [`Carried`](crate::Carried).
    #[must_use]
    pub fn full_objects(mut self) -> Self {
        self.form = self.form.with(self.form.indexes().to_vec(), true);
        self
    }

    /// Lets the controller plan before the objects are listed. A server that refuses the watch is asked
    /// again every 10 minutes, or after 60 to 100 s if a plan has added the watch, and this is no failure.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// Returns whether Applies of a subresource take fields from other field managers.
    pub(crate) fn is_forced(&self, subresource: &str) -> bool {
        self.force.iter().any(|(forced, _)| *forced == subresource)
    }

    /// Returns the first field of an Apply that is not declared, for tests of controllers; `None` if there is
    /// none, or if nothing is declared.
    pub fn undeclared(&self, apply: &Value) -> Option<String> {
        undeclared(apply, &self.fields)
    }

    /// Decodes an object of this cluster as the cache keeps it, for tests of controllers.
    ///
    /// # Errors
    ///
    /// Returns [`DecodeError`] if `text` is not such an object.
    pub fn decode(&self, text: &str) -> Result<Entry, DecodeError> {
        self.form.decode(text, &Cluster::Local)
    }

    /// Returns the watch of this registration; `None` if only plans add watches.
    pub(crate) fn watch_id(&self) -> Option<WatchId> {
        let namespace = match &self.scope {
            Scope::All => None,
            Scope::Namespace(namespace) => Some(namespace.clone()),
            Scope::Planned | Scope::Bound(_) => return None,
        };
        Some(WatchId {
            cluster: Cluster::Local,
            resource: self.resource.clone(),
            namespace,
            selector: self.selector.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
