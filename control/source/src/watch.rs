//! Follows the API server.

use crate::blocks;
use crate::select::{self, Updates};
use crate::store::{Store, Update};
use clap::Args;
use control_api::{Connection, labels};
use control_fabric::{Admission, Steady, Tenancy};
use futures_util::stream::{SelectAll, StreamExt as _};
use kube::runtime::watcher;
use kube::{Client, Config, ResourceExt as _};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

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

/// A watch of all that makes a fabric.
///
/// It makes progress only while [`Watch::changed`] is polled.
pub struct Watch {
    client: Client,
    installation: Installation,
    updates: SelectAll<Numbered>,
    store: Store,
    steady: Steady,
    /// The tenant namespace of each peer, by cluster ID, as it was when the objects were last read.
    tenants: BTreeMap<String, String>,
    /// A change that was noticed and is yet to rest: when it began, and when it may be
    /// looked at. Outlives a dropped wait.
    unrest: Option<(Instant, Instant)>,
    failing: bool,
}

/// The updates of a kind, with its number.
type Numbered = futures_util::stream::BoxStream<'static, (usize, Told)>;
type Told = Result<Update, watcher::Error>;

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

        Ok(Self::with(client, installation.clone(), scope))
    }

    /// Starts to watch by `client`.
    pub fn with(client: Client, installation: impl Into<Installation>, scope: Scope) -> Self {
        let installation = installation.into();
        let namespace = &installation.namespace;
        let mut updates = select::fabric(&client, namespace);
        if scope == Scope::Gateway {
            updates.extend(select::gateway(&client, namespace));
        }
        let store = Store::new(updates.len());
        updates.extend(blocks::watches(&client));
        let numbered = updates.into_iter().enumerate().map(number);

        Self {
            client,
            installation,
            updates: numbered.collect(),
            store,
            steady: Steady::default(),
            tenants: BTreeMap::new(),
            unrest: None,
            failing: false,
        }
    }

    /// Waits until everything was listed once; tells in the log if that takes long.
    pub async fn wait_until_complete(&mut self) {
        let mut tell_at = Instant::now() + PATIENCE;
        while !self.store.is_complete() {
            if timeout_at(tell_at, self.advance()).await.is_err() {
                tracing::warn!("still waiting for the API server");
                tell_at = Instant::now() + PATIENCE * 6;
            }
        }
        self.unrest = None;
    }

    /// Completes when something has changed and has come to rest.
    ///
    /// It can be dropped and called again without losing a change.
    pub async fn changed(&mut self) {
        loop {
            let Some((_, rest_at)) = self.unrest.filter(|_| self.store.is_complete()) else {
                self.advance().await;
                continue;
            };
            if timeout_at(rest_at, self.advance()).await.is_err() {
                self.unrest = None;
                return;
            }
        }
    }

    /// Returns what can be served now.
    pub fn admit(&mut self) -> Admission {
        let mut objects = self.store.objects();
        let tenancy = self.tenancy();
        self.tenants = tenancy.tenant_namespaces(&objects);
        let misplaced = tenancy.prune(&mut objects);
        let mut admission = self.steady.admit(objects);
        admission.refuse(misplaced);

        admission
    }

    /// Returns the Connections in the tenant namespaces of their peers: the status of a copy elsewhere
    /// is not written in place of theirs.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.store.connections().filter(|connection| {
            let peer = connection.labels().get(labels::REMOTE_CLUSTER_ID);
            let tenant = peer.and_then(|peer| self.tenants.get(peer));
            tenant.is_some() && tenant == connection.metadata.namespace.as_ref()
        })
    }

    fn tenancy(&self) -> Tenancy {
        Tenancy {
            liqo: self.installation.namespace.clone(),
            named: self.installation.tenant_namespaces.clone(),
            labelled: self.store.tenant_namespaces().cloned().collect(),
        }
    }

    /// Returns what is there.
    pub fn store(&self) -> &Store {
        &self.store
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
        self.failing
    }

    /// Takes the next update.
    async fn advance(&mut self) {
        let Some((kind, update)) = self.updates.next().await else {
            // Watches do not end; without this a broken promise would be a busy loop.
            return std::future::pending().await;
        };
        match update {
            Ok(update) => {
                // A beginning is no answer yet: each attempt has one.
                let is_answer = !matches!(update, Update::Begin);
                if is_answer && std::mem::take(&mut self.failing) {
                    tracing::info!("the API server answers again");
                }
                if self.store.apply(kind, update) {
                    let now = Instant::now();
                    let began = self.unrest.map_or(now, |(began, _)| began);
                    self.unrest = Some((began, (now + QUIET).min(began + UNREST_MAX)));
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(
                        %error,
                        "the API server cannot be watched: what it said last stays in force"
                    );
                }
            }
        }
    }
}

fn number((kind, updates): (usize, Updates)) -> Numbered {
    updates.map(move |update| (kind, update)).boxed()
}

#[cfg(test)]
mod tests;
