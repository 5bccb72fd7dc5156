//! The server of the kubelet's API, and its limits.

use super::api::Api;
use super::authority::provider;
use super::body::Body;
use super::certificate::Serving;
use super::splice::{self, splice};
use super::tunnel::Tunnel;
use http::{Request, Response};
use https_server::{AnyClient, Client, Limit, Service, Timeouts};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::timeout;
use tokio_rustls::rustls::{self, ServerConfig};

/// Connections that are not accepted yet.
const BACKLOG: u32 = 128;

/// Longest header of a request, in bytes. The URL contains the command, and has at most 64 KiB.
const HEADER_LEN_MAX: usize = 96 << 10;

const HEADER_FIELDS_MAX: usize = 64;

/// Time in which both connections of a stream switch to another protocol.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Limits of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Open connections, by source address. An API server has one for each of its users' streams.
    pub(crate) connections: Limit,
    /// Open streams, by user. The API server is one user.
    pub(crate) streams: Limit,
    /// Durations of connections.
    pub(crate) timeouts: Timeouts,
    /// Durations of streams.
    pub(crate) stream_timeouts: splice::Timeouts,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: Limit {
                total: 512,
                per_source: 256,
            },
            streams: Limit {
                total: 256,
                per_source: 192,
            },
            timeouts: Timeouts {
                start: Duration::from_secs(10),
                idle: Duration::from_secs(120),
                response: None,
                endpoint_removal: Duration::ZERO,
                drain: Duration::from_secs(5),
            },
            stream_timeouts: splice::Timeouts::default(),
        }
    }
}

/// The server of the kubelet's API.
pub(crate) struct Server(https_server::Server<Kubelet>);

struct Kubelet {
    api: Api,
    stream_timeouts: splice::Timeouts,
}

/// Returns a listener at an address. Connections whose clients are gone end by TCP keepalive.
///
/// # Errors
///
/// Returns an error if the address cannot be bound.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    // Linux passes it on to connections that are accepted.
    socket.set_keepalive(true)?;
    socket.bind(address)?;

    socket.listen(BACKLOG)
}

impl Server {
    /// Creates a server.
    ///
    /// # Errors
    ///
    /// Returns an error if the TLS library has no cipher suites.
    pub(crate) fn new(api: Api, serving: Serving, limits: Limits) -> Result<Self, rustls::Error> {
        let kubelet = Kubelet {
            api,
            stream_timeouts: limits.stream_timeouts,
        };
        let provider = provider();
        let any_client = AnyClient::new(&provider);
        let tls = ServerConfig::builder_with_provider(provider);
        let tls = tls.with_safe_default_protocol_versions()?;
        let tls = tls.with_client_cert_verifier(any_client);
        let tls = tls.with_cert_resolver(Arc::new(serving));
        let settings = https_server::Settings {
            connections: limits.connections,
            header_len_max: HEADER_LEN_MAX,
            header_fields_max: HEADER_FIELDS_MAX,
            timeouts: limits.timeouts,
        };

        Ok(Self(https_server::Server::new(kubelet, tls, settings)))
    }

    /// Serves clients until `stop` completes. Then requests and streams in progress have a short time to end.
    pub(crate) async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        self.0.run(listener, stop).await;
    }
}

impl Service for Kubelet {
    type Body = Body;
    /// The stream that the connection becomes.
    type State = Mutex<Option<Tunnel>>;

    async fn respond(
        &self,
        request: Request<Incoming>,
        client: &Client,
        state: &Self::State,
    ) -> Response<Body> {
        let (response, tunnel) = self.api.respond(request, &client.chain).await;
        if tunnel.is_some() {
            *state.lock().unwrap_or_else(PoisonError::into_inner) = tunnel;
        }

        response
    }

    /// Copies the bytes of a stream until it ends.
    async fn continued(&self, state: &Self::State) {
        let tunnel = state.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(tunnel) = tunnel else {
            return;
        };
        let upgraded = timeout(SWITCH_TIMEOUT, tunnel.upgraded()).await;
        let (client, provider, _slot) = match upgraded {
            Ok(Ok(upgraded)) => upgraded,
            Ok(Err(error)) => return tracing::debug!(%error, "failed to switch protocols"),
            Err(_) => return tracing::debug!("timed out while switching protocols"),
        };
        let (client, provider) = (TokioIo::new(client), TokioIo::new(provider));
        splice(client, provider, self.stream_timeouts).await;
    }

    fn connected(&self, connections: usize) {
        self.api.metrics.connected(connections);
    }

    fn refused(&self, reason: &'static str) {
        self.api.metrics.refused(reason);
    }
}
