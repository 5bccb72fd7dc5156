//! The API servers that this process talks to.

use crate::kubeconfig::RemoteConfig;
use crate::object::Cluster;
use crate::transport::{ConfigError, Transport};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::Api;
use std::collections::BTreeMap;

/// Clients of all clusters. A client stays the same when address and credentials are replaced, so
/// watches resume where they were.
pub(crate) struct Clusters {
    local: Client,
    remotes: BTreeMap<Cluster, Remote>,
}

struct Remote {
    transport: Transport,
    client: Client,
    /// UID of the namespace `kube-system`, which identifies the cluster.
    identity: Option<String>,
}

impl Clusters {
    pub(crate) fn new(local: Client) -> Self {
        Self {
            local,
            remotes: BTreeMap::new(),
        }
    }

    pub(crate) fn client(&self, cluster: &Cluster) -> Option<&Client> {
        match cluster {
            Cluster::Local => Some(&self.local),
            Cluster::Remote(_) => self.remotes.get(cluster).map(|remote| &remote.client),
        }
    }

    /// Adds a cluster, or replaces its address and credentials. Returns whether it was added.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if the configuration cannot be used; the previous one stays then.
    pub(crate) fn set(
        &mut self,
        cluster: &Cluster,
        config: &RemoteConfig,
    ) -> Result<bool, ConfigError> {
        if let Some(remote) = self.remotes.get(cluster) {
            remote.transport.replace(&config.config)?;
            return Ok(false);
        }
        let transport = Transport::new(&config.config)?;
        let namespace = config.config.default_namespace.clone();
        let remote = Remote {
            client: Client::new(transport.clone(), namespace),
            transport,
            identity: None,
        };
        self.remotes.insert(cluster.clone(), remote);

        Ok(true)
    }

    pub(crate) fn remove(&mut self, cluster: &Cluster) {
        self.remotes.remove(cluster);
    }

    /// Notes the identity of a cluster. Returns whether it is another cluster than before, whose
    /// objects and versions mean nothing for this one.
    pub(crate) fn identify(&mut self, cluster: &Cluster, identity: Option<String>) -> bool {
        let (Some(remote), Some(identity)) = (self.remotes.get_mut(cluster), identity) else {
            return false;
        };
        let before = remote.identity.replace(identity);
        before.is_some() && before != remote.identity
    }
}

/// Reads what identifies a cluster; `None` if it may not be read.
pub(crate) async fn identity(client: Client) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client);
    match namespaces.get_metadata("kube-system").await {
        Ok(namespace) => namespace.metadata.uid,
        Err(error) => {
            tracing::debug!(%error, "failed to identify a cluster");
            None
        }
    }
}
