//! The server over real sockets: TLS, limits, and the end.

use super::fixture::{NAMESPACE, SETTINGS, offloaded, put};
use crate::certificates::{Data, WEBHOOKS, decide, issue, provider};
use crate::webhook::{Limits, Metrics, Readiness, Server};
use control_runtime::CacheReader;
use https_server::Limit;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const NAME: &str = "liqo-webhook.liqo.svc";

/// Longer than a test may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// A server on a port of its own, with the parts that its tests change.
struct Running {
    address: SocketAddr,
    cache: CacheReader,
    data: Data,
    metrics: Metrics,
    readiness: Readiness,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    async fn start(change: impl FnOnce(&mut Limits)) -> Self {
        let mut limits = Limits::default();
        limits.timeouts.endpoint_removal = Duration::from_millis(50);
        change(&mut limits);
        let data = issued();
        let mut cache = offloaded(
            json!({"podOffloadingStrategy": "LocalAndRemote"}),
            Value::Null,
        );
        put_secret(&mut cache, &data);
        let cache = CacheReader::fixture(cache);
        let metrics = Metrics::new(&mut Registry::default());
        let server =
            Server::new(cache.clone(), NAMESPACE, SETTINGS, metrics.clone(), limits).unwrap();
        let readiness = server.readiness();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(listener, async {
            stopped.await.ok();
        }));
        let stop = Some(stop);
        Self {
            address,
            cache,
            data,
            metrics,
            readiness,
            stop,
            task,
        }
    }

    async fn connect(&self, source: &str) -> TlsStream<TcpStream> {
        let stream = self.tcp(source).await;
        connector(&self.data["ca"])
            .connect(name(NAME), stream)
            .await
            .unwrap()
    }

    async fn tcp(&self, source: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// Sends a request on a new connection, and returns the response.
    async fn send(&self, source: &str, request: &str) -> String {
        let mut stream = self.connect(source).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        received(&mut stream).await
    }

    /// Checks that a pod is reviewed, and returns the time that it takes.
    async fn assert_serves(&self, source: &str) -> Duration {
        let start = Instant::now();
        let request = post("/mutate/pod", &review());
        let reviewed = self.send(source, &request);
        let response = tokio::time::timeout(DEADLINE, reviewed).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
        start.elapsed()
    }

    fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }
}

fn issued() -> Data {
    decide(
        &Data::new(),
        true,
        &WEBHOOKS.names(NAMESPACE),
        Timestamp::now(),
        issue,
    )
    .unwrap()
    .data
}

fn put_secret(cache: &mut control_runtime::Cache, data: &Data) {
    let metadata = json!({"name": WEBHOOKS.secret, "namespace": NAMESPACE});
    put::<Secret>(cache, json!({"metadata": metadata, "data": data}));
}

/// Returns a client that trusts the authorities in a Secret, as the API server does.
fn connector(authorities: &ByteString) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&authorities.0) {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(provider());
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

fn name(text: &str) -> ServerName<'static> {
    ServerName::try_from(text.to_owned()).unwrap()
}

fn review() -> String {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "7", "operation": "CREATE", "namespace": "shop", "object": {"spec": {}}},
    })
    .to_string()
}

fn post(path: &str, body: &str) -> String {
    let len = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{body}"
    )
}

