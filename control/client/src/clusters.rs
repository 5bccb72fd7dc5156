//! The API servers that this process talks to.

use crate::backoff::{self, Backoff};
use crate::kubeconfig::RemoteConfig;
use crate::object::Cluster;
use crate::transport::{ConfigError, Transport};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::Api;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::task::{AbortHandle, JoinSet};

/// Clients of all clusters. A client stays the same when address and credentials are replaced, so
/// watches resume where they were.
pub struct Clusters {
    local: Client,
    clients: Clients,
    remotes: BTreeMap<Cluster, Remote>,
    /// Requests that identify clusters.
    identifications: JoinSet<(Cluster, Option<String>)>,
}

/// The clients of all clusters that are set, for other tasks: a server that forwards requests, for example. Clones
/// share them.
#[derive(Clone, Default)]
pub struct Clients(Arc<RwLock<BTreeMap<Cluster, Client>>>);

impl Clients {
    /// Returns the client of a cluster; `None` if it is not set.
    pub fn get(&self, cluster: &Cluster) -> Option<Client> {
        let clients = self.0.read().unwrap_or_else(PoisonError::into_inner);
        clients.get(cluster).cloned()
    }

    fn put(&self, cluster: Cluster, client: Client) {
        let mut clients = self.0.write().unwrap_or_else(PoisonError::into_inner);
        clients.insert(cluster, client);
    }

    fn remove(&self, cluster: &Cluster) {
        let mut clients = self.0.write().unwrap_or_else(PoisonError::into_inner);
        clients.remove(cluster);
    }
}

impl FromIterator<(Cluster, Client)> for Clients {
    fn from_iter<I: IntoIterator<Item = (Cluster, Client)>>(clients: I) -> Self {
        Self(Arc::new(RwLock::new(clients.into_iter().collect())))
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let clients = self.0.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(clients.keys()).finish()
    }
}

/// Identity of a cluster whose address was replaced before it was identified.
const UNKNOWN: &str = "";

struct Remote {
    transport: Transport,
    client: Client,
    config: RemoteConfig,
    /// UID of the namespace `kube-system`, which identifies the cluster.
    identity: Option<String>,
    identification: AbortHandle,
    /// Whether the identification has ended.
    is_identified: bool,
}

impl std::fmt::Debug for Clusters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.remotes.keys()).finish()
    }
}

impl Clusters {
    /// Creates the clients with that of the local cluster.
    pub fn new(local: Client) -> Self {
        Self {
            clients: Clients::from_iter([(Cluster::Local, local.clone())]),
            local,
            remotes: BTreeMap::new(),
            identifications: JoinSet::new(),
        }
    }

    /// Returns a handle for other tasks.
    pub fn clients(&self) -> Clients {
        self.clients.clone()
    }

    /// Returns the client of a cluster; `None` if it is not set.
    pub fn client(&self, cluster: &Cluster) -> Option<&Client> {
        match cluster {
            Cluster::Local => Some(&self.local),
            Cluster::Remote(_) => self.remotes.get(cluster).map(|remote| &remote.client),
        }
    }

    /// Adds a cluster, or replaces its address and credentials, and has it identified. Returns whether
    /// it was added. Equal credentials change nothing, so plans may return them again.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if the configuration cannot be used; the previous one stays then.
    pub fn set(&mut self, cluster: &Cluster, config: &RemoteConfig) -> Result<bool, ConfigError> {
        if let Some(remote) = self.remotes.get(cluster) {
            if remote.config == *config {
                return Ok(false);
            }
            remote.transport.replace(config.as_ref())?;
            remote.identification.abort();
            let identification = self.identify(cluster, remote.client.clone());
            if let Some(remote) = self.remotes.get_mut(cluster) {
                let is_moved = remote.config.as_ref().cluster_url != config.as_ref().cluster_url;
                if is_moved && !(remote.is_identified && remote.identity.is_some()) {
                    // Objects of the former server may be listed already, and its cluster is not known.
                    remote.identity = Some(UNKNOWN.to_owned());
                }
                remote.identification = identification;
                remote.is_identified = false;
                remote.config = config.clone();
            }
            return Ok(false);
        }
        let transport = Transport::new(config.as_ref(), config.destinations())?;
        let namespace = config.as_ref().default_namespace.clone();
        let client = Client::new(transport.clone(), namespace);
        self.clients.put(cluster.clone(), client.clone());
        let remote = Remote {
            identification: self.identify(cluster, client.clone()),
            client,
            transport,
            config: config.clone(),
            identity: None,
            is_identified: false,
        };
        self.remotes.insert(cluster.clone(), remote);

        Ok(true)
    }

    fn identify(&mut self, cluster: &Cluster, client: Client) -> AbortHandle {
        let cluster = cluster.clone();
        self.identifications
            .spawn(async move { (cluster, identity(client).await) })
    }

    /// Removes a cluster.
    pub fn remove(&mut self, cluster: &Cluster) {
        if let Some(remote) = self.remotes.remove(cluster) {
            remote.identification.abort();
            self.clients.remove(cluster);
        }
    }

    /// Returns the next cluster that is another one than before; `None` if no request runs.
    pub async fn replaced(&mut self) -> Option<Cluster> {
        while let Some(identified) = self.identifications.join_next().await {
            // The request was aborted if this is an error.
            if let Ok((cluster, identity)) = identified
                && self.take_identity(&cluster, identity)
            {
                return Some(cluster);
            }
        }
        None
    }

