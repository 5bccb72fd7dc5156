//! Reads the desired state: the objects from a file or the API server, and the private keys.

use super::connections::Reporter;
use super::keys;
use crate::engine::PrivateKey;
use crate::planned::Planned;
use control_fabric::{Fabric, Peer};
use control_runtime::Runtime;
use control_source::{Keys, Metrics, Origin, Reading, Scope, Source};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The reason why the gateway cannot apply the desired state.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The source cannot be read, or its objects are invalid.
    #[error(transparent)]
    Source(#[from] control_source::Error),

    /// The cluster id has changed. The engine reads it only at the start.
    #[error(
        "{source_name}: the cluster id changed from {from} to {to}: restart the gateway to serve another cluster"
    )]
    OtherCluster {
        source_name: String,
        from: String,
        to: String,
    },

    /// A private key is missing or invalid.
    #[error(transparent)]
    Key(#[from] keys::Error),
}

/// A map whose keys are the cluster ids of peers.
type ByPeer<T> = BTreeMap<String, T>;

/// A valid desired state.
#[derive(Clone)]
pub(crate) struct Desired {
    pub(crate) planned: Planned,
    /// A line for users about each invalid or incomplete object, which the gateway ignores.
    pub(crate) unserved: Vec<String>,
    /// The reason why the gateway does not serve a peer.
    pub(crate) unserved_peers: ByPeer<String>,
    /// The watched private keys from which `planned` was derived.
    keys: Keys,
}

/// The source of the private keys.
#[derive(Clone, Debug)]
pub(crate) enum KeyStore {
    /// A directory with a subdirectory for each Secret, as in mounted Secrets.
    Directory(PathBuf),
    /// The Secret `liqo-gateway-keys` at the API server, which the source watches.
    Source,
}

/// Reads the desired state repeatedly.
pub(crate) struct Loader {
    source: Source,
    keys: KeyStore,
}

