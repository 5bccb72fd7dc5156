//! An agent that follows an API server in memory.

use super::kubelet::Kubelet;
use crate::metric_agent::*;
use control_runtime::{self as runtime, Replicas, Runtime, transport};
use fake_apiserver::ApiServer;
use http_body_util::BodyExt as _;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewStatus};
use kube::Client;
use kube::client::Body;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use telemetry::http::Observed as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Longer than a step may take. It only matters for a test that fails.
pub(super) const SOON: Duration = Duration::from_secs(20);

const CONFIG_MAP: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// An authority of certificates.
pub(super) struct Authority {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// Returns certificate and key of a client.
    pub(super) fn client(&self, name: &str) -> (String, String) {
        self.issue(name, &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Returns certificate and key of a server.
    pub(super) fn server(&self, names: &[&str]) -> (String, String) {
        self.issue("server", names, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn issue(
        &self,
        name: &str,
        names: &[&str],
        usage: ExtendedKeyUsagePurpose,
    ) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = subject(name);
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

fn subject(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

/// A running agent; it stops when the value is dropped.
pub(super) struct Agent {
    pub(super) api_server: ApiServer,
    /// Authority of the API server's client certificate.
    pub(super) proxies: Authority,
    /// Authority of kubelets.
    pub(super) cluster: Authority,
    pub(super) state: Arc<State>,
    /// Reviews of rights so far.
    pub(super) reviews: Arc<Mutex<Vec<SubjectAccessReview>>>,
    address: SocketAddr,
    registry: Registry,
    _files: Files,
    stop: watch::Sender<bool>,
}

impl Agent {
    /// Starts an agent with changed settings.
    pub(super) async fn start(change: impl FnOnce(&mut Settings)) -> Self {
        let [proxies, cluster] = ["front-proxy-ca", "kubernetes"].map(Authority::new);
        let api_server = ApiServer::start();
        api_server.put(
            CONFIG_MAP,
            config_map(&proxies.pem, &["front-proxy-client"]),
        );
        let files = Files::new(&cluster);
        let mut settings = files.settings();
        change(&mut settings);
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let config = kube::Config::new(api_server.url().parse().unwrap());
        let watches = transport::client(&config).unwrap();
        let named = runtime::Settings {
            name: "agent",
            identity: "agent".to_owned(),
            random: || [0; 32],
        };
        let runtime_metrics = runtime::Metrics::new(&mut Registry::default());
        let mut runtime = Runtime::new(watches, named, runtime_metrics);
        runtime.add(Follower, &Replicas::Active).unwrap();
        let reviews = Arc::default();
        let client = reviewer(Arc::clone(&reviews));
        let (reader, status) = (runtime.reader(), runtime.status());
        let server = Server::new(settings, reader, status, client, metrics).unwrap();
        let state = server.state();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(runtime.run(ended(stopped.clone())));
        tokio::spawn(server.run(listener, ended(stopped)));

        Self {
            api_server,
            proxies,
            cluster,
            state,
            reviews,
            address,
            registry,
            _files: files,
            stop,
        }
    }

    /// Starts an agent with the namespace `shop-rome` of the consumer `rome`, and waits until it is ready.
    pub(super) async fn ready() -> Self {
        let agent = Self::start(|_| {}).await;
        agent.namespace("rome", "shop-rome", "shop");
        agent.until(|| agent.state.ready().is_ok()).await;
        agent
    }

    pub(super) fn namespace(&self, consumer: &str, name: &str, original: &str) {
        let metadata = json!({"name": name, "labels": {"liqo.io/remote-cluster-id": consumer},
            "annotations": {"liqo.io/original-name": original}});
        self.put(
            "/api/v1/namespaces",
            "Namespace",
            json!({"metadata": metadata}),
        );
    }

    pub(super) fn pod(&self, consumer: &str, namespace: &str, name: &str, node: &str) {
        let labels = json!({"offloading.liqo.io/origin": consumer,
            "liqo.io/managed-by": "shadowpod"});
        self.labelled_pod(&labels, namespace, name, node);
    }

    pub(super) fn labelled_pod(&self, labels: &Value, namespace: &str, name: &str, node: &str) {
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": node, "containers": []}});
        self.put(&format!("/api/v1/namespaces/{namespace}/pods"), "Pod", pod);
    }

    /// Adds a Node with this kubelet.
    pub(super) fn node(&self, name: &str, kubelet: &Kubelet) {
        self.node_at(name, kubelet.address);
    }

    pub(super) fn node_at(&self, name: &str, address: SocketAddr) {
        let status = json!({
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": address.ip().to_string()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}},
        });
        self.node_with(json!({"name": name}), status);
    }

    pub(super) fn node_with(&self, metadata: Value, status: Value) {
        let node = json!({"metadata": metadata, "status": status});
        self.put("/api/v1/nodes", "Node", node);
    }

    fn put(&self, path: &str, kind: &str, mut object: Value) {
        object["apiVersion"] = "v1".into();
        object["kind"] = kind.into();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.api_server.put(&format!("{path}/{name}"), object);
    }

    /// Replaces the authority of the API server's client certificate, and the allowed names.
    pub(super) fn trust(&self, authority: &str, names: &[&str]) {
        self.api_server
            .put(CONFIG_MAP, config_map(authority, names));
    }

    /// Waits until a condition holds.
    pub(super) async fn until(&self, condition: impl Fn() -> bool) {
        let holds = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let held = tokio::time::timeout(SOON, holds).await;
        held.unwrap_or_else(|_| panic!("not ready: {:?}", self.state.ready()));
    }

    /// Requests until a response has a property, because watches have a delay.
    pub(super) async fn until_response(
        &self,
        path: &str,
        requester: &[(&str, &str)],
        condition: impl Fn(&str) -> bool,
    ) -> String {
        let mut response = String::new();
        let requests = async {
            loop {
                response = self.get(path, requester).await;
                if condition(&response) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let done = tokio::time::timeout(SOON, requests).await;
        assert!(done.is_ok(), "{response}");
        response
    }

    /// Sends a request as the API server does for a requester.
    pub(super) async fn get(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let identity = self.proxies.client("front-proxy-client");
        self.send(Some(identity), &get(path, fields)).await
    }

    /// Sends a request with a client certificate, and returns the response.
    pub(super) async fn send(&self, identity: Option<(String, String)>, request: &str) -> String {
        let mut stream = self.connect(identity).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        let read = stream.read_to_end(&mut response);
        // Without a notice the connection may have been closed by a limit; the response shows it.
        let _ = tokio::time::timeout(SOON, read).await.unwrap();
        String::from_utf8(response).unwrap()
    }

    pub(super) async fn connect(
        &self,
        identity: Option<(String, String)>,
    ) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.cluster.pem)).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config
                    .with_client_auth_cert(vec![certificate(&chain)], key)
                    .unwrap()
            }
        };
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("liqo-metric-agent.liqo.svc").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.unwrap()
    }

    /// Returns the agent's own metrics.
    pub(super) fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }
}

impl Agent {
    /// Requests the agent to stop.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until the agent accepts no connections.
    pub(super) async fn until_closed(&self) {
        let refused = async { while TcpStream::connect(self.address).await.is_ok() {} };
        tokio::time::timeout(SOON, refused).await.unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Header fields of the virtual kubelet of `rome`.
pub(super) const ROME: &[(&str, &str)] = &[
    ("X-Remote-User", "milan-a8a4c692b93b"),
    ("X-Remote-Group", "rome"),
    ("X-Remote-Group", "system:authenticated"),
];

pub(super) fn scrape_path(consumer: &str, metrics: &str) -> String {
    format!("/apis/metrics.liqo.io/v1beta1/scrape/{consumer}/{metrics}")
}

/// Returns a request, after whose response the connection ends.
pub(super) fn get(path: &str, fields: &[(&str, &str)]) -> String {
    let fields: String = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n{fields}\r\n")
}

/// Reads one response of a connection that stays open.
pub(super) async fn read_response(
    stream: &mut tokio_rustls::client::TlsStream<TcpStream>,
) -> String {
    let mut response = String::new();
    let read = async {
        loop {
            let mut buffer = [0; 4096];
            let len = stream.read(&mut buffer).await.unwrap();
            assert!(len > 0, "the connection has ended: {response}");
            response.push_str(std::str::from_utf8(&buffer[..len]).unwrap());
            let Some((head, body)) = response.split_once("\r\n\r\n") else {
                continue;
            };
            let mut lines = head.lines();
            let length = lines.find_map(|line| line.strip_prefix("content-length: "));
            if length.unwrap().parse() == Ok(body.len()) {
                break;
            }
        }
    };
    tokio::time::timeout(SOON, read).await.unwrap();
    response
}

/// Returns the status of a response.
pub(super) fn status(response: &str) -> u16 {
    let status = response.split(' ').nth(1);
    status.and_then(|it| it.parse().ok()).unwrap_or_default()
}

/// Returns the body of a response.
pub(super) fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap().1
}

pub(super) fn config_map(authority: &str, names: &[&str]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {
            "requestheader-client-ca-file": authority,
            "requestheader-allowed-names": json!(names).to_string(),
            "requestheader-username-headers": r#"["X-Remote-User"]"#,
            "requestheader-uid-headers": r#"["X-Remote-Uid"]"#,
            "requestheader-group-headers": r#"["X-Remote-Group"]"#,
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
        },
    })
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

async fn ended(mut stopped: watch::Receiver<bool>) {
    // The test has ended if the sender is gone.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Returns a client of an API server that only reviews rights: user `admin` has all, and `reader` those of consumers.
fn reviewer(reviews: Arc<Mutex<Vec<SubjectAccessReview>>>) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let reviews = Arc::clone(&reviews);
        async move {
            let bytes = request.into_body().collect().await.unwrap().to_bytes();
            let mut review: SubjectAccessReview = serde_json::from_slice(&bytes).unwrap();
            reviews.lock().unwrap().push(review.clone());
            let attributes = review.spec.resource_attributes.clone().unwrap();
            let is_of_consumers = attributes.subresource.as_deref() == Some("metrics");
            let user = review.spec.user.as_deref();
            review.status = Some(SubjectAccessReviewStatus {
                allowed: user == Some("admin") || (user == Some("reader") && is_of_consumers),
                ..SubjectAccessReviewStatus::default()
            });
            let body = Body::from(serde_json::to_vec(&review).unwrap());
            Ok::<_, Infallible>(http::Response::new(body))
        }
    });
    Client::new(service, "default")
}

