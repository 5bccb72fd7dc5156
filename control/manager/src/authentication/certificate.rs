//! Client certificates for the consumers of this cluster, by the API `certificates.k8s.io`.
//!
//! ```text
//! request of a consumer -> CertificateSigningRequest -> approval -> certificate -> Secret
//! ```
//!
//! The name of a CertificateSigningRequest is derived from its purpose, so all leaders decide about the same object.
//! It is deleted once the Secret has the certificate.

use super::binding;
use super::csr::{SIGNER, approval};
use super::item::WorkItem;
use super::nonce::{remaining, value};
use super::objects::{BY_SECRET, Local, Refusal, warn};
use super::seen::Seen;
use control_api::{annotations, labels};
use control_credentials::{Certificate, PublicKey, Subject, digest};
use control_runtime::{Action, Cluster, Env, Key, Plan, Ref, Write};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest time for which a signer may take before it is reported.
const SIGNER_MAX: Duration = Duration::from_secs(30);

/// Time by which Kubernetes' signer dates certificates back (kube-controller-manager, pkg/controller/certificates/authority).
const BACKDATED: Duration = Duration::from_secs(300);

/// Prefix of the names of CertificateSigningRequests, by which admission policies of users select them.
const PREFIX: &str = "liqo-identity-";

/// Name of the Secret with the certificate of a consumer's control plane. Those of ResourceSlices have a dash and their name
/// after it.
pub(super) const SECRET_PREFIX: &str = "liqo-remote-certificate";

/// Key of the request in a Secret.
const CSR: &str = "csr";

/// Key of the certificate in a Secret.
pub(super) const CERTIFICATE: &str = "certificate";

/// Reason and message of an approval, as upstream's.
const APPROVAL: (&str, &str) = (
    "IdentityManagerApproval",
    "This CSR was approved by Liqo Identity Manager",
);

/// Usages of the certificates, sorted.
const USAGES: [&str; 3] = ["client auth", "digital signature", "key encipherment"];

/// A certificate that a consumer requests.
pub(super) struct Requested<'a> {
    /// Cluster ID of the consumer.
    pub(super) peer: &'a str,
    /// Secret for the certificate.
    pub(super) secret: Key,
    /// UID of the Tenant.
    pub(super) uid: &'a str,
    pub(super) subject: Subject,
    /// The request, in PEM. It was checked.
    pub(super) request: &'a [u8],
    /// Public key of the request.
    pub(super) key: &'a PublicKey,
    /// Name of this process as a user of the API server.
    pub(super) user: &'a str,
    /// Work item to plan again.
    pub(super) item: &'a WorkItem,
}

/// State of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Issued {
    /// The certificate, in PEM, and why it will not be renewed in time. During a renewal it is the previous one.
    Certificate(Vec<u8>, Option<Refusal>),
    /// The signer has not signed yet.
    Pending,
    /// There is no certificate: reason and message.
    Refused(&'static str, String),
}

