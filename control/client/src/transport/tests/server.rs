//! A TLS server that replies as kube-apiserver does at the level of HTTP.

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Request, Response, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Channel, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::Config;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// Bytes that the client accepts ahead of the reader of a stream.
const STREAM_WINDOW: usize = 128 << 10;

type Reply = Response<BoxBody<Bytes, Infallible>>;

#[derive(Clone, Copy, Debug)]
pub(super) enum Protocols {
    /// HTTP/2 and HTTP/1.1.
    Http2,
    /// HTTP/1.1 only, without ALPN.
    Http1,
}

impl Protocols {
    pub(super) fn version(self) -> Version {
        match self {
            Self::Http2 => Version::HTTP_2,
            Self::Http1 => Version::HTTP_11,
        }
    }

    fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http2 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Self::Http1 => Vec::new(),
        }
    }
}

/// Stops when dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    certificate: Vec<u8>,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    tls: watch::Sender<Arc<ServerConfig>>,
    streams_max: u32,
    accepted: AtomicUsize,
    /// Methods and paths of the requests so far.
    requests: watch::Sender<Vec<String>>,
    /// The number of floods that have filled their windows.
    flooded: watch::Sender<usize>,
    drain: watch::Sender<()>,
    /// Whether requests for `/delayed` get their responses.
    releases: watch::Sender<bool>,
}

impl Server {
    pub(super) async fn start(protocols: Protocols, streams_max: u32) -> Self {
        let key =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let certificate = key.cert.der().clone();
        let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], private.into())
            .expect("a key for the certificate");
        tls.alpn_protocols = protocols.alpn();

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared {
            tls: watch::Sender::new(Arc::new(tls)),
            streams_max,
            accepted: AtomicUsize::new(0),
            requests: watch::Sender::new(Vec::new()),
            flooded: watch::Sender::new(0),
            drain: watch::Sender::new(()),
            releases: watch::Sender::new(false),
        });
        let task = tokio::spawn(accept(listener, shared.clone()));

        Self {
            address,
            certificate: certificate.to_vec(),
            shared,
            task,
        }
    }

    pub(super) fn config(&self) -> Config {
        let uri = format!("https://{}", self.address);
        let mut config = Config::new(uri.parse().expect("a URI"));
        config.root_cert = Some(vec![self.certificate.clone()]);
        config
    }

    /// Returns a kubeconfig with further fields of the cluster.
    pub(super) fn kubeconfig(&self, fields: serde_json::Value) -> String {
        use base64::Engine as _;

        let mut cluster = fields;
        let encoded = base64::engine::general_purpose::STANDARD.encode(pem(&self.certificate));
        cluster["server"] = format!("https://{}", self.address).into();
        cluster["certificate-authority-data"] = encoded.into();
        serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": cluster}],
            "users": [{"name": "a", "user": {"token": "secret"}}]})
        .to_string()
    }

    /// Serves other protocols on new connections.
    pub(super) fn offer(&self, protocols: Protocols) {
        let mut tls = self.shared.tls.borrow().as_ref().clone();
        tls.alpn_protocols = protocols.alpn();
        self.shared.tls.send_replace(Arc::new(tls));
    }

    /// Returns the number of connections since the start.
    pub(super) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Returns method and path of each request since the start.
    pub(super) fn requests(&self) -> Vec<String> {
        self.shared.requests.borrow().clone()
    }

    /// Waits until the server has received `count` requests.
    pub(super) async fn received(&self, count: usize) {
        let mut requests = self.shared.requests.subscribe();
        let wait = requests.wait_for(|requests| requests.len() >= count);
        wait.await.expect("the server runs");
    }

    /// Waits until `count` floods have each filled the window of their stream.
    pub(super) async fn flooded(&self, count: usize) {
        let mut flooded = self.shared.flooded.subscribe();
        let wait = flooded.wait_for(|flooded| *flooded >= count);
        wait.await.expect("the server runs");
    }

    /// Replies to requests for `/delayed`, which have no response before.
    pub(super) fn reply_to_delayed(&self) {
        self.shared.releases.send_replace(true);
    }

    /// Sends GOAWAY on all connections.
    pub(super) fn drain(&self) {
        self.shared.drain.send_replace(());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns a certificate as text (RFC 7468).
fn pem(der: &[u8]) -> String {
    use base64::Engine as _;

    let encoded = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n")
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(serve(stream, shared.clone()));
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let tls = TlsAcceptor::from(shared.tls.borrow().clone());
    let Ok(stream) = tls.accept(stream).await else {
        return;
    };
    let mut drain = shared.drain.subscribe();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(shared.streams_max);
    let service = service_fn(move |request| reply(request, shared.clone()));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);

    tokio::select! {
        _ = connection.as_mut() => return,
        _ = drain.changed() => connection.as_mut().graceful_shutdown(),
    }
    // An error means that the client has closed the connection.
    connection.await.ok();
}

async fn reply(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Reply, Infallible> {
    let path = request.uri().path();
    let line = format!("{} {path}", request.method());
    shared.requests.send_modify(|requests| requests.push(line));
    if path.ends_with("/hang") {
        std::future::pending::<()>().await;
    }
    if path == "/delayed" {
        let mut releases = shared.releases.subscribe();
        // The sender is in `shared`.
        releases.wait_for(|it| *it).await.expect("a sender");
    }
    let is_watch = request
        .uri()
        .query()
        .is_some_and(|query| query.contains("watch=true"));
    let body = match (path, is_watch) {
        ("/slow", _) => slowly(Bytes::from_static(b" ")),
        ("/flood", _) => stream(Bytes::from(vec![b'x'; 64 << 10]), true, shared),
        (_, true) => stream(Bytes::from_static(b"{}\n"), false, shared),
        (_, false) => Full::new(Bytes::from_static(b"{}")).boxed(),
    };

    let mut response = Response::new(body);
    if let Some(token) = request.headers().get(AUTHORIZATION) {
        response.headers_mut().insert(AUTHORIZATION, token.clone());
    }
    Ok(response)
}

/// Returns a body that repeats `data` every second.
fn slowly(data: Bytes) -> BoxBody<Bytes, Infallible> {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        while sender.send_data(data.clone()).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    });
    body.boxed()
}

/// Returns a body that repeats `data` if `is_flood`, and otherwise sends it once and stays open.
fn stream(data: Bytes, is_flood: bool, shared: Arc<Shared>) -> BoxBody<Bytes, Infallible> {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        let mut sent = 0_usize;
        while sender.send_data(data.clone()).await.is_ok() {
            if !is_flood {
                std::future::pending::<()>().await;
            }
            let before = sent;
            sent += data.len();
            if before <= STREAM_WINDOW && sent > STREAM_WINDOW {
                shared.flooded.send_modify(|flooded| *flooded += 1);
            }
        }
    });
    body.boxed()
}
