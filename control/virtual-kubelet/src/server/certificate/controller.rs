//! Requests serving certificates, and follows the authorities of client certificates.
//!
//! ```text
//! self-signed -- CertificateSigningRequest is signed --> signed -- 80 % of its life --> another request
//!      ^                                                   |
//!      +----------------- has expired ---------------------+
//! ```

use super::issue::{IssueError, Request, Server};
use super::request::{self, CertificateType, Outcome, Validity};
use super::serving::Serving;
use crate::pod::kept;
use crate::reflection::summary::keep;
use crate::server::authority::ClientAuthority;
use crate::settings::Settings;
use control_api::{NamespaceMap, VirtualNode};
use control_runtime::{
    Action, Cache, Change, Cluster, Controller, Env, Event, Key, Plan, Ref, Registration, Resource,
    Scope, Selector, WatchChange, WatchId, Write,
};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::fmt;
use std::time::Duration;
use tokio_rustls::rustls::sign::CertifiedKey;

/// ConfigMap with the authorities of client certificates, which kube-apiserver writes.
const AUTHENTICATION: &str = "extension-apiserver-authentication";

/// Namespace of the ConfigMap.
const AUTHENTICATION_NAMESPACE: &str = "kube-system";

/// Key of the ConfigMap.
const CLIENT_AUTHORITIES: &str = "client-ca-file";

/// Time before another request after one that was denied or failed.
const RETRY: Duration = Duration::from_secs(300);

/// Creates keys and certificates. The controller gets it as a value, because it reads randomness.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issue {
    /// Creates a key with a request for a certificate.
    pub(crate) request: fn(&Server) -> Result<Request, IssueError>,
    /// Creates a key with a self-signed certificate.
    pub(crate) self_signed: fn(&Server, Timestamp) -> Result<CertifiedKey, IssueError>,
}

/// Work item of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The watch of the authorities.
    Authorities,
    /// The serving certificate.
    Certificate,
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Authorities => "authorities",
            Self::Certificate => "certificate",
        })
    }
}

/// Keeps certificate and authorities of the server.
pub(crate) struct CertificateController {
    settings: Settings,
    kind: CertificateType,
    issue: Issue,
    serving: Serving,
    authority: ClientAuthority,
    /// Validity of the certificate that is served.
    served: Option<Served>,
    pending: Option<Pending>,
    /// No request is made before this time.
    not_before: Option<Timestamp>,
}

/// The certificate that is served.
#[derive(Clone, Copy, Debug)]
struct Served {
    validity: Validity,
    is_signed: bool,
}

/// A request that is not signed yet.
struct Pending {
    name: String,
    request: Request,
}

impl CertificateController {
    /// Creates the controller of a server with this certificate and these authorities.
    pub(crate) fn new(
        settings: Settings,
        kind: CertificateType,
        issue: Issue,
        (serving, authority): (Serving, ClientAuthority),
    ) -> Self {
        Self {
            settings,
            kind,
            issue,
            serving,
            authority,
            served: None,
            pending: None,
            not_before: None,
        }
    }

    fn server(&self) -> Server {
        Server {
            node: self.settings.node.clone(),
            address: self.settings.address,
        }
    }

    /// Plans the serving certificate.
    fn plan_certificate(
        &mut self,
        cache: &Cache,
        now: Timestamp,
    ) -> Result<Plan<WorkItem>, IssueError> {
        let mut plan = Plan::default();
        if let Some(signer) = self.kind.signer() {
            self.plan_request(signer, cache, now, &mut plan)?;
        }
        self.plan_self_signed(now)?;
        if let Some(at) = self.next(now) {
            plan.requeue.push((at, WorkItem::Certificate));
        }

        Ok(plan)
    }

    /// Serves a self-signed certificate unless there is one that is valid.
    fn plan_self_signed(&mut self, now: Timestamp) -> Result<(), IssueError> {
        let is_served = self.served.is_some_and(|it| match it.is_signed {
            true => now < it.validity.end,
            false => now < it.validity.renewal,
        });
        if is_served {
            return Ok(());
        }
        if self.kind.signer().is_some() {
            tracing::warn!(
                "serving the kubelet's API with a self-signed certificate until the CertificateSigningRequest is approved"
            );
        }
        let key = (self.issue.self_signed)(&self.server(), now)?;
        self.served = Some(Served {
            validity: request::validity(&key, now)?,
            is_signed: false,
        });
        self.serving.set(key);

        Ok(())
    }

