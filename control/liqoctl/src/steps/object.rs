//! A step that writes one object of a peer, and waits until a controller has processed it.

use super::{Lines, State, Step};
use crate::cluster::Cluster;
use crate::objects::{self, Kind};
use crate::observed::{Observed, Select};
use anyhow::{Result, bail};
use kube::ResourceExt as _;
use serde_json::Value;

/// The part of a controller in an object.
pub(crate) enum Progress<T> {
    /// It is complete.
    Done(T),
    /// It is not complete. The text names the missing part.
    Missing(String),
    /// It will never be complete. The text is the reason, with the remedy if one is known.
    Refused(String),
}

impl<T> From<Result<T, String>> for Progress<T> {
    fn from(result: Result<T, String>) -> Self {
        match result {
            Ok(output) => Self::Done(output),
            Err(missing) => Self::Missing(missing),
        }
    }
}

type Output<'a, K, T> = Box<dyn Fn(&K) -> Progress<T> + 'a>;

/// Writes an object unless an equal one exists, and waits for a result in it.
pub(crate) struct ObjectStep<'a, K: Kind, T> {
    cluster: &'a Cluster,
    lines: Lines,
    /// The object; `None` if a controller creates it.
    manifest: Option<Value>,
    /// Texts that the object must not have if the manifest lacks them: JSON pointer to the parent, and name.
    optional: Vec<(&'static str, &'static str)>,
    observed: Observed<'a, K>,
    output: Output<'a, K, T>,
}

impl<'a, K: Kind, T> ObjectStep<'a, K, T> {
    /// Returns the step that writes `manifest`, which names its namespace. An existing object that `select`
    /// selects keeps its name.
    pub(crate) fn write<P: Into<Progress<T>>>(
        cluster: &'a Cluster,
        lines: Lines,
        select: Select,
        manifest: Value,
        output: impl Fn(&K) -> P + 'a,
    ) -> Self {
        let namespace = manifest["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default();
        let observed = Observed::new(cluster, namespace, select);
        Self {
            cluster,
            lines,
            manifest: Some(cluster.with_metadata(manifest)),
            optional: Vec::new(),
            observed,
            output: Box::new(move |object| output(object).into()),
        }
    }

    /// Returns the step that waits for an object of a controller.
    pub(crate) fn wait<P: Into<Progress<T>>>(
        cluster: &'a Cluster,
        lines: Lines,
        namespace: &str,
        select: Select,
        output: impl Fn(&K) -> P + 'a,
    ) -> Self {
        Self {
            cluster,
            lines,
            manifest: None,
            optional: Vec::new(),
            observed: Observed::awaited(cluster, namespace, select),
            output: Box::new(move |object| output(object).into()),
        }
    }

    /// Has a text of an existing object emptied if the manifest lacks it: JSON pointer to the parent, and name.
    pub(crate) fn optional(mut self, parent: &'static str, name: &'static str) -> Self {
        self.optional.push((parent, name));
        self
    }

    /// Begins with the objects of a list that an earlier step has read.
    pub(crate) fn known(self, found: Vec<K>) -> Self {
        self.observed.start(found);
        self
    }

    fn manifest(&self, existing: Option<&K>) -> Option<Value> {
        let mut manifest = self.manifest.clone()?;
        if let Some(existing) = existing {
            manifest["metadata"]["name"] = existing.name_any().into();
            for field in &self.optional {
                objects::clear(existing, &mut manifest, *field);
            }
        }
        Some(manifest)
    }
}

impl<K: Kind, T> Step for ObjectStep<'_, K, T> {
    type Desired = ();
    type Output = T;

    fn lines(&self) -> Lines {
        self.lines.clone()
    }

    async fn observe(&self, (): &()) -> Result<State<T>> {
        // The name is known, so that a read is needless: an Apply without a change writes nothing.
        if self.manifest.is_some() && self.observed.is_unread_by_name() {
            return Ok(State::Pending);
        }
        let existing = self.observed.get().await?;
        let place = self.cluster.place();
        let state = match self.manifest(existing.as_ref()) {
            Some(manifest) => objects::state(existing.as_ref(), &manifest, &place),
            None => State::Ready(()),
        };
        Ok(match (state, existing) {
            (State::Ready(()), Some(object)) => match (self.output)(&object) {
                Progress::Done(output) => State::Ready(output),
                Progress::Missing(missing) => State::Waiting(format!("{missing}, in {place}")),
                Progress::Refused(reason) => bail!("{reason}"),
            },
            (State::Ready(()), None) => {
                let kind = K::kind(&());
                State::Waiting(format!("there is no {kind} yet in {place}"))
            }
            (State::Pending, _) => State::Pending,
            (State::Blocked(reason), _) => State::Blocked(reason),
            (State::Waiting(missing), _) => State::Waiting(missing),
        })
    }

    async fn apply(&self, (): &()) -> Result<()> {
        let existing = match self.observed.is_unread_by_name() {
            true => None,
            false => self.observed.get().await?,
        };
        if let Some(manifest) = self.manifest(existing.as_ref()) {
            let object = self.cluster.apply(&self.observed.api, manifest).await?;
            self.observed.set(object);
        }
        Ok(())
    }

    async fn changed(&self) {
        self.observed.changed().await;
    }
}
