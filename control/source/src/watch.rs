//! Follows the API server.

use crate::blocks;
use crate::registrations::{self, Keys, KeysSecret};
use clap::Args;
use control_api::{Connection, labels};
use control_fabric::{Admission, Objects, Steady, Tenancy};
use control_runtime::{
    self as runtime, Cache, CacheReader, Change, Cluster, Controller, Env, Plan, Registration,
    Runtime, RuntimeStatus,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Client, Config, ResourceExt as _};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// How long the objects must be quiet before they are looked at: one change of a
/// person's comes as several.
const QUIET: Duration = Duration::from_millis(20);

/// How long objects that are never quiet go unseen.
const UNREST_MAX: Duration = Duration::from_millis(200);

/// How long the API server is waited for before a person is told.
const PATIENCE: Duration = Duration::from_secs(5);

/// The API server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no address or credential of an API server.
    #[error(
        "failed to find the API server: run in a pod with a service account, or set KUBECONFIG; or give a file by --config"
    )]
    Config(#[source] kube::Error),

    /// The credentials cannot be used.
    #[error("failed to prepare a client of the API server")]
    Client(#[source] kube::Error),

    /// Two registrations contradict each other.
    #[error(transparent)]
    Registration(#[from] runtime::RegistrationError),
}

/// Who watches, and so what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A node's route agent.
    Node,
    /// A gateway, which needs private keys, too.
    Gateway,
}

/// Which objects of an API server are Liqo's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Installation {
    /// Namespace of Liqo in the cluster.
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAMESPACE",
        default_value = "liqo"
    )]
    pub namespace: String,

    /// Namespaces of the cluster that may hold the objects of any peer, besides those labelled
    /// liqo.io/tenant-namespace=true.
    #[arg(
        long,
        value_name = "NAME,...",
        env = "LIQO_TENANT_NAMESPACES",
        value_delimiter = ','
    )]
    pub tenant_namespaces: Vec<String>,
}

impl From<&str> for Installation {
    /// Creates one in `namespace`, without further namespaces for peers.
    fn from(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            tenant_namespaces: Vec::new(),
        }
    }
}

/// The controller of a process that follows objects and writes none. It reports that an object has
/// changed; the cache has the object.
struct Follower {
    registrations: Vec<Registration>,
    /// Whether everything was listed. Its receivers are notified of each change of an object.
    is_listed: watch::Sender<bool>,
}

impl Controller for Follower {
    type Item = Infallible;
    const NAME: &'static str = "follower";
    const FIELD_MANAGER: &'static str = "liqo-follower";

    fn resources(&self) -> Vec<Registration> {
        self.registrations.clone()
    }

    fn observe(&mut self, _: &Change<'_>, _: &Cache) -> Vec<Infallible> {
        self.is_listed.send_modify(|_| {});
        Vec::new()
    }

    fn started(&mut self, _: &Cache) -> Vec<Infallible> {
        self.is_listed.send_replace(true);
        Vec::new()
    }

    fn plan(&mut self, item: &Infallible, _: &Cache, _: &mut Env<'_>) -> Plan<Infallible> {
        match *item {}
    }
}

/// A watch of all that makes a fabric. It follows the API server until it is dropped.
pub struct Watch {
    client: Client,
    installation: Installation,
    cache: CacheReader,
    status: RuntimeStatus,
    /// Notified of changes; true once everything was listed.
    is_listed: watch::Receiver<bool>,
    /// The runtime.
    _task: JoinSet<()>,
    steady: Steady,
    /// The tenant namespace of each peer, by cluster ID, as it was when the objects were last read.
    tenants: BTreeMap<String, String>,
    /// A change that was noticed and is yet to rest: when it began, and when it may be
    /// looked at. Outlives a dropped wait.
    unrest: Option<(Instant, Instant)>,
}

impl Watch {
    /// Starts to watch what `installation` is configured to do, with the credentials of this
    /// pod, or those of `KUBECONFIG`.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if there are no credentials. An API server that does not answer
    /// is no error: it is asked again and again.
    pub async fn start(installation: &Installation, scope: Scope) -> Result<Self, Error> {
        let config = Config::infer()
            .await
            .map_err(|error| Error::Config(kube::Error::InferConfig(error)))?;
        let client = Client::try_from(config).map_err(Error::Client)?;

        Self::with(client, installation.clone(), scope)
    }