    /// Requests a certificate if the present one is due, and serves it once it is signed.
    fn plan_request(
        &mut self,
        signer: &str,
        cache: &Cache,
        now: Timestamp,
        plan: &mut Plan<WorkItem>,
    ) -> Result<(), IssueError> {
        let is_due = self
            .served
            .is_none_or(|it| !it.is_signed || it.validity.renewal <= now);
        let may_request = self.not_before.is_none_or(|at| at <= now);
        if self.pending.is_none() && is_due && may_request {
            let request = (self.issue.request)(&self.server())?;
            let name = request::name(&self.settings.node, &request);
            plan.watches.push(WatchChange::Add(watch_of_request(&name)));
            self.pending = Some(Pending { name, request });
        }
        let Some(pending) = &self.pending else {
            return Ok(());
        };
        let key = Key::cluster(&*pending.name);
        let Some(present) = cache.local::<CertificateSigningRequest>(&key) else {
            let object = json!(request::object(&pending.request, signer));
            let target = Ref::of::<CertificateSigningRequest>(&Cluster::Local, &key);
            plan.writes.push(Write::new(target, Action::Create(object)));
            return Ok(());
        };
        match request::outcome(&pending.request, present, now) {
            Outcome::Pending => return Ok(()),
            Outcome::Signed(signed) => {
                tracing::info!(
                    request = pending.name,
                    "serving the kubelet's API with a certificate of {signer}"
                );
                self.serving.set(signed.key);
                self.served = Some(Served {
                    validity: signed.validity,
                    is_signed: true,
                });
                self.not_before = None;
            }
            Outcome::Failed(reason) => {
                plan.events.push(self.failed(&pending.name, &reason));
                self.not_before = now.checked_add(RETRY).ok();
            }
        }
        plan.watches
            .push(WatchChange::Remove(watch_of_request(&pending.name)));
        self.pending = None;

        Ok(())
    }

    /// Returns the time until the next decision.
    fn next(&self, now: Timestamp) -> Option<Duration> {
        let served = self.served?;
        let due = match (served.is_signed, self.pending.is_some(), self.not_before) {
            // The watch reports the outcome.
            (true, true, _) => served.validity.end,
            (_, false, Some(retry)) if now < retry => retry.min(served.validity.end),
            (true, false, _) | (false, _, _) => served.validity.renewal,
        };
        let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();

        // A time in the past would have the item planned without end.
        Some(wait.max(Duration::from_secs(1)))
    }

    fn failed(&self, name: &str, reason: &str) -> Event {
        Event {
            object: Ref::of::<VirtualNode>(&Cluster::Local, &self.settings.virtual_node()),
            is_warning: true,
            reason: "CertificateNotIssued",
            note: format!(
                "CertificateSigningRequest {name} for the kubelet's API has no certificate, and another one follows: {reason}"
            ),
            is_repeated: false,
        }
    }
}

impl Controller for CertificateController {
    type Item = WorkItem;
    const NAME: &'static str = "certificate";
    const FIELD_MANAGER: &'static str = "certificate.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        let settings = &self.settings;
        let tenant = Scope::Namespace(settings.tenant_namespace.clone());
        vec![
            Registration::whole::<CertificateSigningRequest>(Scope::Planned)
                .verbs(&["create"])
                .written_in(Scope::All),
            // Planned, so that the process becomes ready while the right to it is missing.
            Registration::of(Scope::Planned, keep::<ConfigMap>).full_objects(),
            // The pods that requests are about.
            kept::pods(Scope::All).node(&*settings.node),
            kept::pods(Scope::Planned),
            Registration::whole::<NamespaceMap>(tenant).name(&*settings.provider),
        ]
    }

    fn observe(&mut self, change: &Change<'_>, _cache: &Cache) -> Vec<WorkItem> {
        if change.is::<CertificateSigningRequest>() {
            return vec![WorkItem::Certificate];
        }
        let key = &change.object.key;
        let is_authentication = change.is::<ConfigMap>()
            && change.object.cluster == Cluster::Local
            && (&*key.namespace, &*key.name) == (AUTHENTICATION_NAMESPACE, AUTHENTICATION);
        if is_authentication && let Some(map) = change.entry().and_then(|it| it.full::<ConfigMap>())
        {
            let authorities = map.data.as_ref().and_then(|it| it.get(CLIENT_AUTHORITIES));
            match self.authority.set(authorities.map_or("", String::as_str)) {
                Ok(count) => {
                    tracing::info!(count, "the authorities of client certificates are known")
                }
                Err(error) => tracing::warn!(
                    "ConfigMap {key}: {CLIENT_AUTHORITIES}: the former authorities of client certificates stay: {error}"
                ),
            }
        }

        Vec::new()
    }

    fn started(&mut self, _cache: &Cache) -> Vec<WorkItem> {
        vec![WorkItem::Authorities, WorkItem::Certificate]
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        match item {
            WorkItem::Authorities => Plan {
                watches: vec![WatchChange::Add(watch_of_authorities())],
                ..Plan::default()
            },
            WorkItem::Certificate => {
                self.plan_certificate(cache, env.now).unwrap_or_else(|error| {
                    tracing::error!(%error, "failed to renew the certificate of the kubelet's API, and retries");
                    Plan {
                        is_incomplete: true,
                        ..Plan::default()
                    }
                })
            }
        }
    }
}

fn watch_of_authorities() -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource: Resource::of::<ConfigMap>(),
        namespace: Some(AUTHENTICATION_NAMESPACE.to_owned()),
        selector: Selector {
            name: Some(AUTHENTICATION.to_owned()),
            ..Selector::default()
        },
    }
}

fn watch_of_request(name: &str) -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource: Resource::of::<CertificateSigningRequest>(),
        namespace: None,
        selector: Selector {
            name: Some(name.to_owned()),
            ..Selector::default()
        },
    }
}
