//! Watches the API server, and resolves its objects.

use crate::followed::{self, Followed};
use crate::installation::Installation;
use crate::metrics::Metrics;
use crate::registrations::{self, Keys, KeysSecret, Scope};
use control_fabric::{Changes, Resolution, Resolver};
use control_runtime::{
    self as runtime, Cache, CacheReader, Change, Cluster, Controller, Env, Plan, Registration,
    RegistrationError, Runtime, RuntimeStatus, transport,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, Config};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// Time without a change after which changes are resolved, because one command changes several objects.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// Maximum time from a change to its resolution, if changes never pause.
const DEBOUNCE_MAX: Duration = Duration::from_millis(200);

/// Time without a complete list after which a warning is logged. Later warnings take six times as long.
const WARN_AFTER: Duration = Duration::from_secs(5);

/// The watch cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no address or credential of an API server.
    #[error(
        "failed to find the API server: run in a pod with a service account, or set KUBECONFIG; or give a file by --config"
    )]
    Config(#[source] kube::Error),

    /// The credentials cannot be used.
    #[error("failed to prepare a client of the API server")]
    Client(#[source] transport::ConfigError),

    /// Two registrations of a resource differ.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
}

/// The controller of a process that follows objects and writes none. It reports that an object has
/// changed; the cache has the object.
struct Follower {
    registrations: Vec<Registration>,
    /// Whether everything was listed. Its receivers are notified of each change of an object.
    is_listed: watch::Sender<bool>,
    /// The changes since the last resolution: at most one for each object.
    changes: Arc<Mutex<Changes>>,
}

impl Controller for Follower {
    type Item = Infallible;
    const NAME: &'static str = "follower";
    const FIELD_MANAGER: &'static str = "liqo-follower";

    fn resources(&self) -> Vec<Registration> {
        self.registrations.clone()
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<Infallible> {
        followed::add(&mut lock(&self.changes), change);
        self.is_listed.send_modify(|_| {});
        Vec::new()
    }

    fn started(&mut self, cache: &Cache) -> Vec<Infallible> {
        followed::add_all(&mut lock(&self.changes), cache);
        self.is_listed.send_replace(true);
        Vec::new()
    }

    fn plan(&mut self, item: &Infallible, _: &Cache, _: &mut Env<'_>) -> Plan<Infallible> {
        match *item {}
    }
}

/// Watches all resources of a fabric until it is dropped.
pub struct Watch {
    client: Client,
    installation: Installation,
    cache: CacheReader,
    status: RuntimeStatus,
    /// Notified of changes; true once everything was listed.
    is_listed: watch::Receiver<bool>,
    /// Stops the runtime.
    stop: watch::Sender<bool>,
    /// The runtime.
    runtime: JoinSet<()>,
    /// The changes since the last resolution.
    changes: Arc<Mutex<Changes>>,
    resolver: Resolver,
    /// Time of the first unresolved change, and time of the resolution. It outlives a dropped future.
    debounce: Option<(Instant, Instant)>,
}

impl Watch {
    /// Starts to watch, with the credentials of this pod or those of `KUBECONFIG`. `add` adds further
    /// controllers to the runtime.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if there are no credentials. An unreachable API server is no error: the requests are
    /// repeated.
    pub async fn start(
        installation: &Installation,
        scope: Scope,
        metrics: &Metrics,
        add: impl FnOnce(&mut Runtime) -> Result<(), RegistrationError>,
    ) -> Result<Self, Error> {
        let config = Config::infer()
            .await
            .map_err(|error| Error::Config(kube::Error::InferConfig(error)))?;

        Self::with(&config, installation.clone(), scope, metrics, add)
    }

    /// Starts to watch the API server in `config`, as [`start`](Self::start) does. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Client`] if the credentials are invalid, and [`Error::Registration`] if two
    /// registrations contradict each other.
    pub fn with(
        config: &Config,
        installation: impl Into<Installation>,
        scope: Scope,
        metrics: &Metrics,
        add: impl FnOnce(&mut Runtime) -> Result<(), RegistrationError>,
    ) -> Result<Self, Error> {
        let client = transport::client(config).map_err(Error::Client)?;
        let installation = installation.into();
        let (sender, is_listed) = watch::channel(false);
        let changes = Arc::new(Mutex::new(Changes::default()));
        let resolver = Resolver::new(&installation.namespace, &installation.tenant_namespaces);
        let settings = runtime::Settings {
            name: "liqo-follower",
            identity: String::new(),
            // It creates no keys.
            random: || [0; 32],
        };
        let mut runtime = Runtime::new(client.clone(), settings, metrics.runtime.clone());
        let follower = Follower {
            registrations: registrations::registrations(&installation.namespace, scope),
            is_listed: sender,
            changes: changes.clone(),
        };
        runtime.add(follower, &runtime::Replicas::Active)?;
        add(&mut runtime)?;
        let (cache, status) = (runtime.reader(), runtime.status());
        metrics.follow(status.clone());
        let (stop, mut stopped) = watch::channel(false);
        let mut task = JoinSet::new();
        task.spawn(runtime.run(async move {
            // An error means that this watch was dropped, which ends the task as well.
            drop(stopped.wait_for(|it| *it).await);
        }));

        Ok(Self {
            client,
            installation,
            cache,
            status,
            is_listed,
            stop,
            runtime: task,
            changes,
            resolver,
            debounce: None,
        })
    }

    /// Ends the watches, and waits until the requests in flight have ended. The runtime limits that time.
    ///
    /// Without this call, the requests in flight are cancelled when the watch is dropped.
    pub async fn stop(&mut self) {
        self.stop.send_replace(true);
        while self.runtime.join_next().await.is_some() {}
    }

    /// Waits until all resources are listed; logs a warning if that takes long.
    pub async fn wait_until_complete(&mut self) {
        let mut warn_after = WARN_AFTER;
        while timeout(warn_after, self.listed()).await.is_err() {
            let reason = self.status.ready().err().unwrap_or_default();
            tracing::warn!("still waiting for the API server: {reason}");
            warn_after = WARN_AFTER * 6;
        }
        self.debounce = None;
    }

    async fn listed(&mut self) {
        if self.is_listed.wait_for(|it| *it).await.is_err() {
            // The runtime ends with this watch only.
            std::future::pending().await
        }
    }

    /// Completes after a change, and after a pause of the changes.
    ///
    /// The future can be dropped without losing a change.
    pub async fn changed(&mut self) {
        loop {
            let Some((_, ends_at)) = self.debounce else {
                self.advance().await;
                continue;
            };
            if timeout_at(ends_at, self.advance()).await.is_err() {
                self.debounce = None;
                return;
            }
        }
    }

    /// Handles the next notification.
    async fn advance(&mut self) {
        if self.is_listed.changed().await.is_err() {
            return std::future::pending().await;
        }
        let now = Instant::now();
        let began = self.debounce.map_or(now, |(began, _)| began);
        self.debounce = Some((began, (now + DEBOUNCE).min(began + DEBOUNCE_MAX)));
    }

    /// Resolves the changes since the last call, and returns the desired state.
    pub fn resolve(&mut self) -> &Resolution {
        let changes = std::mem::take(&mut *lock(&self.changes));

        self.resolver.apply(changes)
    }

    /// Returns the private keys.
    pub fn keys(&self) -> Keys {
        let cache = self.cache.read();
        let secrets = cache.objects::<KeysSecret>(&Cluster::Local);

        Keys(secrets.shared().collect())
    }

    /// Returns the tenant namespace of each peer that has one, by cluster ID, as of the last
    /// resolution.
    pub fn tenant_namespaces(&self) -> &Arc<BTreeMap<String, String>> {
        self.resolver.tenant_namespaces()
    }

    /// Returns whether the ConfigMap exists that names the cluster.
    pub fn has_cluster_id(&self) -> bool {
        let cache = self.cache.read();
        !cache
            .objects::<Followed<ConfigMap>>(&Cluster::Local)
            .is_empty()
    }

    /// Returns the client, for writes.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns Liqo's namespace.
    pub fn namespace(&self) -> &str {
        &self.installation.namespace
    }
}

fn lock(changes: &Mutex<Changes>) -> std::sync::MutexGuard<'_, Changes> {
    changes.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
