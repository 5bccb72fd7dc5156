//! A listener in front of an API server, which forwards requests or replies as a hostile or failing
//! server does.
//!
//! It speaks HTTP/1.1, one request per connection, and logs the head of each request.

use crate::ApiServer;
use crate::request::parameter;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Longest head of a request, in bytes.
const HEAD_MAX: usize = 16 << 10;

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Method, for example `GET`.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Token of the `Authorization` header; empty if there is none.
    pub token: String,
}

impl Head {
    /// Returns whether the request is for all objects of a watch: a page of a list, or a streaming list.
    pub fn is_list(&self) -> bool {
        self.is_page() || self.is_streaming_list()
    }

    /// Returns whether the request is for a page of a list.
    pub fn is_page(&self) -> bool {
        // With a limit of 1, a client only reads the version of the resource.
        let limit = self.parameter("limit");
        self.method == "GET" && limit.is_some_and(|limit| limit != "1")
    }

    /// Returns whether the request deletes an object.
    pub fn is_delete(&self) -> bool {
        self.method == "DELETE"
    }

    /// Returns whether the request starts a watch with a streaming list.
    pub fn is_streaming_list(&self) -> bool {
        self.parameter("sendInitialEvents").as_deref() == Some("true")
    }

    /// Returns whether the request starts a watch.
    pub fn is_watch(&self) -> bool {
        self.target.contains("watch=true")
    }

    fn parameter(&self, name: &str) -> Option<String> {
        let query = self.target.split_once('?').map(|(_, query)| query);
        query.and_then(|query| parameter(query, name))
    }
}

/// The reply to one request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The response of the API server behind the front.
    Forward,
    /// These bytes, and the end of the connection.
    Bytes(Vec<u8>),
    /// A response without end: `head`, followed by repeated `chunk`s, each after `pause`.
    Endless {
        /// First bytes.
        head: Vec<u8>,
        /// Bytes that are repeated.
        chunk: Vec<u8>,
        /// Time before each chunk.
        pause: Duration,
    },
    /// An open connection without response.
    Silence,
}

impl Reply {
    /// Returns a response with this status line, further headers (each ends with CRLF) and body.
    pub fn response(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        Self::Bytes([head.as_bytes(), body].concat())
    }

    /// Returns a refusal with a `Status` as body.
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        let status = serde_json::json!({"apiVersion": "v1", "kind": "Status", "status": "Failure",
            "code": code, "reason": reason, "message": message});
        Self::response(&format!("{code} {reason}"), "", status.to_string())
    }

    /// Returns the response to a streaming list of a server whose feature gate `WatchList` is off.
    pub fn no_streaming_list() -> Self {
        let message = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is \
             forbidden for watch unless the WatchList feature gate is enabled";
        Self::status(422, "Invalid", message)
    }

    /// Returns a response whose body begins with `begin` and continues with `chunk` forever.
    pub fn endless(begin: &str, chunk: impl Into<Vec<u8>>, pause: Duration) -> Self {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
        Self::Endless {
            head: [head, begin].concat().into_bytes(),
            chunk: chunk.into(),
            pause,
        }
    }
}

type Rule = Arc<dyn Fn(&Head) -> Reply + Send + Sync>;

/// The front. Stops when dropped, and closes all connections.
pub struct Front {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

struct Shared {
    upstream: SocketAddr,
    rule: Mutex<Rule>,
    heads: Mutex<Vec<Head>>,
}

impl Front {
    /// Starts a front of `server` that replies as `rule` returns.
    ///
    /// # Panics
    ///
    /// Panics if there is no free port.
    pub fn start(
        server: &ApiServer,
        rule: impl Fn(&Head) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared {
            upstream: server.address,
            rule: Mutex::new(Arc::new(rule)),
            heads: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let served = shared.clone();
        let thread = std::thread::spawn(move || serve(listener, &served, stopped));

        Self {
            address,
            shared,
            stop: Some((stop, thread)),
        }
    }

    /// Replaces the rule for requests from now on.
    pub fn set(&self, rule: impl Fn(&Head) -> Reply + Send + Sync + 'static) {
        *lock(&self.shared.rule) = Arc::new(rule);
    }

    /// Returns the URL, for a client's configuration.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the heads of all requests so far.
    pub fn requests(&self) -> Vec<Head> {
        lock(&self.shared.heads).clone()
    }

    /// Returns the number of requests so far that `filter` selects.
    pub fn count(&self, filter: impl Fn(&Head) -> bool) -> usize {
        lock(&self.shared.heads)
            .iter()
            .filter(|head| filter(head))
            .count()
    }

    /// Waits until a request that `filter` selects has arrived.
    ///
    /// # Panics
    ///
    /// After ten seconds.
    pub async fn received(&self, filter: impl Fn(&Head) -> bool) {
        let received = async {
            while self.count(&filter) == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let received = tokio::time::timeout(Duration::from_secs(10), received).await;
        received.expect("a request that the test waits for");
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.stop.take() {
            drop(stop);
            drop(thread.join());
        }
    }
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Serves until `stopped` completes; the end of the runtime closes all connections.
fn serve(
    listener: std::net::TcpListener,
    shared: &Arc<Shared>,
    mut stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("threads and descriptors");
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).expect("a listening socket");
        loop {
            tokio::select! {
                _ = &mut stopped => return,
                accepted = listener.accept() => {
                    if let Ok((stream, _)) = accepted {
                        // An error means that the client has closed the connection.
                        tokio::spawn(handle(stream, shared.clone()));
                    }
                }
            }
        }
    });
}

async fn handle(mut client: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (head, rest) = read_head(&mut client).await?;
    let parsed = parse(&head);
    let rule = lock(&shared.rule).clone();
    let reply = rule(&parsed);
    lock(&shared.heads).push(parsed);
    match reply {
        Reply::Forward => forward(&mut client, &head, &rest, shared.upstream).await?,
        Reply::Bytes(bytes) => {
            client.write_all(&bytes).await?;
            client.shutdown().await?;
        }
        Reply::Endless { head, chunk, pause } => {
            client.write_all(&head).await?;
            loop {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                client.write_all(&chunk).await?;
            }
        }
        Reply::Silence => {
            // Ends when the client closes the connection.
            while client.read(&mut [0; 1024]).await? > 0 {}
        }
    }
    Ok(())
}

/// Reads until the end of the head; returns it, and the bytes after it.
async fn read_head(client: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    const END: &[u8] = b"\r\n\r\n";
    let mut bytes = Vec::new();
    loop {
        let end = bytes.windows(END.len()).position(|window| window == END);
        if let Some(end) = end {
            let rest = bytes.split_off(end + END.len());
            let head = String::from_utf8(bytes).map_err(io::Error::other)?;
            return Ok((head, rest));
        }
        if bytes.len() > HEAD_MAX || client.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Sends the request to the API server, and copies its response.
async fn forward(
    client: &mut TcpStream,
    head: &str,
    rest: &[u8],
    upstream: SocketAddr,
) -> io::Result<()> {
    let mut server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    let (line, headers) = head.split_once("\r\n").unwrap_or((head, "\r\n"));
    let head = format!("{line}\r\nconnection: close\r\n{headers}");
    server.write_all(head.as_bytes()).await?;
    server.write_all(rest).await?;
    copy_bidirectional(client, &mut server).await?;
    Ok(())
}

fn parse(head: &str) -> Head {
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let (method, target) = (word(), word());
    let token = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        name.eq_ignore_ascii_case("authorization")
            .then(|| value.trim_start_matches("Bearer ").to_owned())
    });

    Head {
        method,
        target,
        token: token.unwrap_or_default(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
