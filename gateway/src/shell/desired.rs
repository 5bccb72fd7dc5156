//! The desired state: what the source tells, and the keys.

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

/// There is no state that can be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The source tells none.
    #[error(transparent)]
    Source(#[from] control_source::Error),

    /// A gateway's identity is not changed under way.
    #[error(
        "{source_name}: the cluster id changed from {from} to {to}: restart the gateway to serve another cluster"
    )]
    OtherCluster {
        /// Where that is said.
        source_name: String,
        /// What it was.
        from: String,
        /// What it is now.
        to: String,
    },

    /// A private key is missing or wrong.
    #[error(transparent)]
    Key(#[from] keys::Error),
}

/// Something of each peer, by its cluster id.
type ByPeer<T> = BTreeMap<String, T>;

/// A state that can be served.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Desired {
    /// The objects, checked.
    pub(crate) fabric: Fabric,
    /// What the kernel must know.
    pub(crate) tables: Tables,
    /// What the engine must know.
    pub(crate) peers: Vec<PeerConfig>,
    /// Cluster ids and indices, sorted by id.
    pub(crate) ranks: Vec<(String, u16)>,
    /// What is not served, because it is wrong or not complete: a line each.
    pub(crate) unserved: Vec<String>,
    /// The peers among them, and why each is not served.
    pub(crate) unserved_peers: ByPeer<String>,
}

impl Desired {
    /// Returns what leads into a tunnel: the prefixes under which remote clusters are
    /// seen here, and the addresses given to single endpoints of theirs.
    pub(crate) fn tunnelled(&self) -> Vec<Ipv4Net> {
        let single = self.tables.transit.keys().copied().map(Ipv4Net::from);

        self.tables.outbound.keys().copied().chain(single).collect()
    }
}

/// Where the private keys are.
#[derive(Clone, Debug)]
pub(crate) enum KeyStore {
    /// In files, as mounted Secrets have them.
    Directory(PathBuf),
    /// In the Secret that the source watches.
    Source,
}

/// Reads the desired state, again and again, with stable indices.
pub(crate) struct Loader {
    source: Source,
    keys: KeyStore,
    indices: Indices,
    cluster_id: Option<String>,
    /// What was last accepted.
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

    /// Returns the source.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Returns a client of the API server, if that is the source.
    pub(crate) fn client(&self) -> Option<Client> {
        match &self.source {
            Source::Cluster(watch) => Some(watch.client().clone()),
            Source::File(_) => None,
        }
    }

    /// Returns the Connections of the API server.
    pub(crate) fn connections(&self) -> impl Iterator<Item = &Connection> {
        let watch = match &self.source {
            Source::Cluster(watch) => Some(watch),
            Source::File(_) => None,
        };
        watch.into_iter().flat_map(|it| it.store().connections())
    }

    /// Starts to listen for changes, by a thread if the source is a file.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Source`] if the file cannot be watched.
    pub(crate) fn follow(&mut self) -> Result<(), Error> {
        Ok(self.source.follow()?)
    }

    /// Completes when [`Loader::load`] may tell something new.
    pub(crate) async fn changed(&mut self) {
        self.source.changed().await;
    }

    /// Reads; `None` if it is what was last accepted.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] with everything a person needs to mend it.
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

    /// Makes sure that everything can be read once more, after this process gave up the
    /// right to read everything.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] with what cannot.
    pub(crate) fn check_readable(&mut self, served: &Desired) -> Result<(), Error> {
        self.source.read()?;
        self.read_keys(&served.fabric)?;

        Ok(())
    }

    /// Forgets what was accepted: the kernel refused it.
    pub(crate) fn reject(&mut self) {
        self.accepted = None;
    }

    /// Returns this side's private key for each peer, by cluster id, and for the others what is
    /// wrong. A file's peers must all have one; in a cluster somebody may be about to write it.
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
                let keys = keys::read(directory, wanted_keys(fabric))?;
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
            "peer {cluster_id} waits for its private key in the Secret liqo-gateway-keys, from Liqo's controller manager"
        ),
        Some(key) => format!(
            "peer {cluster_id}: its private key has {} bytes, but a WireGuard key has {}: correct the Secret that its GatewayServer or GatewayClient names",
            key.len(),
            PrivateKey::LEN
        ),
    }
}

/// The Secrets that `fabric` names, and by which objects.
pub(crate) fn wanted_keys(fabric: &Fabric) -> impl Iterator<Item = (&str, &str)> {
    fabric
        .peers
        .iter()
        .map(|peer| (peer.key_secret.as_str(), peer.gateway_name.as_str()))
}

/// Opens a file and a directory of keys.
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
