//! The desired state: the objects of the source, and the private keys.

use super::keys;
use crate::engine::{PeerConfig, PrivateKey};
use crate::tables::{self, Indices};
use control_api::Connection;
use control_api::fabric::Fabric;
use control_source::{Origin, Reading, Scope, Source};
use ebpf::Tables;
use ipnet::Ipv4Net;
use kube::Client;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The desired state cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The source cannot be read or holds no valid state.
    #[error(transparent)]
    Source(#[from] control_source::Error),

    /// A running gateway does not change its cluster.
    #[error(
        "{source_name}: the cluster id changed from {from} to {to}: restart the gateway to serve another cluster"
    )]
    OtherCluster {
        source_name: String,
        from: String,
        to: String,
    },

    /// A private key is missing or wrong.
    #[error(transparent)]
    Key(#[from] keys::Error),
}

/// A value for each peer, by cluster id.
type ByPeer<T> = BTreeMap<String, T>;

/// A desired state that can be served.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Desired {
    pub(crate) fabric: Fabric,
    /// For the kernel programs.
    pub(crate) tables: Tables,
    /// For the engine.
    pub(crate) peers: Vec<PeerConfig>,
    /// Cluster ids and indices, sorted by id.
    pub(crate) ranks: Vec<(String, u16)>,
    /// Objects that are not served because they are invalid or incomplete: a line for each.
    pub(crate) unserved: Vec<String>,
    /// The cluster ids of peers that are not served, and why.
    pub(crate) unserved_peers: ByPeer<String>,
}

impl Desired {
    /// Returns the destinations that lead into a tunnel: the remapped prefixes of remote clusters, and
    /// the addresses of single remote endpoints.
    pub(crate) fn tunnelled(&self) -> Vec<Ipv4Net> {
        let single = self.tables.transit.keys().copied().map(Ipv4Net::from);

        self.tables.outbound.keys().copied().chain(single).collect()
    }
}

/// The source of the private keys.
#[derive(Clone, Debug)]
pub(crate) enum KeyStore {
    /// Files, as in mounted Secrets.
    Directory(PathBuf),
    /// The Secret that the source watches.
    Source,
}

/// Reads the desired state repeatedly, with stable peer indices.
pub(crate) struct Loader {
    source: Source,
    keys: KeyStore,
    indices: Indices,
    cluster_id: Option<String>,
    /// The last result of [`Loader::load`].
    accepted: Option<Desired>,
}

impl Loader {
    /// Prepares to read from `origin`, and keys from `keys`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Source`] if the API server's credentials are missing.
    pub(crate) async fn open(origin: &Origin, keys: KeyStore) -> Result<Self, Error> {
        let source = Source::open(origin, Scope::Gateway).await?;

        Ok(Self {
            source,
            keys,
            indices: Indices::default(),
            cluster_id: None,
            accepted: None,
        })
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Returns a client of the API server; `None` with a file.
    pub(crate) fn client(&self) -> Option<Client> {
        match &self.source {
            Source::Cluster(watch) => Some(watch.client().clone()),
            Source::File(_) => None,
        }
    }

    /// Returns the watched Connections; none with a file.
    pub(crate) fn connections(&self) -> impl Iterator<Item = &Connection> {
        let watch = match &self.source {
            Source::Cluster(watch) => Some(watch),
            Source::File(_) => None,
        };
        watch.into_iter().flat_map(|it| it.connections())
    }

    /// Starts to watch for changes; with a file, in a thread.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Source`] if the file cannot be watched.
    pub(crate) fn follow(&mut self) -> Result<(), Error> {
        Ok(self.source.follow()?)
    }

    /// Completes when the desired state may have changed.
    pub(crate) async fn changed(&mut self) {
        self.source.changed().await;
    }

    /// Reads the desired state; `None` if it is unchanged.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] with object, field and remedy.
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

    /// Checks that source and keys are still readable without `CAP_DAC_OVERRIDE`.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] with the path that is not.
    pub(crate) fn check_readable(&mut self, served: &Desired) -> Result<(), Error> {
        self.source.read()?;
        self.read_keys(&served.fabric)?;

        Ok(())
    }

    /// Forgets the last result, because the kernel refused it: the next [`Loader::load`] returns it again.
    pub(crate) fn reject(&mut self) {
        self.accepted = None;
    }

    /// Returns the local private key for each peer, and for the others why it is missing.
    ///
    /// With a file a missing key is an error; in a cluster the controller manager may still write it.
    fn read_keys(&self, fabric: &Fabric) -> Result<(ByPeer<PrivateKey>, ByPeer<String>), Error> {
        let mut found = BTreeMap::new();
        let mut missing = BTreeMap::new();
        match (&self.keys, &self.source) {
            (KeyStore::Source, Source::Cluster(watch)) => {
                let keys = watch.store().keys();
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

/// Returns the Secrets that `fabric` refers to, each with the object that does.
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
