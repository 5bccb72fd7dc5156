//! Reads the desired state: the objects from a file or the API server, and the private keys.

use super::connections::Reporter;
use super::keys;
use crate::engine::{PeerConfig, PrivateKey};
use crate::tables::{self, Indices};
use control_fabric::Fabric;
use control_runtime::Runtime;
use control_source::{Origin, Reading, Scope, Source};
use ebpf::Tables;
use ipnet::Ipv4Net;
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
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Desired {
    pub(crate) fabric: Fabric,
    /// The contents of the eBPF maps.
    pub(crate) tables: Tables,
    /// The peers of the engine.
    pub(crate) peers: Vec<PeerConfig>,
    /// Cluster id and index of each peer, sorted by id. The position in this list is the position
    /// of the peer's bit in the heartbeat.
    pub(crate) ranks: Vec<(String, u16)>,
    /// A line for users about each invalid or incomplete object, which the gateway ignores.
    pub(crate) unserved: Vec<String>,
    /// The reason why the gateway does not serve a peer.
    pub(crate) unserved_peers: ByPeer<String>,
}

impl Desired {
    /// Returns all destinations whose packets the gateway sends through a tunnel.
    ///
    /// These are the remapped prefixes of the remote clusters, and the local addresses of IP
    /// objects that stand for an endpoint in a remote cluster.
    pub(crate) fn tunnelled(&self) -> Vec<Ipv4Net> {
        let single = self.tables.transit.keys().copied().map(Ipv4Net::from);

        self.tables.outbound.keys().copied().chain(single).collect()
    }
}

/// The source of the private keys.
#[derive(Clone, Debug)]
pub(crate) enum KeyStore {
    /// A directory with a subdirectory for each Secret, as in mounted Secrets.
    Directory(PathBuf),
    /// The Secret `liqo-gateway-keys` at the API server, which the source watches.
    Source,
}

/// Reads the desired state repeatedly. A peer has the same index in all results.
pub(crate) struct Loader {
    source: Source,
    keys: KeyStore,
    indices: Indices,
    cluster_id: Option<String>,
    /// The last result of [`Loader::load`], unless the caller rejected it.
    accepted: Option<Desired>,
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
    ) -> Result<(Self, Option<Reporter>), Error> {
        let mut reporter = None;
        let add = |runtime: &mut Runtime| {
            reporter = Some(Reporter::add(runtime, replica)?);
            Ok(())
        };
        let source = Source::open_with(origin, Scope::Gateway, add).await?;
        let loader = Self {
            source,
            keys,
            indices: Indices::default(),
            cluster_id: None,
            accepted: None,
        };

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

    /// Completes when the objects of the source may have changed.
    pub(crate) async fn changed(&mut self) {
        self.source.changed().await;
    }

    /// Reads the desired state; returns `None` if it equals the last result.
    ///
    /// # Errors
    ///
    /// Returns [`Error`], which names object, field and remedy.
    pub(crate) fn load(&mut self) -> Result<Option<Desired>, Error> {
        let Reading {
            fabric,
            refused,
            waiting,
            unserved: mut unserved_peers,
        } = self.source.read()?;
        if let Some(from) = self
            .cluster_id
            .as_ref()
            .filter(|id| **id != fabric.cluster_id)
        {
            return Err(Error::OtherCluster {
                source_name: self.source.to_string(),
                from: from.clone(),
                to: fabric.cluster_id,
            });
        }
        let waiting = waiting.iter().map(ToString::to_string);
        let mut unserved: Vec<_> = refused.into_iter().chain(waiting).collect();
        let (keys, keyless) = self.read_keys(&fabric)?;
        unserved.extend(keyless.values().cloned());
        unserved_peers.extend(keyless);
        self.indices.assign(&fabric);
        self.cluster_id = Some(fabric.cluster_id.clone());
        let desired = Desired {
            tables: tables::tables(&fabric, &self.indices),
            peers: tables::peers(&fabric, &self.indices, &keys),
            ranks: self
                .indices
                .by_rank()
                .map(|(id, index)| (id.to_owned(), index))
                .collect(),
            fabric,
            unserved,
            unserved_peers,
        };
        let is_same = self.accepted.as_ref() == Some(&desired);
        if !is_same {
            self.accepted = Some(desired.clone());
        }

        Ok((!is_same).then_some(desired))
    }

    /// Checks that the process can still read source and keys after it has dropped
    /// `CAP_DAC_OVERRIDE`.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] with the path of the first unreadable file.
    pub(crate) fn check_readable(&mut self, served: &Desired) -> Result<(), Error> {
        self.source.read()?;
        self.read_keys(&served.fabric)?;

        Ok(())
    }

    /// Marks the last result as not applied, so that the next [`Loader::load`] returns it again.
    pub(crate) fn reject(&mut self) {
        self.accepted = None;
    }

    /// Returns the local private key for each peer, and the reason for each peer without a valid
    /// key.
    ///
    /// A missing file is an error. A key that is missing in the Secret at the API server is no
    /// error, because the controller manager may still write the key.
    fn read_keys(&self, fabric: &Fabric) -> Result<(ByPeer<PrivateKey>, ByPeer<String>), Error> {
        let mut found = BTreeMap::new();
        let mut missing = BTreeMap::new();
        match (&self.keys, &self.source) {
            (KeyStore::Source, Source::Cluster(watch)) => {
                let keys = watch.keys();
                for peer in &fabric.peers {
                    let key = keys.get(&peer.cluster_id).map(|key| key.as_slice());
                    match PrivateKey::from_slice(key.unwrap_or_default()) {
                        Some(key) => {
                            found.insert(peer.cluster_id.clone(), key);
                        }
                        None => {
                            let why = missing_key(&peer.cluster_id, key);
                            missing.insert(peer.cluster_id.clone(), why);
                        }
                    }
                }
            }
            (KeyStore::Source, Source::File(_)) => {}
            (KeyStore::Directory(directory), _) => {
                let keys = keys::read(directory, key_secrets(fabric))?;
                for peer in &fabric.peers {
                    if let Some(key) = keys.get(&peer.key_secret) {
                        found.insert(peer.cluster_id.clone(), key.clone());
                    }
                }
            }
        }

        Ok((found, missing))
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
    fn of_files(file: &std::path::Path, keys: &std::path::Path) -> Self {
        Self {
            source: Source::File(control_source::file::File::new(file)),
            keys: KeyStore::Directory(keys.to_owned()),
            indices: Indices::default(),
            cluster_id: None,
            accepted: None,
        }
    }
}

#[cfg(test)]
mod tests;