/// Returns what the server sends until it closes the connection.
async fn received(stream: &mut TlsStream<TcpStream>) -> String {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    // A server that closes a connection with unread data resets it.
    let _ = tokio::time::timeout(DEADLINE, read).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_client_that_verifies_the_name_of_the_service_gets_a_patch() {
    let server = Running::start(|_| {}).await;

    let response = server
        .send("127.0.0.1", &post("/mutate/pod?timeout=5s", &review()))
        .await;

    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    let review: Value = serde_json::from_str(body).unwrap();
    assert_eq!(review["response"]["uid"], "7");
    assert_eq!(review["response"]["patchType"], "JSONPatch");
    assert_eq!(server.metrics.count("mutate_pod", "patched"), 1);
    assert_eq!(server.readiness.ready(), Ok(()));
}

#[tokio::test]
async fn a_client_that_expects_another_name_or_authority_refuses_the_server() {
    let server = Running::start(|_| {}).await;

    let stream = server.tcp("127.0.0.1").await;
    let renamed = connector(&server.data["ca"]).connect(name("liqo-webhook.other.svc"), stream);
    assert!(renamed.await.is_err());
    let stream = server.tcp("127.0.0.1").await;
    let untrusted = connector(&issued()["ca"]).connect(name(NAME), stream);
    assert!(untrusted.await.is_err());
    server.assert_serves("127.0.0.1").await;
}

#[tokio::test]
async fn a_renewed_certificate_is_served_at_once_and_an_invalid_one_never() {
    let mut server = Running::start(|_| {}).await;
    server.assert_serves("127.0.0.1").await;

    let renewed = issued();
    put_secret(&mut server.cache.fixture_write(), &renewed);
    server.data = renewed;
    server.assert_serves("127.0.0.1").await;

    let invalid = Data::from([("tls.crt".to_owned(), ByteString(b"absurd".to_vec()))]);
    put_secret(&mut server.cache.fixture_write(), &invalid);
    server.assert_serves("127.0.0.1").await;
    assert_eq!(server.readiness.ready(), Ok(()));
}

#[tokio::test]
async fn without_a_certificate_the_server_is_not_ready() {
    let server = Running::start(|_| {}).await;
    let cache = CacheReader::fixture(super::fixture::cache());
    let metrics = Metrics::new(&mut Registry::default());
    let fresh = Server::new(cache, NAMESPACE, SETTINGS, metrics, Limits::default()).unwrap();
    let readiness = fresh.readiness();
    assert!(readiness.ready().unwrap_err().contains("starting"));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let task = tokio::spawn(fresh.run(listener, std::future::pending()));
    let reason = loop {
        let reason = readiness.ready().unwrap_err();
        if !reason.contains("starting") {
            break reason;
        }
        tokio::task::yield_now().await;
    };
    task.abort();

    assert!(reason.contains("liqo-webhook-certs"), "{reason}");
    drop(server);
}

#[tokio::test]
async fn requests_that_are_no_reviews_are_refused() {
    let server = Running::start(|_| {}).await;
    let get = post("/mutate/pod", "").replacen("POST", "GET", 1);
    for (request, status) in [
        (post("/mutate/secrets", &review()), "404"),
        (get, "405"),
        (post("/mutate/pod", "{}"), "400"),
        (
            format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000)),
            "431",
        ),
        ("\0\0\0\0\r\n\r\n".to_owned(), "400"),
    ] {
        let response = server.send("127.0.0.1", &request).await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}")),
            "{response}"
        );
    }
    server.assert_serves("127.0.0.1").await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_others_are_served() {
    let server = Running::start(|_| {}).await;
    let declared = "POST /mutate/pod HTTP/1.1\r\nHost: x\r\nContent-Length: 3145729\r\n\r\n";
    let response = server.send("127.0.0.1", declared).await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");

    let mut stream = server.connect("127.0.0.1").await;
    let head = "POST /mutate/pod HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000));
    for _ in 0..49 {
        // The server may close the connection before the end.
        let _ = stream.write_all(chunk.as_bytes()).await;
    }
    let response = received(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");

    server.assert_serves("127.0.0.1").await;
    assert_eq!(server.metrics.count("mutate_pod", "too_long"), 2);
}

#[tokio::test]
async fn slow_clients_are_closed_and_do_not_delay_others() {
    let server = Running::start(|limits| {
        limits.timeouts.start = Duration::from_secs(2);
        limits.body_timeout = Duration::from_secs(2);
    })
    .await;
    let mut silent = server.tcp("127.0.0.1").await;
    let mut unused = server.connect("127.0.0.1").await;
    let mut head = server.connect("127.0.0.1").await;
    head.write_all(b"POST /mutate/pod HTTP/1.1\r\nHo")
        .await
        .unwrap();
    let mut body = server.connect("127.0.0.1").await;
    let request = post("/mutate/pod", &review());
    body.write_all(&request.as_bytes()[..request.len() - 1])
        .await
        .unwrap();

    let duration = server.assert_serves("127.0.0.1").await;
    assert!(duration < Duration::from_secs(2), "{duration:?}");

    let mut byte = [0];
    let closed = tokio::time::timeout(DEADLINE, silent.read(&mut byte))
        .await
        .unwrap();
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    assert_eq!(received(&mut unused).await, "");
    assert_eq!(received(&mut head).await, "");
    let response = received(&mut body).await;
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
}

#[tokio::test]
async fn one_source_does_not_use_up_the_connections() {
    let limit = Limit {
        total: 8,
        per_source: 4,
    };
    let server = Running::start(|limits| limits.connections = limit).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(server.connect("127.0.0.1").await);
    }

    let mut refused = server.tcp("127.0.0.1").await;
    let closed = tokio::time::timeout(DEADLINE, refused.read(&mut [0]))
        .await
        .unwrap();
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    server.assert_serves("127.0.0.2").await;
    drop(open);
    while server.metrics.connections() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.assert_serves("127.0.0.1").await;
}

#[tokio::test]
async fn bodies_in_progress_take_limited_memory() {
    let limit = Limit {
        total: 200_000,
        per_source: 100_000,
    };
    let server = Running::start(|limits| limits.bodies = limit).await;
    let mut slow = server.connect("127.0.0.1").await;
    let request = post("/mutate/pod", &"x".repeat(95_000));
    slow.write_all(&request.as_bytes()[..90_000]).await.unwrap();
    slow.flush().await.unwrap();

    let large = post("/mutate/pod", &" ".repeat(50_000));
    let deadline = Instant::now() + DEADLINE;
    loop {
        // The server reads the first body at its own pace.
        let response = server.send("127.0.0.1", &large).await;
        if response.starts_with("HTTP/1.1 503") {
            break;
        }
        assert!(Instant::now() < deadline, "{response}");
    }
    let response = server.send("127.0.0.2", &large).await;
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
}

#[tokio::test]
async fn a_request_in_progress_ends_before_the_server_stops() {
    let mut server = Running::start(|_| {}).await;
    let idle = server.connect("127.0.0.1").await;
    let mut busy = server.connect("127.0.0.1").await;
    let request = post("/mutate/pod", &review());
    let (first, last) = request.split_at(request.len() - 1);
    busy.write_all(first.as_bytes()).await.unwrap();
    busy.flush().await.unwrap();
    server.assert_serves("127.0.0.1").await;

    server.stop();
    while server.readiness.ready().is_ok() {
        tokio::task::yield_now().await;
    }
    // API servers do not know yet.
    server.assert_serves("127.0.0.1").await;
    let refused = async { while TcpStream::connect(server.address).await.is_ok() {} };
    tokio::time::timeout(DEADLINE, refused).await.unwrap();
    busy.write_all(last.as_bytes()).await.unwrap();
    let response = received(&mut busy).await;

    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    tokio::time::timeout(DEADLINE, &mut server.task)
        .await
        .unwrap()
        .unwrap();
    drop(idle);
    assert!(TcpStream::connect(server.address).await.is_err());
}
