//! Servers of gRPC and HTTP.

use crate::message::{Health, health};
use crate::place::Place;
use crate::role::Role;
use crate::rpc::{Calls, Clients, Rpc, SERVED_BY};
use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::Request;
use axum::routing::post;
use axum::serve::ListenerExt as _;
use prost::Message;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tonic::metadata::MetadataMap;
use tonic::server::Grpc;
use tonic::{Response, Status};
use tonic_prost::ProstCodec;
use tower::limit::GlobalConcurrencyLimitLayer;

/// The maximum number of requests in progress. Further requests wait.
const REQUESTS_MAX: usize = 256;

/// The time that a server accepts requests after SIGTERM, until the nodes of all clusters have
/// removed its pod from their Services.
const DRAIN: Duration = Duration::from_secs(2);

/// The RPCs of a service.
pub(crate) struct Server {
    role: Role,
    place: Place,
    clients: Clients,
    router: Router,
}

impl Server {
    /// Creates a server that replies to health checks.
    ///
    /// # Errors
    ///
    /// Returns an error if the address of another service is invalid.
    pub(crate) fn new(role: Role) -> Result<Self> {
        let server = Self {
            role,
            place: Place::of_this_process(),
            clients: Clients::new()?,
            router: Router::new(),
        };

        Ok(server.on(health(role), async |_, _| Ok(Health { status: 1 })))
    }

    /// Returns the clients of all services.
    pub(crate) fn clients(&self) -> Clients {
        self.clients.clone()
    }

    /// Adds the handler of a procedure. The reply names the pods that took part.
    pub(crate) fn on<Q, A, H, F>(mut self, rpc: Rpc<Q, A>, handler: H) -> Self
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        H: Fn(Arc<Calls>, Q) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<A, Status>> + Send,
    {
        let own = format!("{}/{}", self.role, self.place);
        let clients = self.clients();
        let route = async move |request: Request| {
            let reply = tower::service_fn(|request: tonic::Request<Q>| async {
                let calls = Arc::new(Calls::new(clients.clone()));
                let outcome = handler(Arc::clone(&calls), request.into_inner()).await;
                let mut outcome = outcome.map(Response::new);
                let metadata = match &mut outcome {
                    Ok(response) => response.metadata_mut(),
                    Err(status) => status.metadata_mut(),
                };
                append(metadata, &own);
                for (service, place) in calls.served() {
                    if let Ok(place) = place {
                        append(metadata, &format!("{service}/{place}"));
                    }
                }

                outcome
            });
            let mut grpc = Grpc::new(ProstCodec::<A, Q>::default());
            grpc.unary(reply, request).await
        };
        self.router = self.router.route(rpc.path, post(route));

        self
    }

    /// Returns the routes of all procedures.
    pub(crate) fn into_router(self) -> Router {
        self.router
    }
}

fn append(metadata: &mut MetadataMap, place: &str) {
    if let Ok(value) = place.parse() {
        metadata.append(SERVED_BY, value);
    }
}

/// Serves HTTP/1.1, and HTTP/2 without TLS, until SIGTERM. Prints the address.
///
/// # Errors
///
/// Returns an error if the address is in use.
pub(crate) async fn serve(router: Router, listen: SocketAddr) -> Result<()> {
    let context = || format!("failed to listen on {listen}: choose another --listen address");
    let listener = TcpListener::bind(listen).await.with_context(context)?;
    let mut terminate = signal(SignalKind::terminate()).context("failed to handle SIGTERM")?;
    println!("listening on {}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        // Without this option, TCP delays small frames. A connection works without it, too.
        let _ = stream.set_nodelay(true);
    });
    let router = router.layer(GlobalConcurrencyLimitLayer::new(REQUESTS_MAX));
    let drained = async move {
        terminate.recv().await;
        tokio::time::sleep(DRAIN).await;
    };

    axum::serve(listener, router)
        .with_graceful_shutdown(drained)
        .await
        .context("failed to serve")
}
