//! The server of the API.

use super::Settings;
use super::api::Api;
use super::metrics::Metrics;
use super::response::Pieces;
use super::scrape::Scraper;
use super::serving::{ServingCertificate, tls};
use control_runtime::{CacheReader, RuntimeStatus};
use http::{Request, Response};
use https_server::{Limit, Service};
use hyper::body::Incoming;
use kube::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use telemetry::http::Observed;
use tokio::net::TcpListener;
use tokio_rustls::rustls;

/// Open connections. API servers open one for each request that they handle at a time.
const CONNECTIONS: Limit = Limit {
    total: 512,
    per_source: 256,
};

/// Longest header of a request, in bytes. The API server names all groups of the requester in it.
const HEADER_LEN_MAX: usize = 128 << 10;

const HEADER_FIELDS_MAX: usize = 2048;

/// The server of the API.
pub struct Server {
    inner: https_server::Server<Agent>,
    state: Arc<State>,
}

/// Responds to requests.
struct Agent(Arc<Api>);

/// Health and readiness of the agent.
pub struct State {
    api: Arc<Api>,
    certificate: Arc<ServingCertificate>,
    accepts: Arc<AtomicBool>,
}

impl Observed for State {
    fn healthy(&self) -> Result<(), String> {
        self.api.status.healthy()
    }

    fn ready(&self) -> Result<(), String> {
        if !self.accepts.load(Ordering::Relaxed) {
            return Err("the agent is starting or stopping".to_owned());
        }
        self.api.ready()?;
        match self.certificate.current() {
            Some(_) => Ok(()),
            None => Err("the Secret has no valid certificate yet: see its Events".to_owned()),
        }
    }
}

impl Server {
    /// Creates a server that reads `cache`, whose runtime has `status`, and reviews rights by `client`.
    ///
    /// # Errors
    ///
    /// Returns an error if the TLS library has no cipher suites.
    pub fn new(
        settings: Settings,
        cache: CacheReader,
        status: RuntimeStatus,
        client: Client,
        metrics: Metrics,
    ) -> Result<Self, rustls::Error> {
        let certificate = Arc::new(ServingCertificate::new(settings.certificate));
        let tls = tls(Arc::clone(&certificate))?;
        let scraper = Scraper::new(settings.kubelets, settings.limits, metrics.clone());
        let api = Api {
            cache,
            status,
            client,
            scraper,
            metrics,
        };
        let api = Arc::new(api);
        let limits = https_server::Settings {
            connections: CONNECTIONS,
            header_len_max: HEADER_LEN_MAX,
            header_fields_max: HEADER_FIELDS_MAX,
            timeouts: settings.timeouts,
        };
        let inner = https_server::Server::new(Agent(Arc::clone(&api)), tls, limits);
        let state = State {
            api,
            certificate,
            accepts: inner.accepts(),
        };

        Ok(Self {
            inner,
            state: Arc::new(state),
        })
    }

    /// Returns the state, which follows the server.
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.state)
    }

    /// Serves until `stop` completes and the requests in progress have ended.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        // A valid certificate is there before the first connection, unless the files are not.
        let _ = self.state.certificate.load().await;
        let stop = async {
            tokio::select! {
                () = self.state.certificate.follow() => {}
                () = stop => {}
            }
        };
        self.inner.run(listener, stop).await;
    }
}

impl Service for Agent {
    type Body = Pieces;
    type State = ();

    async fn respond(
        &self,
        request: Request<Incoming>,
        client: &https_server::Client,
        (): &(),
    ) -> Response<Pieces> {
        self.0.respond(&client.chain, &request).await
    }

    fn connected(&self, connections: usize) {
        self.0.metrics.connected(connections);
    }

    fn refused(&self, reason: &'static str) {
        self.0.metrics.refused(reason);
    }
}
