//! A test of credentials of a cluster that are replaced while objects change.

use super::audit::writes;
use super::copies::{LABEL, VALUE};
use crate::fixture::{Deadline, Fixture, SOON, Suite, parallel, until};
use anyhow::{Context as _, Result, ensure};
use control_runtime::{
    Cache, Change, Cluster, ClusterChange, Controller, Destinations, Env, Key, Metrics, Plan, Ref,
    Registration, RemoteConfig, Replicas, Resource, Runtime, Scope, Selector, Settings,
    WatchChange, WatchId, transport,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use kubernetes_lab::control_plane::AuditEvent;
use kubernetes_lab::pki::Subject;
use serde_json::json;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::interval;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(suite, replaced_credentials_cause_no_list_and_lose_no_change);
}

const NAMESPACE: &str = "runtime-credentials";

/// Name of the Secret with the kubeconfig of the remote cluster.
const KUBECONFIG: &str = "kubeconfig";

/// Start of the names of the users in the kubeconfigs.
const USER: &str = "runtime-credentials-";

/// How often the credentials are replaced.
const REPLACEMENTS: usize = 100;

/// Interval of the changes meanwhile.
const CHANGE_INTERVAL: Duration = Duration::from_millis(10);

/// Copies ConfigMaps of a remote cluster to ServiceAccounts of the local one.
struct RemoteCopies;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Credentials,
    /// A ConfigMap of this name.
    Copy(String),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials => f.write_str("credentials"),
            Self::Copy(name) => f.write_str(name),
        }
    }
}

fn remote() -> Cluster {
    Cluster::remote("remote")
}

impl Controller for RemoteCopies {
    type Item = Item;
    const NAME: &'static str = "remote-copies";
    const FIELD_MANAGER: &'static str = "remote-copies";