/// Files of an agent, in a folder that is removed when the value is dropped.
pub(super) struct Files {
    pub(super) folder: PathBuf,
}

impl Files {
    pub(super) fn new(cluster: &Authority) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);

        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("metric-agent-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let files = Self { folder };
        files.write("ca.crt", &cluster.pem);
        files.write("token", "secret-token\n");
        files.write_pair(&cluster.server(&["liqo-metric-agent.liqo.svc"]));
        files
    }

    pub(super) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.folder.join(name), content).unwrap();
    }

    pub(super) fn write_pair(&self, (certificate, key): &(String, String)) {
        self.write("tls.crt", certificate);
        self.write("tls.key", key);
    }

    pub(super) fn settings(&self) -> Settings {
        Settings {
            kubelets: KubeletSettings {
                certificates: KubeletCertificates::Verified,
                authority: self.folder.join("ca.crt"),
                token: self.folder.join("token"),
                connect_timeout: SOON,
                timeout: SOON,
            },
            certificate: CertificateFiles {
                certificate: self.folder.join("tls.crt"),
                key: self.folder.join("tls.key"),
            },
            limits: ScrapeLimits {
                timeout: SOON,
                ..ScrapeLimits::default()
            },
            timeouts: Timeouts {
                endpoint_removal: Duration::ZERO,
                ..TIMEOUTS
            },
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}
