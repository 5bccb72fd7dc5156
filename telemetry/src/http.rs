//! Serves metrics and health probes over HTTP.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// A process whose health and metrics the endpoints report.
pub trait Observed: Send + Sync + 'static {
    /// Checks whether the process works, for the liveness probe (`/healthz`).
    ///
    /// # Errors
    ///
    /// Returns the reason for which Kubernetes should restart the process. The endpoint sends the
    /// reason in the response body.
    fn healthy(&self) -> Result<(), String>;

    /// Checks whether the process can receive traffic, for the readiness probe (`/readyz`).
    ///
    /// # Errors
    ///
    /// Returns the reason for which the process cannot receive traffic. The endpoint sends the
    /// reason in the response body.
    fn ready(&self) -> Result<(), String>;

    /// Updates the metrics whose computation is too expensive for continuous updates.
    ///
    /// The endpoint `/metrics` awaits this future before each response.
    fn refresh(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The HTTP server cannot listen on its address, or stopped listening.
#[derive(Debug, thiserror::Error)]
#[error("failed to serve metrics and health on {address}: choose another --http address")]
pub struct Error {
    address: SocketAddr,
    source: std::io::Error,
}

/// Serves `/metrics` (OpenMetrics text), `/healthz` and `/readyz` until the future is dropped.
///
/// The first poll of the future binds `address`, in the network namespace of the polling thread.
///
/// # Errors
///
/// Returns [`Error`] if the address cannot be bound or the listener fails.
pub async fn serve(
    address: SocketAddr,
    registry: Arc<Registry>,
    observed: Arc<impl Observed>,
) -> Result<(), Error> {
    let error = |source| Error { address, source };
    let listener = TcpListener::bind(address).await.map_err(error)?;
    let ready = Arc::clone(&observed);
    let refreshed = Arc::clone(&observed);
    let metrics = async move || {
        refreshed.refresh().await;
        metrics(&registry)
    };
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async move || probe(observed.healthy())))
        .route("/readyz", get(async move || probe(ready.ready())));

    axum::serve(listener, routes).await.map_err(error)
}

fn metrics(registry: &Registry) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn probe(state: Result<(), String>) -> Response {
    match state {
        Ok(()) => "ok\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    #[derive(Default)]
    struct Starting(Counter<u64>);

    impl Observed for Starting {
        fn healthy(&self) -> Result<(), String> {
            Ok(())
        }

        fn ready(&self) -> Result<(), String> {
            Err("no peer yet".into())
        }

        async fn refresh(&self) {
            tokio::task::yield_now().await;
            self.0.inc();
        }
    }

    #[tokio::test]
    async fn metrics_health_and_readiness_are_served() {
        let address = free_address();
        let mut registry = Registry::default();
        let restarts = Counter::<u64>::default();
        registry.register("restarts", "Restarts", restarts.clone());
        restarts.inc_by(7);
        let refreshes = Counter::default();
        registry.register("refreshes", "Refreshes", refreshes.clone());
        let observed = Arc::new(Starting(refreshes));
        let server = tokio::spawn(serve(address, Arc::new(registry), observed));

        let metrics = fetch(address, "/metrics").await;
        let health = fetch(address, "/healthz").await;
        let ready = fetch(address, "/readyz").await;
        server.abort();

        assert!(metrics.contains("restarts_total 7"), "{metrics}");
        assert!(metrics.contains("refreshes_total 1"), "{metrics}");
        assert!(health.starts_with("HTTP/1.1 200"), "{health}");
        assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("no peer yet"));
    }

    #[tokio::test]
    async fn the_error_names_an_address_in_use() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();

        let error = serve(address, Arc::default(), Arc::new(Starting::default()))
            .await
            .unwrap_err();

        assert!(error.to_string().contains(&address.to_string()));
    }

    fn free_address() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    }

    async fn fetch(address: SocketAddr, path: &str) -> String {
        let connect = async {
            loop {
                if let Ok(stream) = TcpStream::connect(address).await {
                    return stream;
                }
                tokio::task::yield_now().await;
            }
        };
        let mut stream = tokio::time::timeout(std::time::Duration::from_secs(10), connect)
            .await
            .unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }
}
