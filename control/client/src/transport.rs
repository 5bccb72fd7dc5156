//! HTTP transport under a [`kube::Client`].
//!
//! kube's own transport speaks HTTP/1.1, where each watch occupies a connection. This transport
//! offers HTTP/2 first (ALPN) and shares connections between watches. Requests that upgrade the
//! protocol (exec, attach, port-forward) always use HTTP/1.1, as do servers without HTTP/2.
//!
//! kube-apiserver accepts 100 streams per connection by default. hyper queues further streams
//! without an error, so a request behind 100 watches would never be sent. The pool therefore
//! counts the streams, reserves a tenth of each connection for requests that end, and has another
//! connection opened when all are full. Requests for Leases have a connection of their own.
//!
//! A request with the [`Leadership`](crate::election::Leadership) of its sender among its extensions is not
//! sent once the leadership has ended, however long it has waited for a connection.
//!
//! A remote API server is not trusted: [`ResponseBody`] bounds responses, the lines of watches, and the sum of
//! all that a transport receives at a time.

use crate::destination::Destinations;
use http::{Request, Response};
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};

mod body;
mod budget;
mod connect;
mod gate;
mod kind;
mod pool;
mod slots;

pub use body::{ReplacedError, ResponseBody};
pub use budget::LimitError;
pub use connect::{ConfigError, is_untrusted};
pub use gate::NotLeaderError;
pub use kind::{DeadlineError, Kind, TimeLimit};

use budget::Budget;
use connect::Connectors;
use pool::Pool;

/// Returns a client of the cluster in `config`, which connects on demand.
///
/// # Errors
///
/// Returns [`ConfigError`] if the certificates, keys, headers or the proxy are invalid.
pub fn client(config: &Config) -> Result<Client, ConfigError> {
    let transport = Transport::new(config, Destinations::Any)?;

    Ok(Client::new(transport, config.default_namespace.clone()))
}

type Stack = BoxCloneSyncService<Request<Body>, Response<ResponseBody>, BoxError>;

/// A tower service that sends requests to one cluster, for [`kube::Client::new`].
///
/// Clones share connections and configuration.
#[derive(Clone)]
pub struct Transport {
    current: Arc<RwLock<Generation>>,
    budget: Arc<Budget>,
    destinations: Destinations,
}

/// The service stack of one configuration, and the connections below the stack.
struct Generation {
    stack: Stack,
    pool: Pool,
    /// Connections for Leases. A Lease must be renewed in time, so its requests neither share a connection
    /// that may be dead nor wait while another request opens one.
    leases: Pool,
}

impl Transport {
    /// Creates a transport for the address and the credentials in `config`; connects on demand, and to these destinations
    /// only.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if the certificates, keys, headers or the proxy are invalid.
    pub fn new(config: &Config, destinations: Destinations) -> Result<Self, ConfigError> {
        let budget = Arc::<Budget>::default();
        let generation = Generation::new(config, &budget, destinations)?;

        Ok(Self {
            current: Arc::new(RwLock::new(generation)),
            budget,
            destinations,
        })
    }

    /// Replaces address and credentials of all requests from now on.
    ///
    /// Existing streams end with an error, because the previous credentials may be revoked and the
    /// previous address may be unreachable. A watcher resumes them at its resource version.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if `config` is invalid; then the previous configuration stays.
    pub fn replace(&self, config: &Config) -> Result<(), ConfigError> {
        let next = Generation::new(config, &self.budget, self.destinations)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let previous = std::mem::replace(&mut *current, next);
        drop(current);

        previous.pool.close();
        previous.leases.close();
        Ok(())
    }

    /// Returns the number of open HTTP/2 connections.
    pub fn connections(&self) -> usize {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.pool.connections() + current.leases.connections()
    }

    fn stack(&self) -> Stack {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.stack.clone()
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport")
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

impl Generation {
    fn new(
        config: &Config,
        budget: &Arc<Budget>,
        destinations: Destinations,
    ) -> Result<Self, ConfigError> {
        let connectors = Connectors::new(config, destinations)?;
        let uri = config.cluster_url.clone();
        let pool = Pool::new(uri.clone(), connectors.clone(), budget.clone());
        let leases = Pool::new(uri, connectors, budget.clone());
        let (of_leases, of_others) = (leases.clone(), pool.clone());
        let stack = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer().map_err(ConfigError::Credentials)?)
            .layer(config.extra_headers_layer().map_err(ConfigError::Headers)?)
            .map_err(BoxError::from)
            .service_fn(move |request: Request<Body>| {
                let kind = Kind::of(request.method(), request.uri(), request.headers());
                let is_lease = kind == Kind::Lease;
                let pool = if is_lease { &of_leases } else { &of_others };
                pool.clone().send(kind, request)
            });

        Ok(Self {
            stack: BoxCloneSyncService::new(stack),
            pool,
            leases,
        })
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.stack().oneshot(request))
    }
}

#[cfg(test)]
mod tests;
