//! The endpoints of the kubelet's API.

use super::access::Access;
use super::attributes::Attributes;
use super::body::Body;
use super::identity::User;
use super::metrics::Metrics;
use super::provider::{Provider, metrics_type, refused};
use super::query;
use super::refusal::Refusal;
use super::route::{Container, Route, Stream};
use super::scrape::Scraper;
use super::streams::Streams;
use super::summary::summary;
use super::target::remote;
use super::tunnel::Tunnel;
use super::upgrade::Protocol;
use crate::settings::Settings;
use control_runtime::{CacheReader, Cluster, Key};
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// Longest time without data of a log that is not followed.
const LOG_IDLE_MAX: Duration = Duration::from_secs(60);

/// The endpoints, and what they need.
pub(crate) struct Api {
    /// Objects of both clusters.
    pub(crate) cache: CacheReader,
    /// Values of the flags.
    pub(crate) settings: Settings,
    /// The requests that users may send.
    pub(crate) access: Access,
    /// The API server of the provider.
    pub(crate) provider: Provider,
    /// Metrics of the provider.
    pub(crate) scraper: Scraper,
    /// Open streams.
    pub(crate) streams: Streams,
    /// Metrics of this process.
    pub(crate) metrics: Metrics,
}

/// A response, and the stream that the connection becomes.
type Responded = (Response<Body>, Option<Tunnel>);

impl Api {
    /// Responds to a request of a client with these certificates.
    pub(super) async fn respond(
        &self,
        request: Request<Incoming>,
        chain: &[CertificateDer<'static>],
    ) -> Responded {
        let route = Route::of_path(request.uri().path());
        let name = route.name();
        let responded = self.authorized(route, request, chain).await;
        let responded =
            responded.unwrap_or_else(|refusal| (refusal.response().map(Body::from), None));
        self.metrics.responded(name, responded.0.status());

        responded
    }

    async fn authorized(
        &self,
        route: Route,
        request: Request<Incoming>,
        chain: &[CertificateDer<'static>],
    ) -> Result<Responded, Refusal> {
        let user = self.access.authenticate(chain, request.headers()).await?;
        let attributes = Attributes::of(&route, request.method());
        self.access.authorize(&user, &attributes).await?;
        route.check_method(request.method())?;
        let query = request.uri().query().unwrap_or_default();
        let response = match route {
            Route::Healthz => Response::new(Body::from("ok")),
            Route::Pods => self.pods(),
            Route::Logs(container) => self.logs(&container, query, &user).await?,
            Route::Stream(stream) => return self.stream(&stream, request, &user).await,
            Route::Metrics(path) => self.scraped(path).await?,
            Route::Summary => self.summary().await?,
            Route::Unknown(_) => return Err(Refusal::not_found("404 page not found")),
        };

        Ok((response, None))
    }

    /// Returns the pods of the Node.
    fn pods(&self) -> Response<Body> {
        let pods = self.own_pods();
        let pods: Vec<&Pod> = pods.iter().map(AsRef::as_ref).collect();
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods});

        json_response(list.to_string())
    }

    /// Returns the pods of the Node, so that the cache is not locked while they are used.
    fn own_pods(&self) -> Vec<Arc<Pod>> {
        let cache = self.cache.read();
        let pods = cache.objects::<Pod>(&Cluster::Local).shared();
        pods.filter(|it| self.settings.is_of_node(it)).collect()
    }

    async fn logs(
        &self,
        container: &Container,
        query: &str,
        user: &User,
    ) -> Result<Response<Body>, Refusal> {
        let query = query::log(query, &container.name)?;
        let pod = remote(&self.cache.read(), &self.settings, &container.pod)?;
        let slot = self.streams.take(&user.name)?;
        let body = self.provider.log(&pod, &query).await?.holding(slot);
        let body = match query::is_followed(&query) {
            true => body,
            false => body.ending_when_idle(LOG_IDLE_MAX),
        };
        let mut response = Response::new(body);
        let text = HeaderValue::from_static("text/plain");
        response.headers_mut().insert(header::CONTENT_TYPE, text);

        Ok(response)
    }

    /// Forwards a request that switches to another protocol, with the response of the provider.
    async fn stream(
        &self,
        stream: &Stream,
        request: Request<Incoming>,
        user: &User,
    ) -> Result<Responded, Refusal> {
        let protocol = Protocol::of(request.method(), request.headers())?;
        if !request.body().is_end_stream() {
            return Err(Refusal::invalid(
                "the request must have no body: it switches to another protocol",
            ));
        }
        let query = request.uri().query().unwrap_or_default();
        let query = match stream {
            Stream::Exec(container) => query::exec(query, &container.name)?,
            Stream::Attach(container) => query::attach(query, &container.name)?,
            Stream::PortForward(_) => query::port_forward(query)?,
        };
        let pod = remote(&self.cache.read(), &self.settings, stream.pod())?;
        let slot = self.streams.take(&user.name)?;
        let headers = protocol.request(request.headers());
        let target = (&pod, stream.subresource());
        let upgrade = self
            .provider
            .upgrade(request.method(), target, &query, headers);
        let response = upgrade.await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (status, content_type, text) = refused(response, protocol).await;
            let response = Response::builder()
                .status(status)
                .header(header::CONTENT_TYPE, content_type);
            let response = response.body(Body::from(text));
            let response = response.map_err(|error| Refusal::unreachable(error.to_string()))?;
            return Ok((response, None));
        }
        let headers = protocol.response(response.headers()).ok_or_else(|| {
            Refusal::unreachable("the provider has switched to another protocol than requested")
        })?;
        let mut switching = Response::new(Body::from(""));
        *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *switching.headers_mut() = headers;
        let tunnel = Tunnel {
            client: hyper::upgrade::on(request),
            provider: hyper::upgrade::on(response),
            slot,
        };

        Ok((switching, Some(tunnel)))
    }

    /// Forwards metrics that the provider has collected.
    async fn scraped(&self, path: &str) -> Result<Response<Body>, Refusal> {
        let body = self.scraper.metrics(path, &self.own_pods()).await?;
        let mut response = Response::new(body);
        let (name, value) = metrics_type();
        response.headers_mut().insert(name, value);

        Ok(response)
    }

    /// Returns the usage of the Node and its pods.
    async fn summary(&self) -> Result<Response<Body>, Refusal> {
        let (pods, node) = (self.own_pods(), self.settings.node.as_str());
        let created = {
            let cache = self.cache.read();
            let present = cache.local::<Node>(&Key::cluster(node));
            present.and_then(|it| it.metadata.creation_timestamp.clone())
        };
        let now = Timestamp::now();
        let take = |text: &str| summary((node, created.as_ref()), &pods, text, now);
        let summary = self.scraper.usage(take).await?;

        Ok(json_response(summary.to_string()))
    }
}

fn json_response(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);

    response
}
