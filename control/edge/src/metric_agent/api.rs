//! The API: authenticates each request, authorizes scrapes, and responds.

use super::authorization::{Decision, decide, forbidden};
use super::documents;
use super::metrics::Metrics;
use super::objects::AUTHENTICATION;
use super::request_header::{RequestHeader, Requester, Unauthenticated};
use super::response::{self, Pieces};
use super::route::{Endpoint, Route};
use super::scrape::Scraper;
use super::selection::{Selection, peers};
use control_runtime::{CacheReader, Key, RuntimeStatus};
use http::{Method, Request, Response, StatusCode, header};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::PostParams;
use kube::{Api as KubeApi, Client};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};

/// Time of the API server for the review of a requester's rights.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// State of the API.
pub(super) struct Api {
    pub(super) cache: CacheReader,
    pub(super) status: RuntimeStatus,
    pub(super) client: Client,
    pub(super) scraper: Scraper,
    pub(super) metrics: Metrics,
}

/// A response, with the value of a label.
type Outcome = (&'static str, Response<Pieces>);

/// Why a request is refused.
struct Refusal {
    /// Value of a label.
    outcome: &'static str,
    status: StatusCode,
    message: String,
}

impl Api {
    /// Responds to a request on a connection whose client holds the key of the first certificate of `chain`.
    pub(super) async fn respond<B>(
        &self,
        chain: &[CertificateDer<'_>],
        request: &Request<B>,
    ) -> Response<Pieces> {
        let (outcome, response) = match self.requester(chain, request) {
            Ok(requester) => self.serve(&requester, request).await,
            Err(refusal) => refusal.outcome(),
        };
        self.metrics.requested(outcome);
        response
    }

    /// Returns whether the agent has all objects, and can authenticate the API server.
    ///
    /// # Errors
    ///
    /// Returns the reason for which it does not.
    pub(super) fn ready(&self) -> Result<(), String> {
        self.status.ready()?;
        self.trust(|header| header.0.as_ref().map(|_| ()).map_err(ToString::to_string))
    }

    fn trust<T>(
        &self,
        read: impl FnOnce(&RequestHeader) -> Result<T, String>,
    ) -> Result<T, String> {
        let (namespace, name) = AUTHENTICATION;
        let cache = self.cache.read();
        match cache.local::<RequestHeader>(&Key::new(namespace, name)) {
            Some(header) => {
                read(header).map_err(|error| format!("ConfigMap {namespace}/{name}: {error}"))
            }
            None => Err(format!("ConfigMap {namespace}/{name} is missing")),
        }
    }

    fn requester<B>(
        &self,
        chain: &[CertificateDer<'_>],
        request: &Request<B>,
    ) -> Result<Requester, Refusal> {
        let trust = self.trust(|header| header.0.clone().map_err(|error| error.to_string()));
        let trust = trust.map_err(|reason| unavailable("no_trust", &reason))?;
        let requester = trust.requester(chain, UnixTime::now(), request.headers());
        requester.map_err(|error: Unauthenticated| Refusal {
            outcome: error.reason(),
            status: StatusCode::UNAUTHORIZED,
            message: error.to_string(),
        })
    }

    async fn serve<B>(&self, requester: &Requester, request: &Request<B>) -> Outcome {
        if request.method() != Method::GET {
            let message = "the API only supports GET";
            let response = response::failure(StatusCode::METHOD_NOT_ALLOWED, message);
            return ("unknown", response);
        }
        let json = |document| ("discovery", response::json("application/json", &document));
        match Route::of(request.uri().path()) {
            Route::Health => ("health", response::healthy()),
            Route::Groups => {
                let accept = request.headers().get(header::ACCEPT);
                let accept = accept.and_then(|it| it.to_str().ok()).unwrap_or_default();
                let (media_type, document) = documents::groups(accept);
                ("discovery", response::json(media_type, &document))
            }
            Route::Group => json(documents::group()),
            Route::Version => json(documents::resources()),
            Route::OpenApi2 => json(documents::open_api_2()),
            Route::OpenApi3 => json(documents::open_api_3()),
            Route::OpenApi3OfVersion => json(documents::open_api_3_of_version()),
            Route::Scrape { consumer, endpoint } => {
                self.scrape(requester, consumer, endpoint).await
            }
            Route::UnknownEndpoint => {
                let message = "unknown metrics: use metrics, metrics/resource, metrics/cadvisor or metrics/probes";
                (
                    "unknown",
                    response::failure(StatusCode::BAD_REQUEST, message),
                )
            }
            Route::Unknown => {
                let message = "the path does not exist";
                ("unknown", response::failure(StatusCode::NOT_FOUND, message))
            }
        }
    }

    async fn scrape(&self, requester: &Requester, consumer: &str, endpoint: Endpoint) -> Outcome {
        // Without all objects, an identity of a peer would pass as one of this cluster, and pods would be missing.
        if let Err(reason) = self.status.ready() {
            return unavailable("starting", &reason).outcome();
        }
        if let Err(refusal) = self.authorize(requester, consumer).await {
            return refusal.outcome();
        }
        let Ok(slot) = self.scraper.in_progress.take(consumer.to_owned()) else {
            let message = format!("too many scrapes of cluster \"{consumer}\" are in progress");
            let response = response::failure(StatusCode::TOO_MANY_REQUESTS, &message);
            return ("busy", response);
        };
        let start = Instant::now();
        let selection = Selection::of(&self.cache.read(), consumer, endpoint);
        match self.scraper.scrape(selection, endpoint).await {
            Ok(scraped) => {
                self.metrics.scraped(start.elapsed());
                let mut response = response::metrics(scraped.texts);
                response.body_mut().hold((slot, scraped.shares));
                ("ok", response)
            }
            Err(error) => {
                tracing::debug!(consumer, %error, "failed to scrape");
                unavailable("failed", &error.to_string()).outcome()
            }
        }
    }

    async fn authorize(&self, requester: &Requester, consumer: &str) -> Result<(), Refusal> {
        let decision = decide(requester, consumer, &peers(&self.cache.read()));
        let is_allowed = match decision {
            Decision::Allow => true,
            Decision::Forbid => false,
            Decision::Review(review) => self.review(&review).await?,
        };
        if is_allowed {
            return Ok(());
        }
        tracing::debug!(user = requester.user, consumer, "a requester is forbidden");
        Err(Refusal {
            outcome: "forbidden",
            status: StatusCode::FORBIDDEN,
            message: forbidden(requester, consumer),
        })
    }

    async fn review(&self, review: &SubjectAccessReview) -> Result<bool, Refusal> {
        let reviews: KubeApi<SubjectAccessReview> = KubeApi::all(self.client.clone());
        let parameters = PostParams::default();
        let created = reviews.create(&parameters, review);
        match timeout(REVIEW_TIMEOUT, created).await {
            Ok(Ok(review)) => Ok(review
                .status
                .is_some_and(|it| it.allowed && !it.denied.unwrap_or(false))),
            Ok(Err(error)) => {
                tracing::warn!("failed to review the rights of a requester: {error}");
                Err(unavailable(
                    "review",
                    "the rights of the requester cannot be reviewed",
                ))
            }
            Err(_) => Err(unavailable(
                "review",
                "the review of the requester's rights timed out",
            )),
        }
    }
}

impl Refusal {
    fn outcome(&self) -> Outcome {
        let response = response::failure(self.status, &self.message);
        (self.outcome, response)
    }
}

fn unavailable(outcome: &'static str, message: &str) -> Refusal {
    Refusal {
        outcome,
        status: StatusCode::SERVICE_UNAVAILABLE,
        message: message.to_owned(),
    }
}
