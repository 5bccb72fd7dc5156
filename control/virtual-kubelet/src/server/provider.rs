//! Requests to the provider's API server, and its refusals.

use super::body::{Body, collected};
use super::query::Query;
use super::refusal::Refusal;
use super::upgrade::Protocol;
use control_runtime::{Clients, Cluster, Key, Ref};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

/// Longest body of a refusal that is forwarded, in bytes.
const REFUSAL_LEN_MAX: usize = 16 << 10;

/// Why a provider with upstream's roles refuses WebSocket clients.
const GET_IS_MISSING: &str = "the provider grants no verb `get` on `pods/exec`, `pods/attach` or `pods/portforward`, which \
                              WebSocket clients need: use a client that speaks SPDY (KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false), \
                              or add the verb to the provider's ClusterRole liqo-virtual-kubelet-remote";

/// The provider, with the credentials of this process.
#[derive(Clone, Debug)]
pub(crate) struct Provider {
    clients: Clients,
    cluster: Cluster,
}

impl Provider {
    /// Creates the access to a provider.
    pub(crate) fn new(clients: Clients, cluster: Cluster) -> Self {
        Self { clients, cluster }
    }

    /// Sends a request that switches to another protocol about a pod of the provider. Returns any response.
    ///
    /// # Errors
    ///
    /// Returns a refusal if there is no response.
    pub(crate) async fn upgrade(
        &self,
        method: &Method,
        (pod, subresource): (&Key, &str),
        query: &Query,
        headers: HeaderMap,
    ) -> Result<Response<Body>, Refusal> {
        let mut request = self.request(method, &self.path(pod, subresource, query))?;
        *request.headers_mut() = headers;

        self.send(request).await
    }

    /// Reads the log of a container. The body has no limit.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the provider refuses.
    pub(crate) async fn log(&self, pod: &Key, query: &Query) -> Result<Body, Refusal> {
        self.get(&self.path(pod, "log", query)).await
    }

    /// Reads metrics that the provider has collected for a cluster. `path` is that of a kubelet.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the provider refuses.
    pub(crate) async fn metrics(&self, home: &str, path: &str) -> Result<Body, Refusal> {
        self.get(&format!(
            "/apis/metrics.liqo.io/v1beta1/scrape/{home}/{path}"
        ))
        .await
    }

    async fn get(&self, path: &str) -> Result<Body, Refusal> {
        let response = self.send(self.request(&Method::GET, path)?).await?;
        if response.status() == StatusCode::OK {
            return Ok(response.into_body());
        }
        let status = response.status();
        let text = refusal_text(response.into_body()).await;

        Err(Refusal::new(status, message_of(&text)))
    }

    fn path(&self, pod: &Key, subresource: &str, query: &Query) -> String {
        let query: Vec<_> = query
            .iter()
            .map(|(name, it)| (*name, it.as_str()))
            .collect();
        Ref::of::<Pod>(&self.cluster, pod).path(Some(subresource), &query)
    }

    fn request(&self, method: &Method, path: &str) -> Result<Request<kube::client::Body>, Refusal> {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(kube::client::Body::empty());
        request.map_err(|error| Refusal::invalid(format!("failed to forward the request: {error}")))
    }

    async fn send(&self, request: Request<kube::client::Body>) -> Result<Response<Body>, Refusal> {
        let client = self.clients.get(&self.cluster).ok_or_else(|| {
            Refusal::unreachable(format!(
                "the provider {} is not connected yet",
                self.cluster
            ))
        })?;
        let response = client.send(request).await.map_err(|error| {
            tracing::debug!(%error, provider = %self.cluster, "failed to forward a request");
            // The cause names addresses of the provider, which users need not know.
            Refusal::unreachable(format!(
                "the API server of {} does not respond",
                self.cluster
            ))
        })?;

        Ok(response.map(Body::of_provider))
    }
}

/// Returns the response to a client whose request the provider refuses.
pub(crate) async fn refused(
    response: Response<Body>,
    protocol: Protocol,
) -> (StatusCode, &'static str, String) {
    let status = response.status();
    let mut text = refusal_text(response.into_body()).await;
    let mut status_object = serde_json::from_str::<Value>(&text).ok();
    if status == StatusCode::FORBIDDEN && protocol == Protocol::WebSocket {
        let message = format!("{}: {GET_IS_MISSING}", message_of(&text).trim_end());
        match status_object
            .as_mut()
            .filter(|it| it["message"].is_string())
        {
            Some(object) => {
                object["message"] = message.into();
                text = object.to_string();
            }
            None => text = message,
        }
    }
    // kubectl shows the message of a Status.
    let content_type = match status_object {
        Some(_) => "application/json",
        None => "text/plain; charset=utf-8",
    };

    (status, content_type, text)
}

/// Returns the message of a Status, or the text itself.
fn message_of(text: &str) -> String {
    let status = serde_json::from_str::<Value>(text).ok();
    let message = status.and_then(|it| it["message"].as_str().map(str::to_owned));
    message.unwrap_or_else(|| text.to_owned())
}

async fn refusal_text(body: Body) -> String {
    let bytes = collected(body, REFUSAL_LEN_MAX).await;
    bytes.map_or_else(
        |_| "the provider refuses the request with a response that is too long".to_owned(),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

/// Returns the value of the header `Content-Type` of metrics.
pub(crate) fn metrics_type() -> (http::HeaderName, http::HeaderValue) {
    let text = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    (header::CONTENT_TYPE, text)
}