impl Loader {
    /// Creates a loader that reads the objects from `origin`, and the reporter to its API server, which
    /// is `None` if the source is a file. `replica` is the name of this replica in the EndpointSlice.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Source`] if the API server's credentials are missing.
    pub(crate) async fn open(
        origin: &Origin,
        keys: KeyStore,
        replica: &str,
        metrics: &Metrics,
    ) -> Result<(Self, Option<Reporter>), Error> {
        let mut reporter = None;
        let add = |runtime: &mut Runtime| {
            reporter = Some(Reporter::add(runtime, replica)?);
            Ok(())
        };
        let source = Source::open_with(origin, Scope::Gateway, metrics, add).await?;
        let loader = Self { source, keys };

        Ok((loader, reporter))
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the tenant namespace of each peer; `None` if the source is a file.
    pub(crate) fn tenant_namespaces(&self) -> Option<&Arc<BTreeMap<String, String>>> {
        match &self.source {
            Source::Cluster(watch) => Some(watch.tenant_namespaces()),
            Source::File(_) => None,
        }
    }

    /// Starts to watch the source; starts a thread if the source is a file.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Source`] if the file cannot be watched.
    pub(crate) fn follow(&mut self) -> Result<(), Error> {
        Ok(self.source.follow()?)
    }

    /// Ends the watches, and waits until the requests in flight have ended, for a few seconds at most.
    pub(crate) async fn stop(&mut self) {
        self.source.stop().await;
    }

    /// Completes when the objects of the source may have changed.
    pub(crate) async fn changed(&mut self) {
        self.source.changed().await;
    }

    /// Reads the desired state; returns `None` if it equals `served`, the last one.
    ///
    /// # Errors
    ///
    /// Returns [`Error`], which names object, field and remedy.
    pub(crate) fn load(&mut self, served: Option<&Desired>) -> Result<Option<Desired>, Error> {
        let Reading {
            fabric,
            refused,
            waiting,
            unserved: mut unserved_peers,
        } = self.source.read()?;
        let from = served.map(|served| &served.planned.fabric.cluster_id);
        if let Some(from) = from.filter(|id| **id != fabric.cluster_id) {
            return Err(Error::OtherCluster {
                source_name: self.source.to_string(),
                from: from.clone(),
                to: fabric.cluster_id,
            });
        }
        let (planned, keys) = self.plan(served, fabric)?;
        let waiting = waiting.iter().map(ToString::to_string);
        let mut unserved: Vec<_> = refused.into_iter().chain(waiting).collect();
        if let (KeyStore::Source, Source::Cluster(_)) = (&self.keys, &self.source) {
            let missing = planned.keyless.iter();
            let missing: ByPeer<_> = missing
                .map(|id| (id.clone(), missing_key(id, keys.get(id))))
                .collect();
            unserved.extend(missing.values().cloned());
            unserved_peers.extend(missing);
        }
        let desired = Desired {
            planned,
            unserved,
            unserved_peers,
            keys,
        };

        Ok(Some(desired).filter(|desired| served.is_none_or(|it| !desired.equals(it))))
    }

    /// Checks that the process can still read source and keys after it has dropped
    /// `CAP_DAC_OVERRIDE`.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] with the path of the first unreadable file.
    pub(crate) fn check_readable(&mut self, served: &Desired) -> Result<(), Error> {
        self.source.read()?;
        if let KeyStore::Directory(directory) = &self.keys {
            keys::read(directory, key_secrets(&served.planned.fabric))?;
        }

        Ok(())
    }

    /// Plans the state for `fabric` with the local private key for each peer.
    ///
    /// A missing file is an error. A key that is missing in the Secret at the API server is no
    /// error, because the controller manager may still write the key.
    fn plan(
        &self,
        served: Option<&Desired>,
        fabric: Fabric,
    ) -> Result<(Planned, Keys), keys::Error> {
        let mut watched = Keys::default();
        let planned = match (&self.keys, &self.source) {
            (KeyStore::Source, Source::Cluster(watch)) => {
                watched = watch.keys();
                let are_changed = served.is_some_and(|served| !served.keys.is_same(&watched));
                let key = |peer: &Peer| PrivateKey::from_slice(watched.get(&peer.cluster_id)?);
                plan(served, fabric, are_changed, key)
            }
            (KeyStore::Source, Source::File(_)) => plan(served, fabric, false, |_| None),
            (KeyStore::Directory(directory), _) => {
                let keys = keys::read(directory, key_secrets(&fabric))?;
                plan(served, fabric, true, |peer| {
                    keys.get(&peer.key_secret).cloned()
                })
            }
        };

        Ok((planned, watched))
    }
}

fn plan(
    served: Option<&Desired>,
    fabric: Fabric,
    are_keys_changed: bool,
    key: impl Fn(&Peer) -> Option<PrivateKey>,
) -> Planned {
    match served {
        Some(served) => served.planned.update(fabric, are_keys_changed, key),
        None => Planned::new(fabric, key),
    }
}

impl Desired {
    fn equals(&self, other: &Self) -> bool {
        self.planned.changes_since(&other.planned).is_empty()
            && self.unserved == other.unserved
            && self.unserved_peers == other.unserved_peers
    }
}

fn missing_key(cluster_id: &str, found: Option<&[u8]>) -> String {
    match found {
        None => format!(
            "peer {cluster_id} waits for its private key, which Liqo's controller manager writes to the Secret liqo-gateway-keys"
        ),
        Some(key) => format!(
            "peer {cluster_id}: its private key has {} bytes, but a WireGuard key has {}: correct the Secret that its GatewayServer or GatewayClient names",
            key.len(),
            PrivateKey::LEN
        ),
    }
}

/// Returns the name of each Secret in `fabric`, with the GatewayServer or GatewayClient that refers
/// to it.
pub(crate) fn key_secrets(fabric: &Fabric) -> impl Iterator<Item = (&str, &str)> {
    fabric
        .peers
        .iter()
        .map(|peer| (peer.key_secret.as_str(), peer.gateway_name.as_str()))
}

#[cfg(test)]
impl Loader {
    pub(super) fn of_files(file: &std::path::Path, keys: &std::path::Path) -> Self {
        Self {
            source: Source::File(control_source::file::File::new(file)),
            keys: KeyStore::Directory(keys.to_owned()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
