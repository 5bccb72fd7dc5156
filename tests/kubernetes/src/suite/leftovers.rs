//! Detects objects that tests leave in the shared clusters, or remove without restoring them.

use crate::cluster::{self, Cluster};
use crate::wait::{self, Deadline};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use std::collections::BTreeSet;
use tokio::task::JoinSet;

/// Kinds of objects that affect other tests, as group, version, kind and plural. Pods, Services and
/// other namespaced objects are deleted with the namespace of their test. Kinds that the API server
/// does not serve are skipped.
const KINDS: [Kind; 16] = [
    ("", "v1", "Node", "nodes"),
    (RBAC, "v1", "ClusterRole", "clusterroles"),
    (RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings"),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    ),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices"),
    (
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "FlowSchema",
        "flowschemas",
    ),
    (
        ADMISSION,
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    ),
    (
        ADMISSION,
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    ),
    (
        ADMISSION,
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
    ),
    (
        ADMISSION,
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
    ),
    (
        "core.liqo.io",
        "v1beta1",
        "ForeignCluster",
        "foreignclusters",
    ),
    (NETWORKING, "v1beta1", "Configuration", "configurations"),
    (NETWORKING, "v1beta1", "Connection", "connections"),
    (NETWORKING, "v1beta1", "GatewayClient", "gatewayclients"),
    (NETWORKING, "v1beta1", "GatewayServer", "gatewayservers"),
    (NETWORKING, "v1beta1", "PublicKey", "publickeies"),
];

/// The prefix of the names of clusters that tests create. See
/// [`Shared::NAMES`](super::Shared::NAMES).
const PREFIX: &str = "it-";

type Kind = (&'static str, &'static str, &'static str, &'static str);

const ADMISSION: &str = "admissionregistration.k8s.io";
const NETWORKING: &str = "networking.liqo.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The state of the clusters before tests, which is compared with the state after the tests. Tests
/// that run at the same time are checked together, since an object does not show which of them
/// created it.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    running: usize,
    /// The tests that have run since `before` was observed.
    tests: Vec<String>,
    before: State,
    /// The state before the first test. Only the objects of this state must be restored. Objects
    /// that an earlier test has left may disappear at any time.
    fixture: Option<State>,
}

impl Leftovers {
    /// Registers the start of a test.
    ///
    /// # Errors
    ///
    /// Returns an error if an API server cannot be read.
    pub(super) async fn begin(&mut self, test: &str, clusters: &[Cluster]) -> Result<()> {
        if self.running == 0 {
            let observed =
                wait::until(Deadline::after(wait::SOON), "all API servers", async || {
                    State::observe(clusters).await
                });
            self.before = observed.await?;
            self.fixture.get_or_insert_with(|| self.before.clone());
            self.tests.clear();
        }
        self.running += 1;
        self.tests.push(test.to_owned());

        Ok(())
    }

    /// Registers the end of a test. If no other test runs, waits until the clusters are in the
    /// state before the tests.
    ///
    /// # Errors
    ///
    /// Returns an error that names the tests, the objects that are left, and the objects that are
    /// not restored.
    pub(super) async fn end(&mut self, clusters: &[Cluster]) -> Result<()> {
        self.running -= 1;
        if self.running > 0 {
            return Ok(());
        }

        let what = format!(
            "{} to leave the clusters as they were",
            self.tests.join(" or ")
        );
        wait::until(Deadline::after(wait::SOON), &what, async || {
            let fixture = self.fixture.as_ref().unwrap_or(&self.before);
            let after = State::observe(clusters).await?;
            after.ensure_as_before(&self.before, fixture)
        })
        .await
    }
}

/// The clusters that tests have created, and the objects of the shared clusters, as lines of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State(BTreeSet<String>);

impl State {
    async fn observe(clusters: &[Cluster]) -> Result<Self> {
        let mut lines: BTreeSet<_> = cluster::names()?
            .into_iter()
            .filter(|name| name.starts_with(PREFIX))
            .map(|name| format!("cluster {name}"))
            .collect();
        for cluster in clusters {
            let objects = objects(&cluster.client().await?).await;
            let objects =
                objects.with_context(|| format!("failed to list objects of {}", cluster.name()))?;
            lines.extend(
                objects
                    .into_iter()
                    .map(|it| format!("{it} of {}", cluster.name())),
            );
        }

        Ok(Self(lines))
    }

    fn ensure_as_before(&self, before: &Self, fixture: &Self) -> Result<()> {
        let left: Vec<_> = self.0.difference(&before.0).collect();
        let missing = before.0.difference(&self.0);
        let missing: Vec<_> = missing.filter(|it| fixture.0.contains(*it)).collect();
        ensure!(left.is_empty(), "left: {left:?}; not restored: {missing:?}");
        ensure!(missing.is_empty(), "not restored: {missing:?}");

        Ok(())
    }
}

async fn objects(client: &Client) -> Result<Vec<String>> {
    // Terminating namespaces are skipped, since their removal takes seconds. The objects in them
    // are nevertheless listed if their kind is in `KINDS`.
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespaces = namespaces.list_metadata(&ListParams::default()).await?;
    let mut lines: Vec<_> = namespaces
        .iter()
        .filter(|it| it.metadata.deletion_timestamp.is_none())
        .map(|it| format!("Namespace {}", it.name_any()))
        .collect();

    let mut lists = JoinSet::new();
    for kind in KINDS {
        lists.spawn(objects_of(client.clone(), kind));
    }
    while let Some(list) = lists.join_next().await {
        lines.extend(list.context("a list has panicked")??);
    }

    Ok(lines)
}

async fn objects_of(client: Client, kind: Kind) -> Result<Vec<String>> {
    let (group, version, kind, plural) = kind;
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let list = match api.list_metadata(&ListParams::default()).await {
        Ok(list) => list,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
        Err(error) => return Err(error).context(plural),
    };
    let line = |namespace: Option<String>, name: String| match namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    };

    Ok(list
        .iter()
        .map(|it| line(it.namespace(), it.name_any()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(lines: &[&str]) -> State {
        State(lines.iter().map(|it| (*it).to_owned()).collect())
    }

    #[test]
    fn equal_states_pass_and_differences_are_named() {
        let before = state(&[
            "Namespace default of it-rome",
            "Node it-rome-worker of it-rome",
        ]);
        let after = state(&[
            "Namespace default of it-rome",
            "Namespace liqo-tenant-upstream-server of it-rome",
        ]);

        before.ensure_as_before(&before, &before).unwrap();
        let error = after.ensure_as_before(&before, &before);
        let error = error.unwrap_err().to_string();

        assert!(
            error.contains("left: [\"Namespace liqo-tenant-upstream-server"),
            "{error}"
        );
        assert!(
            error.contains("not restored: [\"Node it-rome-worker"),
            "{error}"
        );
    }

    #[test]
    fn leftovers_of_an_earlier_test_may_go_during_a_later_one() {
        let fixture = state(&["Namespace default of it-rome"]);
        let before = state(&["Namespace default of it-rome", "Namespace left of it-rome"]);

        fixture.ensure_as_before(&before, &fixture).unwrap();
    }
}
