//! The step that deletes the NamespaceOffloading of a namespace.

use super::OFFLOADING;
use crate::cluster::Cluster;
use crate::observed::{Observed, Select};
use crate::state::State;
use crate::steps::{Lines, Step, lines};
use anyhow::{Result, bail};
use control_api::NamespaceOffloading;
use kube::ResourceExt as _;

/// Deletes the object, and waits until the controllers have removed everything that depends on it.
pub(super) struct Removal<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    /// Identifies the object: another one of the same name is not deleted.
    uid: Option<String>,
    observed: Observed<'a, NamespaceOffloading>,
}

impl<'a> Removal<'a> {
    /// Returns the removal of an object that was just read.
    pub(super) fn new(
        cluster: &'a Cluster,
        namespace: &'a str,
        existing: NamespaceOffloading,
    ) -> Self {
        let uid = existing.uid();
        let select = Select::Name(OFFLOADING.to_owned());
        let observed = Observed::new(cluster, namespace, select);
        observed.start(vec![existing]);
        Self {
            cluster,
            namespace,
            uid,
            observed,
        }
    }
}

impl Step for Removal<'_> {
    type Desired = ();
    type Output = ();

    fn lines(&self) -> Lines {
        let namespace = self.namespace;
        Lines {
            scope: "",
            apply: lines(
                &format!("Disabling namespace offloading for {namespace:?}"),
                &format!("Offloading of namespace {namespace:?} correctly disabled"),
            ),
            wait: lines(
                &format!("Waiting for unoffloading of namespace {namespace:?} to complete"),
                "Unoffloading completed successfully",
            ),
            goal: "unoffloading the namespace",
        }
    }

    async fn observe(&self, (): &()) -> Result<State<()>> {
        let Some(object) = self.observed.get().await? else {
            return Ok(State::Ready(()));
        };
        let name = format!("NamespaceOffloading {}/{OFFLOADING}", self.namespace);
        if object.uid() != self.uid {
            bail!(
                "{name} in {} was created again: end the tool or user that creates it, and run the command again",
                self.cluster.place()
            );
        }
        if object.metadata.deletion_timestamp.is_none() {
            return Ok(State::Pending);
        }
        let place = self.cluster.place();
        Ok(State::Waiting(match object.finalizers() {
            [] => format!("{name} still exists in {place}"),
            finalizers => format!(
                "{name} still exists in {place}, its finalizers {} wait for the controller-manager",
                finalizers.join(", ")
            ),
        }))
    }

    async fn apply(&self, (): &()) -> Result<()> {
        let api = &self.observed.api;
        let object = (OFFLOADING, self.uid.as_deref());
        self.cluster
            .delete_with_uid(api, "NamespaceOffloading", object)
            .await?;
        // The response may lack the object, so that its new state comes by the watch.
        self.observed.changed().await;
        Ok(())
    }

    async fn changed(&self) {
        self.observed.changed().await;
    }
}
