//! One client: reads its request, connects to the API server, and relays.

use super::Settings;
use super::metrics::Metrics;
use super::relay::relay;
use super::request::{HeadReader, Progress, Refusal};
use https_server::Exceeded;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Number of bytes to read at once before the head is complete. Early data is shorter.
const READ_LEN: usize = 4 * 1024;

/// Time for the kernel to take a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// State that all connections share.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) settings: Settings,
    pub(super) metrics: Metrics,
    /// Whether the last dial failed, so that a failure is logged once.
    is_unreachable: AtomicBool,
}

/// Why a client gets no connection to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Request(Refusal),
    /// The head of the request was not complete in time.
    Slow,
    /// The client has closed or reset the connection before its request was complete.
    Gone,
    Unreachable,
    Limit(Exceeded),
}

impl Refused {
    /// Returns the reason for metrics and logs.
    fn reason(self) -> &'static str {
        match self {
            Self::Request(Refusal::Malformed) => "malformed_request",
            Self::Request(Refusal::Method) => "method",
            Self::Request(Refusal::TooLong) => "long_head",
            Self::Request(Refusal::Version) => "version",
            Self::Slow => "head_timeout",
            Self::Gone => "client_gone",
            Self::Unreachable => "api_server_unreachable",
            Self::Limit(exceeded) => exceeded.0,
        }
    }

    /// Returns the response; `None` if the client is gone.
    pub(super) fn response(self) -> Option<String> {
        let (status, text) = match self {
            Self::Request(Refusal::Malformed) => ("400 Bad Request", "malformed request line"),
            Self::Request(Refusal::Method) => (
                "405 Method Not Allowed\r\nAllow: CONNECT",
                "this proxy only supports CONNECT",
            ),
            Self::Request(Refusal::TooLong) => (
                "431 Request Header Fields Too Large",
                "the request header exceeds 8 KiB",
            ),
            Self::Request(Refusal::Version) => (
                "505 HTTP Version Not Supported",
                "this proxy only supports HTTP/1.1",
            ),
            Self::Slow => ("408 Request Timeout", "the request header is incomplete"),
            Self::Unreachable => ("502 Bad Gateway", "the API server is unreachable"),
            Self::Limit(_) => ("503 Service Unavailable", "too many connections"),
            Self::Gone => return None,
        };

        Some(format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}\n",
            text.len() + 1
        ))
    }
}

impl Context {
    pub(super) fn new(settings: Settings, metrics: Metrics) -> Self {
        Self {
            settings,
            metrics,
            is_unreachable: AtomicBool::new(false),
        }
    }

    /// Serves a client until its connection ends.
    pub(super) async fn serve(&self, mut client: TcpStream) {
        match self.establish(&mut client).await {
            Ok((mut api_server, early_data)) => {
                self.metrics.accepted();
                let timeouts = self.settings.timeouts;
                let metrics = &self.metrics;
                let end = relay(&mut client, &mut api_server, &early_data, timeouts, metrics).await;
                tracing::debug!(reason = end.reason(), "connection has ended");
                metrics.ended(end.reason());
            }
            Err(refused) => {
                self.count(refused);
                let refusal = refuse(&mut client, refused);
                // A client that does not read gets no response.
                let _ = timeout(REFUSAL_TIMEOUT, refusal).await;
            }
        }
    }

    /// Counts a refusal.
    pub(super) fn count(&self, refused: Refused) {
        tracing::debug!(reason = refused.reason(), "connection refused");
        self.metrics.refused(refused.reason());
    }

    async fn establish(&self, client: &mut TcpStream) -> Result<(TcpStream, Vec<u8>), Refused> {
        let head = timeout(self.settings.timeouts.head, read_head(client));
        let early_data = head.await.map_err(|_| Refused::Slow)??;
        let api_server = self.dial().await.ok_or(Refused::Unreachable)?;
        // Failure only delays small messages.
        let _ = client.set_nodelay(true);
        let _ = api_server.set_nodelay(true);

        Ok((api_server, early_data))
    }

    /// Connects to the API server, and logs when that begins to fail or to succeed.
    async fn dial(&self) -> Option<TcpStream> {
        let api_server = self.settings.api_server.as_str();
        let dialled = timeout(self.settings.timeouts.dial, TcpStream::connect(api_server)).await;
        let dialled = dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let is_failure = dialled.is_err();
        let was_failure = self.is_unreachable.swap(is_failure, Ordering::Relaxed);
        match &dialled {
            Err(error) if !was_failure => {
                tracing::warn!(api_server, %error, "the API server is unreachable");
            }
            Ok(_) if was_failure => tracing::info!(api_server, "the API server is reachable"),
            Ok(_) | Err(_) => {}
        }

        dialled.ok()
    }
}

/// Reads the head of a request, and returns the bytes after it.
async fn read_head(client: &mut TcpStream) -> Result<Vec<u8>, Refused> {
    let mut reader = HeadReader::default();
    let mut buffer = [0; READ_LEN];
    loop {
        let read = client.read(&mut buffer).await.map_err(|_| Refused::Gone)?;
        if read == 0 {
            return Err(Refused::Gone);
        }
        match reader.push(&buffer[..read]) {
            Progress::Incomplete => {}
            Progress::Connect { early_data } => return Ok(early_data),
            Progress::Refused(refusal) => return Err(Refused::Request(refusal)),
        }
    }
}

/// Sends the response, and ends the connection.
async fn refuse(client: &mut TcpStream, refused: Refused) -> io::Result<()> {
    let Some(response) = refused.response() else {
        return Ok(());
    };
    client.write_all(response.as_bytes()).await?;

    // The client gets the response before the reset that bytes cause which nothing has read.
    client.shutdown().await
}
