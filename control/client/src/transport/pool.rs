//! The connections of one configuration of a cluster.

use super::body::{Replaced, ReplacedError, ResponseBody};
use super::budget::{Budget, Meter};
use super::connect::{CONNECT_TIMEOUT, Connector, Connectors, Stream};
use super::gate::{NotLeaderError, RequestBody, gated};
use super::kind::{DeadlineError, Kind, TimeLimit};
use super::slots::{Id, STREAMS_MAX, Slots};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::client::legacy::{self, connect::Connection as _};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::Body;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tower::{BoxError, ServiceExt as _};

/// Bytes that the server may send ahead of the reader, per stream.
const STREAM_WINDOW: u32 = 128 << 10;

/// Bytes that the server may send ahead of the readers of a connection: enough for all its streams,
/// so that a stream which nothing reads does not block the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * (STREAMS_MAX as u32 + 1);

/// A connection whose PING (RFC 9113, section 6.7) has no reply is closed.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(30);
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The time after which a connection without streams is closed, unless it is the only one.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The time for which a server that chose HTTP/1.1 is used with HTTP/1.1, before it is offered HTTP/2 again: one
/// of several servers, or a proxy, may have chosen it.
pub(super) const HTTP1_MAX: Duration = Duration::from_secs(300);

/// A request that a closed connection did not send is sent on another connection, this often.
const ATTEMPTS: usize = 3;

/// Sends each request on a connection with room for it.
#[derive(Clone)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    uri: Uri,
    connector: Connector,
    http1: legacy::Client<Connector, RequestBody>,
    /// Held while a connection is opened, so that concurrent requests wait for one connection
    /// instead of opening one each.
    opening: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    closed: watch::Sender<bool>,
    /// Bounds the responses in progress.
    budget: Arc<Budget>,
}

#[derive(Default)]
struct State {
    slots: Slots,
    senders: BTreeMap<Id, SendRequest<RequestBody>>,
    /// Until when HTTP/1.1 is used, because the server chose it.
    http1_until: Option<Instant>,
}

/// A stream of a connection; dropping it lets another request use the stream.
pub(super) struct Permit {
    shared: Weak<Shared>,
    id: Id,
    kind: Kind,
}

/// The server redirects the request. A server must not make this process send requests to another server, with
/// or without credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server redirects to another server (status {0}), which is not followed")]
struct RedirectError(u16);

enum Lease {
    Http1,
    Http2(SendRequest<RequestBody>, Permit),
}