impl Requested<'_> {
    /// Plans the steps that are missing until the certificate is issued, and its renewal.
    pub(super) fn plan(
        &self,
        local: &Local<'_>,
        seen: &mut Seen,
        plan: &mut Plan<WorkItem>,
        env: &Env<'_>,
    ) -> Issued {
        let secret = local.secrets.get(&self.secret);
        let stored = |name: &str| secret.and_then(|secret| value(secret, name));
        if stored(CSR).is_some_and(|csr| csr.0 != self.request) {
            let message = format!(
                "spec.csr differs from the request that Secret {} was issued for, and only that one is signed: delete the \
                 Secret to accept the new one",
                self.secret
            );
            return Issued::Refused("CSRChanged", message);
        }
        let current = stored(CERTIFICATE).and_then(|text| {
            let certificate = Certificate::parse(&text.0, &self.subject, self.key).ok()?;
            Some((text, certificate))
        });
        let Some((text, certificate)) = current else {
            return self.sign(local, None, seen, plan, env);
        };
        let since = seen.certificate(&self.secret, certificate, env);
        self.report_clock(certificate, since, plan);
        let renewal = certificate.renewal(since);
        let (text, problem) = if let Some(rest) = remaining(env.now, renewal) {
            self.delete_signed(local, certificate, plan);
            plan.requeue.push((rest, self.item.clone()));
            (text.0.clone(), None)
        } else {
            match self.sign(local, Some(certificate), seen, plan, env) {
                Issued::Certificate(renewed, problem) => (renewed, problem),
                Issued::Pending => (text.0.clone(), None),
                Issued::Refused(reason, message) => (text.0.clone(), Some((reason, message))),
            }
        };
        let problem = problem.or_else(|| too_short(certificate));
        if let (Some(problem), Some(object)) = (&problem, self.item.requester()) {
            warn(plan, object, problem.clone());
        }

        Issued::Certificate(text, problem)
    }

    /// Reports clocks that differ. `since` is when this process has first seen the certificate.
    fn report_clock(&self, certificate: Certificate, since: Timestamp, plan: &mut Plan<WorkItem>) {
        let Some(object) = self.item.requester() else {
            return;
        };
        if !(certificate.not_before..certificate.not_after).contains(&since) {
            let message = format!(
                "the certificate is valid from {} to {}, but was received at {since}: correct the clock of this node or that \
                 of the kube-controller-manager",
                certificate.not_before, certificate.not_after
            );
            warn(plan, object, ("ClockSkew", message));
        }
    }

    /// Plans the next step of a CertificateSigningRequest.
    fn sign(
        &self,
        local: &Local<'_>,
        current: Option<Certificate>,
        seen: &mut Seen,
        plan: &mut Plan<WorkItem>,
        env: &Env<'_>,
    ) -> Issued {
        let object = self.object(current);
        let name = object.key.name.clone();
        // The consumer has chosen its cluster ID, and a user may have bound it since the last certificate.
        let namespace = &self.secret.namespace;
        if let Err((reason, message)) = binding::check_cluster_id(local, namespace, self.peer) {
            return Issued::Refused(reason, message);
        }
        let Some(csr) = local.requests.get(&object.key) else {
            plan.writes
                .push(Write::new(object, Action::Create(self.csr(&name))));
            return Issued::Pending;
        };
        if let Err(difference) = self.check(csr) {
            let message = format!(
                "CertificateSigningRequest {name} {difference}, so the controller manager has not created it: delete it"
            );
            return Issued::Refused("CSRNotOurs", message);
        }
        let status = csr.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let has = |type_: &str| {
            conditions
                .unwrap_or_default()
                .iter()
                .any(|it| it.type_ == type_)
        };
        if let Some(outcome) = ["Denied", "Failed"].into_iter().find(|it| has(it)) {
            let message =
                format!("CertificateSigningRequest {name} is {outcome}: delete it to try again");
            return Issued::Refused("CSRDenied", message);
        }
        if !has("Approved") {
            plan.writes.push(approval(object, csr, APPROVAL));
            return Issued::Pending;
        }
        let Some(text) = status.and_then(|status| status.certificate.as_ref()) else {
            return self.wait(csr, seen, plan, env);
        };
        if let Err(error) = Certificate::parse(&text.0, &self.subject, self.key) {
            return Issued::Refused(
                "InvalidCertificate",
                format!("CertificateSigningRequest {name}: {error}"),
            );
        }
        plan.apply(
            Ref::of::<Secret>(&Cluster::Local, &self.secret),
            self.fields(text),
        );

        Issued::Certificate(text.0.clone(), None)
    }

    /// Waits for the signer, and reports one that takes long.
    fn wait(
        &self,
        csr: &CertificateSigningRequest,
        seen: &mut Seen,
        plan: &mut Plan<WorkItem>,
        env: &Env<'_>,
    ) -> Issued {
        if let Some(rest) = seen.remaining(csr.metadata.uid.as_deref(), SIGNER_MAX, env) {
            plan.requeue.push((rest, self.item.clone()));
            return Issued::Pending;
        }
        let message = format!(
            "signer {SIGNER} has not signed within {} s, so this cluster does not issue client certificates: use a Tenant \
             with authzPolicy TolerateNoHandshake, and give the consumer a kubeconfig",
            SIGNER_MAX.as_secs()
        );

        Issued::Refused("SignerTimeout", message)
    }

    /// Deletes the CertificateSigningRequest of a certificate that is stored.
    fn delete_signed(&self, local: &Local<'_>, stored: Certificate, plan: &mut Plan<WorkItem>) {
        for (key, csr) in local.requests.indexed(BY_SECRET, &self.secret.to_string()) {
            let text = csr
                .status
                .as_ref()
                .and_then(|status| status.certificate.as_ref());
            let is_stored = text.is_some_and(|text| {
                Certificate::parse(&text.0, &self.subject, self.key) == Ok(stored)
            });
            if is_stored {
                let object = Ref::of::<CertificateSigningRequest>(&Cluster::Local, key);
                plan.delete(object, csr.metadata.uid.clone().unwrap_or_default());
            }
        }
    }

    /// Returns the CertificateSigningRequest that follows a certificate. Users who do not know the UID cannot guess its
    /// name, and each renewal has another one.
    fn object(&self, current: Option<Certificate>) -> Ref {
        let start = current.map_or(0, |current| current.not_before.as_second());
        let secret = self.secret.to_string();
        let parts = [
            secret.as_bytes(),
            self.uid.as_bytes(),
            self.request,
            &start.to_be_bytes(),
        ];
        let name = format!("{PREFIX}{}", &digest(&parts)[..20]);

        Ref::of::<CertificateSigningRequest>(&Cluster::Local, &Key::cluster(name))
    }

    fn csr(&self, name: &str) -> Value {
        json!({
            "metadata": {
                "name": name,
                "labels": {labels::REMOTE_TENANT_CSR: "true", labels::REMOTE_CLUSTER_ID: self.peer},
                "annotations": {annotations::CERTIFICATE_SECRET: self.secret.to_string()},
            },
            "spec": {
                "request": ByteString(self.request.to_vec()),
                "signerName": SIGNER,
                "usages": USAGES,
            },
        })
    }

    /// Returns the fields of the Secret with the certificate.
    fn fields(&self, certificate: &ByteString) -> Value {
        json!({
            "metadata": {"labels": {
                labels::MANAGED: "true",
                labels::REMOTE_CLUSTER_ID: self.peer,
            }},
            "data": {CSR: ByteString(self.request.to_vec()), CERTIFICATE: certificate},
        })
    }

    /// Checks that a CertificateSigningRequest is the one that this process creates. An admission policy may have set
    /// `expirationSeconds`.
    ///
    /// # Errors
    ///
    /// Returns the difference.
    fn check(&self, csr: &CertificateSigningRequest) -> Result<(), &'static str> {
        let usages = csr.spec.usages.iter().flatten();
        let mut usages: Vec<_> = usages.map(String::as_str).collect();
        usages.sort_unstable();
        if csr.spec.username.as_deref() != Some(self.user) {
            return Err("is by another user");
        }
        if csr.spec.request.0 != self.request {
            return Err("has another request");
        }
        if csr.spec.signer_name != SIGNER {
            return Err("is for another signer");
        }
        if usages != USAGES {
            return Err("is for other usages");
        }

        Ok(())
    }
}

/// Returns the problem of a lifetime so short that the renewal of each new certificate is due at once.
fn too_short(certificate: Certificate) -> Option<Refusal> {
    let issued = certificate.not_before.saturating_add(BACKDATED);
    if !certificate.is_too_short(issued.unwrap_or(certificate.not_before)) {
        return None;
    }
    let message = format!(
        "signer {SIGNER} issues certificates of so short a lifetime that each is renewed at once: set \
         --cluster-signing-duration of the kube-controller-manager to 10 minutes or more"
    );

    Some(("ShortCertificateLifetime", message))
}
