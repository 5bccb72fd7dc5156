//! A proxy in front of a server that echoes.

use super::super::*;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use telemetry::http::Observed as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Time limit of each step. It only matters for a test that fails.
const SOON: Duration = Duration::from_secs(20);

/// A running proxy; it stops when the value is dropped.
pub(super) struct Fixture {
    address: SocketAddr,
    dials: Arc<AtomicUsize>,
    registry: Registry,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    proxy: JoinHandle<()>,
}

/// Returns settings with limits that no test reaches unless it changes them.
pub(super) fn settings() -> Settings {
    let long = Duration::from_secs(3600);
    Settings {
        api_server: String::new(),
        limits: Limit {
            total: 100,
            per_source: 100,
        },
        timeouts: Timeouts {
            head: long,
            dial: long,
            idle: long,
            half_closed: long,
        },
        accept_after_stop: Duration::ZERO,
        leave_timeout: long,
    }
}

impl Fixture {
    /// Starts an API server and a proxy with changed settings.
    pub(super) async fn start(change: impl FnOnce(&mut Settings)) -> Self {
        let api_server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = settings();
        settings.api_server = api_server.local_addr().unwrap().to_string();
        change(&mut settings);
        let fixture = Self::with(settings).await;
        let dials = Arc::clone(&fixture.dials);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = api_server.accept().await {
                dials.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let (mut reader, mut writer) = stream.split();
                    let _ = copy(&mut reader, &mut writer).await;
                    let _ = writer.shutdown().await;
                });
            }
        });

        fixture
    }

    /// Starts a proxy.
    pub(super) async fn with(settings: Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut registry = Registry::default();
        let proxy = Proxy::new(settings, Metrics::new(&mut registry));
        let state = proxy.state();
        assert!(state.ready().is_err(), "it does not accept clients yet");
        let (stop, stopped) = oneshot::channel::<()>();
        let proxy = tokio::spawn(proxy.run(listener, async {
            let _ = stopped.await;
        }));

        Self {
            address,
            dials: Arc::default(),
            registry,
            state,
            stop: Some(stop),
            proxy,
        }
    }

    pub(super) async fn client(&self) -> Client {
        self.client_from("127.0.0.1").await
    }

    pub(super) async fn client_from(&self, source: &str) -> Client {
        let connected = soon(self.try_client_from(source)).await;
        connected.expect("the proxy accepts connections")
    }

    pub(super) async fn try_client_from(&self, source: &str) -> std::io::Result<Client> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(source.parse().unwrap(), 0))?;
        socket.connect(self.address).await.map(Client)
    }

    /// Returns a client that is connected to the API server.
    pub(super) async fn connected(&self) -> Client {
        super::established(self, "127.0.0.1").await
    }

    /// Returns the number of connections to the API server so far.
    pub(super) fn dials(&self) -> usize {
        self.dials.load(Ordering::Relaxed)
    }

    pub(super) fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Waits until the metrics contain a line.
    pub(super) async fn until(&self, line: &str) {
        let found = async {
            while !self.metrics().lines().any(|it| it == line) {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(SOON, found).await.is_err() {
            panic!("no {line} in\n{}", self.metrics());
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state.ready().is_ok()
    }

    pub(super) async fn until_not_ready(&self) {
        let changed = async {
            while self.is_ready() {
                tokio::task::yield_now().await;
            }
        };
        soon(changed).await;
    }

    pub(super) fn stop(&mut self) {
        self.stop = None;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.proxy.is_finished()
    }

    pub(super) async fn ended(self) {
        drop(self.stop);
        soon(self.proxy).await.unwrap();
    }
}

/// A connection to the proxy.
pub(super) struct Client(TcpStream);

impl Client {
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        soon(self.0.write_all(bytes)).await.unwrap();
    }

    /// Sends bytes; returns whether the connection is open.
    pub(super) async fn try_send(&mut self, bytes: &[u8]) -> bool {
        soon(self.0.write_all(bytes)).await.is_ok()
    }

    /// Sends some of the bytes, and returns their number.
    pub(super) async fn send_some(&mut self, bytes: &[u8]) -> usize {
        self.0.write(bytes).await.unwrap()
    }

    /// Ends the direction towards the proxy.
    pub(super) async fn end(&mut self) {
        self.0.shutdown().await.unwrap();
    }

    /// Receives this text.
    pub(super) async fn expect(&mut self, text: &str) {
        let received = soon(self.receive(text.len())).await;
        assert_eq!(String::from_utf8_lossy(&received), text);
    }

    pub(super) async fn receive(&mut self, length: usize) -> Vec<u8> {
        let mut received = vec![0; length];
        self.0.read_exact(&mut received).await.unwrap();
        received
    }

    /// Receives all bytes until the proxy closes the connection.
    pub(super) async fn rest(&mut self) -> String {
        let mut received = Vec::new();
        soon(self.0.read_to_end(&mut received)).await.unwrap();
        String::from_utf8(received).unwrap()
    }

    /// Waits until the proxy closes or resets the connection.
    pub(super) async fn closed(&mut self) {
        let mut received = Vec::new();
        let _ = soon(self.0.read_to_end(&mut received)).await;
        assert!(
            received.is_empty(),
            "{:?}",
            String::from_utf8_lossy(&received)
        );
    }
}

/// Returns a CONNECT request.
pub(super) fn connect(target: &str) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
}

/// Returns an address on which no process listens.
pub(super) fn unused_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Returns a listener whose queue is full, so that the kernel drops further connections, and its address.
pub(super) async fn full_listener() -> (impl Sized, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    // Loopback connects at once as long as the queue has space.
    while let Ok(stream) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        queued.push(stream);
    }

    ((listener, queued), address)
}

/// Waits for a future, with a deadline.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    let deadline = tokio::time::timeout(SOON, future).await;
    deadline.expect("the step takes too long")
}