impl Pool {
    /// Creates a pool without connections to the server of `uri`.
    pub(super) fn new(uri: Uri, connectors: Connectors, budget: Arc<Budget>) -> Self {
        let http1 = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_timer(TokioTimer::new())
            .build(connectors.http1);

        let shared = Shared {
            uri,
            connector: connectors.any,
            http1,
            opening: tokio::sync::Mutex::default(),
            state: Mutex::default(),
            closed: watch::Sender::new(false),
            budget,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Ends all requests and responses in progress, and closes the connections.
    pub(super) fn close(&self) {
        self.shared.closed.send_replace(true);
        let senders = std::mem::take(&mut self.shared.state().senders);
        drop(senders);
    }

    /// Returns the number of HTTP/2 connections that accept requests.
    pub(super) fn connections(&self) -> usize {
        self.shared.state().slots.len()
    }

    /// Sends a request; the response ends at the limits of its kind, and when the pool is closed.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no response before the deadline of its kind, and
    /// [`NotLeaderError`] if the leadership of the request ends before it is sent.
    pub(super) async fn send(
        self,
        kind: Kind,
        request: Request<Body>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let limit = TimeLimit::of(&request, kind);
        let deadline = Instant::now() + limit;
        let (request, gate) = gated(request);

        let (response, permit) = tokio::select! {
            head = self.exchange(kind, limit, request) => head?,
            () = self.shared.replaced() => return Err(ReplacedError.into()),
            () = gate.closed() => return Err(NotLeaderError.into()),
        };

        if response.status().is_redirection() {
            return Err(RedirectError(response.status().as_u16()).into());
        }

        let meter = Meter::new(kind, self.shared.budget.clone());
        let replaced = self.shared.replaced();
        let permit = permit.map(|permit| Box::new(permit) as Box<dyn Send>);
        Ok(response.map(|body| ResponseBody::new(body, meter, deadline, replaced, permit)))
    }

    async fn exchange(
        &self,
        kind: Kind,
        limit: Duration,
        mut request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Option<Permit>), BoxError> {
        let deadline = Instant::now() + limit;
        let late = |_| DeadlineError { kind, limit };
        let mut attempts = 0;
        loop {
            let lease = timeout_at(deadline, self.lease(kind)).await;
            let lease = lease.map_err(late)??;
            request.body().check()?;
            let (mut sender, permit) = match lease {
                Lease::Http1 => {
                    let response = timeout_at(deadline, self.shared.http1.request(request)).await;
                    return Ok((response.map_err(late)??, None));
                }
                Lease::Http2(sender, permit) => (sender, permit),
            };
            let response = timeout_at(deadline, sender.try_send_request(request)).await;
            if response.is_err() {
                // A server may be gone although nothing closes the connection, for example behind a load
                // balancer. Requests from now on use another connection.
                self.shared.state().remove(permit.id);
            }
            let mut error = match response.map_err(late)? {
                Ok(response) => return Ok((response, Some(permit))),
                Err(error) => error,
            };
            attempts += 1;
            request = match error.take_message() {
                Some(unsent) if attempts < ATTEMPTS => unsent,
                _ => return Err(error.into_error().into()),
            };
            // The connection is closed or draining; its driver may not have noticed yet.
            self.shared.state().remove(permit.id);
        }
    }

    /// Returns a stream, on a new connection if all others are full.
    async fn lease(&self, kind: Kind) -> Result<Lease, BoxError> {
        if kind == Kind::Upgrade {
            return Ok(Lease::Http1);
        }
        if let Some(lease) = self.existing(kind) {
            return Ok(lease);
        }
        let _opening = self.shared.opening.lock().await;
        loop {
            if let Some(lease) = self.existing(kind) {
                return Ok(lease);
            }
            timeout(CONNECT_TIMEOUT, self.open()).await??;
        }
    }

    fn existing(&self, kind: Kind) -> Option<Lease> {
        let mut state = self.shared.state();
        if state.http1_until.is_some_and(|end| Instant::now() < end) {
            return Some(Lease::Http1);
        }
        while let Some(id) = state.slots.open(kind) {
            match state.senders.get(&id) {
                Some(sender) if !sender.is_closed() => {
                    let sender = sender.clone();
                    let shared = Arc::downgrade(&self.shared);
                    return Some(Lease::Http2(sender, Permit { shared, id, kind }));
                }
                _ => state.remove(id),
            }
        }
        None
    }

    /// Opens a connection, and remembers the server's choice of protocol.
    async fn open(&self) -> Result<(), BoxError> {
        let connector = self.shared.connector.clone();
        let stream = connector.oneshot(self.shared.uri.clone()).await?;
        if !stream.connected().is_negotiated_h2() {
            self.shared.state().http1_until = Some(Instant::now() + HTTP1_MAX);
            return Ok(());
        }

        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_max_send_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(stream)
            .await?;
        let id = self.shared.state().add(sender);
        tokio::spawn(drive(Arc::downgrade(&self.shared), id, connection));
        Ok(())
    }
}

/// Runs a connection until it closes, and reports the server's limit of streams to the pool.
async fn drive(
    shared: Weak<Shared>,
    id: Id,
    connection: http2::Connection<Stream, RequestBody, TokioExecutor>,
) {
    let mut connection = pin!(connection);
    let mut reported = STREAMS_MAX;
    let end = poll_fn(|cx| {
        let poll = connection.as_mut().poll(cx);
        let limit = connection.current_max_send_streams();
        if limit != reported
            && let Some(shared) = shared.upgrade()
        {
            shared.state().slots.set_limit(id, limit);
            reported = limit;
        }
        poll
    });

    if let Err(error) = end.await {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "connection to the API server closed"
        );
    }
    if let Some(shared) = shared.upgrade() {
        shared.state().remove(id);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replaced(&self) -> Replaced {
        let mut closed = self.closed.subscribe();
        Box::pin(async move {
            // An error means that the pool is gone: then the stream lives on its connection alone.
            if closed.wait_for(|closed| *closed).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

impl State {
    fn add(&mut self, sender: SendRequest<RequestBody>) -> Id {
        let id = self.slots.add();
        self.senders.insert(id, sender);
        id
    }

    fn remove(&mut self, id: Id) {
        self.slots.remove(id);
        self.senders.remove(&id);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let mut state = shared.state();
        let now = Instant::now();
        state.slots.close(self.id, self.kind, now.into_std());
        for id in state.slots.surplus(now.into_std(), IDLE_MAX) {
            state.remove(id);
        }
    }
}
