//! Authenticates and authorizes requests by the API server of this cluster. No request is anonymous.

use super::attributes::Attributes;
use super::authority::ClientAuthority;
use super::decisions::Decisions;
use super::identity::{User, bearer};
use super::refusal::Refusal;
use super::review::{self, Fingerprint};
use control_runtime::{Clients, Cluster};
use http::{HeaderMap, StatusCode};
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::PostParams;
use kube::{Api, Client};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};

/// Reviews in progress at a time. Others wait.
const REVIEWS_MAX: usize = 32;

/// Time for a review, with the wait for others.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// The users and their requests that are allowed.
pub(crate) struct Access {
    clients: Clients,
    authority: ClientAuthority,
    /// Name of the Node, to which all rights refer.
    node: String,
    users: Mutex<Decisions<Option<User>>>,
    rights: Mutex<Decisions<bool>>,
    reviews: Semaphore,
}

impl Access {
    /// Creates the access to a Node.
    pub(crate) fn new(clients: Clients, authority: ClientAuthority, node: &str) -> Self {
        Self {
            clients,
            authority,
            node: node.to_owned(),
            users: Mutex::default(),
            rights: Mutex::default(),
            reviews: Semaphore::new(REVIEWS_MAX),
        }
    }

    /// Returns the user of a request: that of the client certificate, else that of the token.
    ///
    /// # Errors
    ///
    /// Returns a refusal if neither is valid.
    pub(crate) async fn authenticate(
        &self,
        chain: &[CertificateDer<'_>],
        headers: &HeaderMap,
    ) -> Result<User, Refusal> {
        if let Some(certificate) = chain.first() {
            match self.authority.verify(chain, UnixTime::now()) {
                Ok(()) => {
                    if let Some(user) = User::of_certificate(certificate) {
                        return Ok(user);
                    }
                    tracing::debug!("the client certificate has no common name");
                }
                Err(error) => tracing::debug!(%error, "the client certificate is not accepted"),
            }
        }
        let user = match bearer(headers) {
            Some(token) => self.user_of(token).await?,
            None => None,
        };

        user.ok_or_else(|| Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized"))
    }

    /// Checks that a user has one of the rights.
    ///
    /// # Errors
    ///
    /// Returns a refusal that names the rights.
    pub(crate) async fn authorize(
        &self,
        user: &User,
        attributes: &Attributes,
    ) -> Result<(), Refusal> {
        for subresource in attributes.subresources {
            let review = review::of_right(user, attributes, subresource, &self.node);
            if self.is_allowed(review).await? {
                return Ok(());
            }
        }

        Err(Refusal::new(
            StatusCode::FORBIDDEN,
            format!(
                "Forbidden (user={}, verb={}, resource=nodes, subresource={}, name={})",
                user.name,
                attributes.verb,
                attributes.subresources.join(" or "),
                self.node,
            ),
        ))
    }

    async fn user_of(&self, token: &str) -> Result<Option<User>, Refusal> {
        let fingerprint = review::fingerprint_of_token(token);
        if let Some(user) = lock(&self.users).get(&fingerprint, Instant::now()) {
            return Ok(user);
        }
        let review = review::of_token(token);
        let reviewed = self.reviewed::<TokenReview>(&review).await?;
        let user = review::user(reviewed);
        remember(&self.users, fingerprint, user.clone(), user.is_some());

        Ok(user)
    }

    async fn is_allowed(&self, review: SubjectAccessReview) -> Result<bool, Refusal> {
        let fingerprint = review::fingerprint_of_right(&review);
        if let Some(is_allowed) = lock(&self.rights).get(&fingerprint, Instant::now()) {
            return Ok(is_allowed);
        }
        let reviewed = self.reviewed(&review).await?;
        let is_allowed = review::is_allowed(&reviewed);
        remember(&self.rights, fingerprint, is_allowed, is_allowed);

        Ok(is_allowed)
    }

    /// Has the API server review an object.
    async fn reviewed<K>(&self, review: &K) -> Result<K, Refusal>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
        K: serde::Serialize + serde::de::DeserializeOwned,
    {
        let sent = async {
            // The semaphore is never closed.
            let _permit = self.reviews.acquire().await;
            let client = self.clients.get(&Cluster::Local);
            send(client, review).await
        };
        match timeout(REVIEW_TIMEOUT, sent).await {
            Ok(Ok(reviewed)) => Ok(reviewed),
            Ok(Err(error)) => {
                tracing::warn!(%error, kind = &*K::kind(&()), "the API server failed to review a request");
                Err(unavailable())
            }
            Err(_) => {
                tracing::warn!(kind = &*K::kind(&()), "the review of a request timed out");
                Err(unavailable())
            }
        }
    }
}

async fn send<K>(client: Option<Client>, review: &K) -> Result<K, String>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
    K: serde::Serialize + serde::de::DeserializeOwned,
{
    let client = client.ok_or("there is no client of the API server")?;
    let reviewed = Api::all(client)
        .create(&PostParams::default(), review)
        .await;

    reviewed.map_err(|error| error.to_string())
}

fn remember<T: Clone>(
    decisions: &Mutex<Decisions<T>>,
    fingerprint: Fingerprint,
    decision: T,
    is_positive: bool,
) {
    lock(decisions).put(fingerprint, decision, is_positive, Instant::now());
}

fn unavailable() -> Refusal {
    Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the API server of this cluster did not review the request: retry",
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
