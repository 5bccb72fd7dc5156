//! The server of the webhooks.

use super::handler::Settings;
use super::metrics::Metrics;
use super::requests::Webhooks;
use super::serving::ServingCertificate;
use crate::certificates::{WEBHOOKS, provider};
use control_runtime::CacheReader;
use https_server::{Limit, Slots, Timeouts};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_rustls::rustls::{self, ServerConfig};

/// Longest header of a request, in bytes.
const HEADER_LEN_MAX: usize = 16 << 10;

const HEADER_FIELDS_MAX: usize = 64;

/// Limits of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Open connections. An API server opens one for each request that it handles at a time, by default up to 600.
    pub(crate) connections: Limit,
    /// Bytes of request bodies in memory.
    pub(crate) bodies: Limit,
    /// Durations of connections.
    pub(crate) timeouts: Timeouts,
    /// From the header of a request to the end of its body.
    pub(crate) body_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: Limit {
                total: 2048,
                per_source: 640,
            },
            bodies: Limit {
                total: 64 << 20,
                per_source: 24 << 20,
            },
            timeouts: Timeouts {
                start: Duration::from_secs(5),
                idle: Duration::from_secs(120),
                response: None,
                endpoint_removal: Duration::from_secs(3),
                drain: Duration::from_secs(5),
            },
            body_timeout: Duration::from_secs(5),
        }
    }
}

/// The server of the webhooks.
pub(crate) struct Server {
    inner: https_server::Server<Webhooks>,
    readiness: Readiness,
}

/// Whether the server can serve. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Readiness {
    accepts: Arc<AtomicBool>,
    certificate: Arc<ServingCertificate>,
}

impl Readiness {
    /// Checks that API servers can connect.
    ///
    /// # Errors
    ///
    /// Returns the reason for which they cannot.
    pub(crate) fn ready(&self) -> Result<(), String> {
        if !self.accepts.load(Ordering::Relaxed) {
            return Err("the server of the webhooks is starting or stopping".to_owned());
        }
        match self.certificate.current() {
            Some(_) => Ok(()),
            None => Err(format!(
                "Secret {} has no certificate yet: see the Events of the Secret",
                WEBHOOKS.secret
            )),
        }
    }
}

impl Server {
    /// Creates a server with Liqo in `namespace`.
    ///
    /// # Errors
    ///
    /// Returns an error if the TLS library has no cipher suites.
    pub(crate) fn new(
        cache: CacheReader,
        namespace: &str,
        settings: Settings,
        metrics: Metrics,
        limits: Limits,
    ) -> Result<Self, rustls::Error> {
        let certificate = Arc::new(ServingCertificate::new(cache.clone(), namespace));
        let tls = ServerConfig::builder_with_provider(provider());
        let tls = tls.with_safe_default_protocol_versions()?;
        let resolver = Arc::clone(&certificate);
        let tls = tls.with_no_client_auth().with_cert_resolver(resolver);
        let webhooks = Webhooks {
            cache,
            settings,
            metrics,
            bodies: Slots::new(limits.bodies),
            body_timeout: limits.body_timeout,
        };
        let settings = https_server::Settings {
            connections: limits.connections,
            header_len_max: HEADER_LEN_MAX,
            header_fields_max: HEADER_FIELDS_MAX,
            timeouts: limits.timeouts,
        };
        let inner = https_server::Server::new(webhooks, tls, settings);
        let readiness = Readiness {
            accepts: inner.accepts(),
            certificate,
        };

        Ok(Self { inner, readiness })
    }

    /// Returns the readiness, which follows the server.
    pub(crate) fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Serves until `stop` completes and the requests in progress have ended.
    pub(crate) async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        self.inner.run(listener, stop).await;
    }
}
