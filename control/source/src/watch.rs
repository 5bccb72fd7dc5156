//! Follows the API server.

use crate::blocks;
use crate::select::{self, Updates};
use crate::store::{Store, Update};
use control_api::fabric::{Admission, Steady};
use futures_util::stream::{SelectAll, StreamExt as _};
use kube::runtime::watcher;
use kube::{Client, Config};
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

/// A watch of all that makes a fabric.
///
/// It makes progress only while [`Watch::changed`] is polled.
pub struct Watch {
    client: Client,
    namespace: String,
    updates: SelectAll<Numbered>,
    store: Store,
    steady: Steady,
    /// A change that was noticed and is yet to rest: when it began, and when it may be
    /// looked at. Outlives a dropped wait.
    unrest: Option<(Instant, Instant)>,
    failing: bool,
}

/// The updates of a kind, with its number.
type Numbered = futures_util::stream::BoxStream<'static, (usize, Told)>;
type Told = Result<Update, watcher::Error>;

impl Watch {
    /// Starts to watch what the Liqo of `namespace` is configured to do, with the
    /// credentials of this pod, or those of `KUBECONFIG`.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if there are no credentials. An API server that does not answer
    /// is no error: it is asked again and again.
    pub async fn start(namespace: &str, scope: Scope) -> Result<Self, Error> {
        let config = Config::infer()
            .await
            .map_err(|error| Error::Config(kube::Error::InferConfig(error)))?;
        let client = Client::try_from(config).map_err(Error::Client)?;

        Ok(Self::with(client, namespace, scope))
    }

    /// Starts to watch by `client`.
    pub fn with(client: Client, namespace: &str, scope: Scope) -> Self {
        let mut updates = select::fabric(&client, namespace);
        if scope == Scope::Gateway {
            updates.extend(select::gateway(&client, namespace));
        }
        let store = Store::new(updates.len());
        updates.extend(blocks::watches(&client));
        let numbered = updates.into_iter().enumerate().map(number);

        Self {
            client,
            namespace: namespace.to_owned(),
            updates: numbered.collect(),
            store,
            steady: Steady::default(),
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
        self.steady.admit(self.store.objects())
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
        &self.namespace
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