    /// Notes the identity of a cluster. Returns whether it is another cluster than before, whose
    /// objects and versions mean nothing for this one.
    fn take_identity(&mut self, cluster: &Cluster, identity: Option<String>) -> bool {
        let Some(remote) = self.remotes.get_mut(cluster) else {
            return false;
        };
        remote.is_identified = true;
        let Some(identity) = identity else {
            return false;
        };
        let before = remote.identity.replace(identity);
        before.is_some() && before != remote.identity
    }
}

/// Reads what identifies a cluster, until the server answers; `None` if it may not be read.
async fn identity(client: Client) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client);
    let mut failures = 0;
    loop {
        match namespaces.get_metadata("kube-system").await {
            Ok(namespace) => return namespace.metadata.uid,
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => return None,
            Err(error) => tracing::debug!(%error, "failed to identify a cluster, and retries"),
        }
        let delay = Backoff::REQUEST.delay(failures, backoff::random());
        tokio::time::sleep(delay).await;
        failures += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::client::Body;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Returns a client whose requests have these outcomes in turn: a UID, or the code of an error.
    fn client(outcomes: &'static [Result<&'static str, u16>]) -> (Client, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let outcome = outcomes[count.fetch_add(1, Ordering::Relaxed)];
            let (code, body) = match outcome {
                Ok(uid) => (200, format!(r#"{{"metadata": {{"uid": "{uid}"}}}}"#)),
                Err(code) => (code, format!(r#"{{"code": {code}, "status": "Failure"}}"#)),
            };
            let response = http::Response::builder().status(code);
            let response = response.body(Body::from(body.into_bytes()));
            async move { Ok::<_, Infallible>(response.expect("a response")) }
        });

        (Client::new(service, "a"), requests)
    }

    #[tokio::test]
    async fn a_cluster_is_identified_again_until_its_server_answers() {
        let (client, requests) = client(&[Err(503), Ok("uid")]);

        assert_eq!(identity(client).await.as_deref(), Some("uid"));
        assert_eq!(requests.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_cluster_whose_identity_may_not_be_read_is_not_asked_again() {
        let (client, requests) = client(&[Err(403)]);

        assert_eq!(identity(client).await, None);
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }

    fn config(port: u16, token: &str) -> RemoteConfig {
        let text = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:PORT"}}],
            "users": [{"name": "u", "user": {"token": "TOKEN"}}]}"#;
        let text = text.replace("PORT", &port.to_string());
        RemoteConfig::parse(
            &text.replace("TOKEN", token),
            crate::destination::Destinations::Any,
        )
        .unwrap()
    }

    #[tokio::test]
    async fn other_tasks_have_the_client_of_a_cluster_while_it_is_set() {
        let (local, _) = client(&[]);
        let mut clusters = Clusters::new(local);
        let (clients, milan) = (clusters.clients(), Cluster::remote("milan"));
        assert!(clients.get(&Cluster::Local).is_some() && clients.get(&milan).is_none());

        clusters.set(&milan, &config(1, "a")).unwrap();
        assert!(clients.get(&milan).is_some());
        clusters.remove(&milan);
        assert!(clients.get(&milan).is_none());
    }

    #[tokio::test]
    async fn a_cluster_whose_address_is_replaced_before_it_is_identified_may_be_another_one() {
        let (local, _) = client(&[]);
        let mut clusters = Clusters::new(local);
        let milan = Cluster::remote("milan");
        clusters.set(&milan, &config(1, "a")).unwrap();

        clusters.set(&milan, &config(1, "b")).unwrap();
        clusters.set(&milan, &config(2, "b")).unwrap();

        assert!(clusters.take_identity(&milan, Some("uid".into())));
        clusters.set(&milan, &config(1, "b")).unwrap();
        assert!(!clusters.take_identity(&milan, Some("uid".into())));
    }

    #[tokio::test]
    async fn a_cluster_whose_address_was_replaced_for_a_moment_may_have_objects_of_another_one() {
        let (local, _) = client(&[]);
        let mut clusters = Clusters::new(local);
        let milan = Cluster::remote("milan");
        clusters.set(&milan, &config(1, "t")).unwrap();
        assert!(!clusters.take_identity(&milan, Some("uid".into())));

        clusters.set(&milan, &config(2, "t")).unwrap();
        clusters.set(&milan, &config(1, "t")).unwrap();

        assert!(clusters.take_identity(&milan, Some("uid".into())));
    }

    #[tokio::test]
    async fn a_cluster_whose_credentials_are_replaced_before_it_is_identified_is_the_same() {
        let (local, _) = client(&[]);
        let mut clusters = Clusters::new(local);
        let milan = Cluster::remote("milan");
        for token in ["a", "b"] {
            clusters.set(&milan, &config(1, token)).unwrap();
        }

        assert!(!clusters.take_identity(&milan, Some("uid".into())));
    }

    #[tokio::test]
    async fn another_cluster_at_the_same_address_is_recognized() {
        let (local, _) = client(&[]);
        let mut clusters = Clusters::new(local);
        let milan = Cluster::remote("milan");
        let config = config(1, "t");
        assert!(clusters.set(&milan, &config).unwrap());
        assert!(!clusters.set(&milan, &config).unwrap());

        assert!(!clusters.take_identity(&milan, Some("a".into())));
        assert!(!clusters.take_identity(&milan, None));
        assert!(!clusters.take_identity(&milan, Some("a".into())));
        assert!(clusters.take_identity(&milan, Some("b".into())));
        clusters.remove(&milan);
        assert_eq!(clusters.replaced().await, None);
    }
}
