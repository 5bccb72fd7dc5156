//! Copies between client and API server until a connection ends.

use super::Timeouts;
use super::idle::Idle;
use super::metrics::{Direction, Metrics};
use prometheus_client::metrics::counter::Counter;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Buffer of each direction, in bytes. A side that does not read makes the other side wait. TLS records have at most 16 KiB.
const BUFFER_LEN: usize = 16 * 1024;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Both sides have closed it.
    Closed,
    /// A side has reset it.
    Reset,
    /// There was no data for too long.
    Idle,
    /// One side has closed it, and the other sent no data for too long.
    HalfClosed,
}

impl End {
    /// Returns the reason for metrics and logs.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Idle => "idle",
            Self::HalfClosed => "half_closed",
        }
    }
}

/// Confirms the connection to the client, forwards its early data, and copies until the connection ends.
pub(super) async fn relay(
    client: &mut TcpStream,
    api_server: &mut TcpStream,
    early_data: &[u8],
    timeouts: Timeouts,
    metrics: &Metrics,
) -> End {
    let activity = Activity::new(timeouts);
    let (from_client, to_client) = client.split();
    let (from_api_server, to_api_server) = api_server.split();
    let mut up = Copy {
        to: to_api_server,
        bytes: Some(metrics.bytes(Direction::ToApiServer)),
        activity: &activity,
    };
    let mut down = Copy {
        to: to_client,
        bytes: None,
        activity: &activity,
    };
    let copied = async {
        let up = async {
            up.send(early_data).await?;
            up.run(from_client).await
        };
        let down = async {
            down.send(ESTABLISHED).await?;
            down.bytes = Some(metrics.bytes(Direction::ToClient));
            down.run(from_api_server).await
        };
        tokio::try_join!(up, down)
    };

    tokio::select! {
        copied = copied => match copied {
            Ok(_) => End::Closed,
            Err(_) => End::Reset,
        },
        end = activity.timed_out() => end,
    }
}

/// One direction of a connection.
struct Copy<'a, W> {
    to: W,
    /// Counts what is sent, unless it is the proxy's own.
    bytes: Option<Counter>,
    activity: &'a Activity,
}

impl<W: AsyncWrite + Unpin> Copy<'_, W> {
    /// Copies until the sender ends its direction.
    async fn run(&mut self, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_LEN];
        loop {
            let read = from.read(&mut buffer).await?;
            if read == 0 {
                self.to.shutdown().await?;
                self.activity.end();
                return Ok(());
            }
            self.send(&buffer[..read]).await?;
        }
    }

    async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = self.to.write(bytes).await?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.activity.data();
            if let Some(counter) = &self.bytes {
                counter.inc_by(sent as u64);
            }
            bytes = &bytes[sent..];
        }

        Ok(())
    }
}

/// When a connection had data; shared by both directions.
struct Activity {
    idle: Mutex<Idle>,
    is_half_closed: Notify,
}

impl Activity {
    fn new(timeouts: Timeouts) -> Self {
        Self {
            idle: Mutex::new(Idle::new(timeouts, Instant::now())),
            is_half_closed: Notify::new(),
        }
    }

    fn data(&self) {
        self.idle().handle_data(Instant::now());
    }

    fn end(&self) {
        self.idle().handle_end(Instant::now());
        self.is_half_closed.notify_one();
    }

    /// Completes at the deadline of [`Idle`]. Data only moves the deadline, so there is one timer per timeout.
    async fn timed_out(&self) -> End {
        loop {
            let deadline = self.idle().deadline();
            tokio::select! {
                () = sleep_until(deadline) => {}
                () = self.is_half_closed.notified() => continue,
            }
            let idle = *self.idle();
            if idle.deadline() <= Instant::now() {
                return match idle.is_half_closed() {
                    true => End::HalfClosed,
                    false => End::Idle,
                };
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