    /// Starts to watch by `client`. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Registration`] if two registrations contradict each other.
    pub fn with(
        client: Client,
        installation: impl Into<Installation>,
        scope: Scope,
    ) -> Result<Self, Error> {
        let installation = installation.into();
        let (sender, is_listed) = watch::channel(false);
        let settings = runtime::Settings {
            name: "liqo-follower",
            identity: String::new(),
            // It creates no keys.
            random: || [0; 32],
        };
        let mut runtime = Runtime::new(client.clone(), settings, runtime::Metrics::default());
        let follower = Follower {
            registrations: registrations::registrations(&installation.namespace, scope),
            is_listed: sender,
        };
        runtime.add(follower, &runtime::Replicas::Active)?;
        let (cache, status) = (runtime.reader(), runtime.status());
        let mut task = JoinSet::new();
        task.spawn(runtime.run(std::future::pending()));

        Ok(Self {
            client,
            installation,
            cache,
            status,
            is_listed,
            _task: task,
            steady: Steady::default(),
            tenants: BTreeMap::new(),
            unrest: None,
        })
    }

    /// Waits until everything was listed once; tells in the log if that takes long.
    pub async fn wait_until_complete(&mut self) {
        let mut patience = PATIENCE;
        while timeout(patience, self.listed()).await.is_err() {
            let reason = self.status.ready().err().unwrap_or_default();
            tracing::warn!("still waiting for the API server: {reason}");
            patience = PATIENCE * 6;
        }
        self.unrest = None;
    }

    async fn listed(&mut self) {
        if self.is_listed.wait_for(|it| *it).await.is_err() {
            // The runtime does not end before this watch does.
            std::future::pending().await
        }
    }

    /// Completes when something has changed and has come to rest.
    ///
    /// It can be dropped and called again without losing a change.
    pub async fn changed(&mut self) {
        loop {
            let Some((_, rest_at)) = self.unrest else {
                self.advance().await;
                continue;
            };
            if timeout_at(rest_at, self.advance()).await.is_err() {
                self.unrest = None;
                return;
            }
        }
    }

    /// Takes the next notification.
    async fn advance(&mut self) {
        if self.is_listed.changed().await.is_err() {
            return std::future::pending().await;
        }
        let now = Instant::now();
        let began = self.unrest.map_or(now, |(began, _)| began);
        self.unrest = Some((began, (now + QUIET).min(began + UNREST_MAX)));
    }

    /// Returns what can be served now.
    pub fn admit(&mut self) -> Admission {
        let mut objects = self.objects();
        let tenancy = self.tenancy();
        self.tenants = tenancy.tenant_namespaces(&objects);
        let misplaced = tenancy.prune(&mut objects);
        let mut admission = self.steady.admit(objects);
        admission.refuse(misplaced);

        admission
    }

    /// Returns the objects of the fabric; nodes have the prefixes that their CNI tells.
    pub fn objects(&self) -> Objects {
        let cache = self.cache.read();
        let mut objects = Objects::default();
        registrations::extend(&mut objects, &cache);
        blocks::assign(&mut objects, blocks::of(&cache));

        objects
    }

    /// Returns the private keys.
    pub fn keys(&self) -> Keys {
        let cache = self.cache.read();
        let secrets = cache.objects::<KeysSecret>(&Cluster::Local);
        let keys = secrets.iter().flat_map(|(_, secret)| secret.0.clone());

        keys.collect()
    }

    /// Returns the Connections in the tenant namespaces of their peers: the status of a copy elsewhere
    /// is not written in place of theirs.
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        let cache = self.cache.read();
        let connections = cache.objects::<Connection>(&Cluster::Local).shared();
        let connections = connections.filter(|connection| {
            let peer = connection.labels().get(labels::REMOTE_CLUSTER_ID);
            let tenant = peer.and_then(|peer| self.tenants.get(peer));
            tenant.is_some() && tenant == connection.metadata.namespace.as_ref()
        });

        connections.collect()
    }

    /// Returns whether the ConfigMap exists that names the cluster.
    pub fn has_cluster_id(&self) -> bool {
        let cache = self.cache.read();
        !cache.objects::<ConfigMap>(&Cluster::Local).is_empty()
    }

    fn tenancy(&self) -> Tenancy {
        let cache = self.cache.read();
        let labelled = cache.objects::<Namespace>(&Cluster::Local);
        let labelled = labelled.iter().map(|(_, it)| it.metadata.clone());

        Tenancy {
            liqo: self.installation.namespace.clone(),
            named: self.installation.tenant_namespaces.clone(),
            labelled: labelled.collect(),
        }
    }

    /// Returns the client, for what is to be written.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns Liqo's namespace.
    pub fn namespace(&self) -> &str {
        &self.installation.namespace
    }

    /// Returns whether the API server's last answer to a watch was an error.
    pub fn is_failing(&self) -> bool {
        !self.status.failing().is_empty()
    }
}

#[cfg(test)]
mod tests;