    fn resources(&self) -> Vec<Registration> {
        let scope = Scope::Namespace(NAMESPACE.to_owned());
        let secrets = Registration::of(scope.clone(), |it: Secret| it);
        let accounts = Registration::of(scope, |it: ServiceAccount| it);
        let inputs = Registration::of(Scope::Planned, |it: ConfigMap| it);
        vec![secrets.name(KUBECONFIG), accounts, inputs]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<Item> {
        match change.object.resource == Resource::of::<Secret>() {
            true => vec![Item::Credentials],
            false => vec![Item::Copy(change.object.key.name.clone())],
        }
    }

    fn plan(&mut self, item: &Item, cache: &Cache, _: &mut Env<'_>) -> Plan<Item> {
        match item {
            Item::Credentials => connect(cache),
            Item::Copy(name) => copy(&Key::new(NAMESPACE, name), cache),
        }
    }
}

/// Plans the use of the kubeconfig, and the watch of the remote ConfigMaps.
fn connect(cache: &Cache) -> Plan<Item> {
    let secret = cache.local::<Secret>(&Key::new(NAMESPACE, KUBECONFIG));
    let data = secret.and_then(|secret| secret.data.as_ref()?.get(KUBECONFIG));
    let text = data.map(|data| String::from_utf8_lossy(&data.0).into_owned());
    // A kubeconfig without files and programs is parsed without waiting.
    let parsed = text.and_then(|text| RemoteConfig::parse(&text, Destinations::Any).ok());
    let Some(config) = parsed else {
        return Plan::default();
    };
    let watch = WatchId {
        cluster: remote(),
        resource: Resource::of::<ConfigMap>(),
        namespace: Some(NAMESPACE.to_owned()),
        selector: Selector {
            labels: LABEL.to_owned(),
            ..Selector::default()
        },
    };

    Plan {
        clusters: vec![ClusterChange::Set(remote(), Box::new(config))],
        watches: vec![WatchChange::Add(watch)],
        ..Plan::default()
    }
}

/// Plans the copy of a remote ConfigMap.
fn copy(key: &Key, cache: &Cache) -> Plan<Item> {
    let mut plan = Plan::default();
    let is_copied = cache.local::<ServiceAccount>(key).is_some();
    if !is_copied && cache.objects::<ConfigMap>(&remote()).get(key).is_some() {
        let object = Ref::of::<ServiceAccount>(&Cluster::Local, key);
        let fields = json!({"metadata": {"annotations": {VALUE: "1"}}});
        plan.apply(object, fields);
    }

    plan
}

async fn replaced_credentials_cause_no_list_and_lose_no_change(
    fixture: &'static Fixture,
) -> Result<()> {
    let client = fixture.namespace(NAMESPACE).await?;
    let begin = fixture.control_plane.audit_log().end()?;
    let runtime = runtime(fixture).await?;
    let (stop, stopped) = oneshot::channel::<()>();

    let test = async {
        let changed = replace_under_changes(fixture, &client).await?;
        until(Deadline::after(SOON), "all copies", async || {
            let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
            let copied = names(&accounts).await?;
            let missing: Vec<_> = changed.difference(&copied).collect();
            ensure!(missing.is_empty(), "{} missing: {missing:?}", missing.len());
            Ok(())
        })
        .await?;
        drop(stop);
        anyhow::Ok(changed)
    };
    let stopped = async { drop(stopped.await) };
    let ((), changed) = tokio::join!(runtime.run(stopped), test);
    let changed = changed?;

    let events = fixture.control_plane.audit_log().since(begin)?;
    let lists = events.iter().filter(|it| is_list(it)).count();
    ensure!(lists == 1, "{lists} lists");
    let accounts = writes(&events, "RequestReceived").filter(|it| is_of(it, "serviceaccounts"));
    let accounts: Vec<_> = accounts
        .filter(|it| it.user.username == local_user())
        .collect();
    ensure!(
        accounts.len() == changed.len(),
        "{} writes of {} copies",
        accounts.len(),
        changed.len()
    );
    eprintln!(
        "{REPLACEMENTS} replacements of credentials during {} changes",
        changed.len()
    );
    Ok(())
}

fn local_user() -> String {
    format!("{USER}local")
}

async fn runtime(fixture: &Fixture) -> Result<Runtime> {
    let text = kubeconfig(fixture, &local_user())?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(Kubeconfig::from_yaml(&text)?, &options).await?;
    let settings = Settings {
        name: "remote-copies",
        identity: local_user(),
        random: || [0; 32],
    };
    let mut runtime = Runtime::new(transport::client(&config)?, settings, Metrics::default());
    runtime.add(RemoteCopies, &Replicas::Active)?;

    Ok(runtime)
}

/// Returns a kubeconfig with a new certificate of a user.
fn kubeconfig(fixture: &Fixture, user: &str) -> Result<String> {
    let group = Some("system:masters");
    let server = fixture.control_plane.server();
    let path = fixture
        .control_plane
        .kubeconfig_as(Subject { user, group }, server)?;

    fs::read_to_string(path).context("failed to read a kubeconfig")
}

/// Replaces the credentials, each time after the watch uses those before, while ConfigMaps are
/// created. Returns the names of the ConfigMaps.
async fn replace_under_changes(fixture: &Fixture, client: &Client) -> Result<BTreeSet<String>> {
    let is_over = Cell::new(false);
    let replace = async {
        let outcome = replace_all(fixture, client).await;
        is_over.set(true);
        outcome
    };
    let change = async {
        let mut changed = BTreeSet::new();
        let mut times = interval(CHANGE_INTERVAL);
        while !is_over.get() {
            times.tick().await;
            let name = format!("change-{}", changed.len());
            create(client, &name).await?;
            changed.insert(name);
        }
        anyhow::Ok(changed)
    };
    let ((), changed) = tokio::try_join!(replace, change)?;

    Ok(changed)
}

async fn replace_all(fixture: &Fixture, client: &Client) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let log = fixture.control_plane.audit_log();
    for number in 0..=REPLACEMENTS {
        let user = format!("{USER}{number}");
        let text = kubeconfig(fixture, &user)?;
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": KUBECONFIG},
            "stringData": {KUBECONFIG: text},
        });
        let position = log.end()?;
        let params = PatchParams::apply("test").force();
        secrets
            .patch(KUBECONFIG, &params, &Patch::Apply(object))
            .await?;
        until(Deadline::after(SOON), "a watch of the user", async || {
            let events = log.since(position)?;
            let is_watch = |it: &AuditEvent| it.verb == "watch" && it.user.username == user;
            ensure!(events.iter().any(is_watch), "no watch of {user}");
            Ok(())
        })
        .await?;
    }

    Ok(())
}

async fn create(client: &Client, name: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {LABEL: ""}},
    });
    api.patch(name, &PatchParams::apply("test"), &Patch::Apply(object))
        .await?;

    Ok(())
}

async fn names<K>(api: &Api<K>) -> Result<BTreeSet<String>>
where
    K: kube::Resource + Clone + fmt::Debug + serde::de::DeserializeOwned,
{
    let list = api.list(&ListParams::default()).await?;
    Ok(list.iter().map(|it| it.name_any()).collect())
}

/// Returns whether an event is the start of a complete list of the remote ConfigMaps. Before an
/// interrupted watch is resumed, one object is listed to compare the version.
fn is_list(event: &AuditEvent) -> bool {
    let mut parameters = event.request_uri.split(['?', '&']);
    let is_complete = event.verb == "list" && !parameters.any(|it| it == "limit=1");
    let is_streamed = event.request_uri.contains("sendInitialEvents=true");

    event.stage == "RequestReceived"
        && event.user.username.starts_with(USER)
        && is_of(event, "configmaps")
        && (is_complete || is_streamed)
}

fn is_of(event: &AuditEvent, resource: &str) -> bool {
    let object = event.object_ref.as_ref();
    object.is_some_and(|object| object.resource == resource && object.namespace == NAMESPACE)
}
