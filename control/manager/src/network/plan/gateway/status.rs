//! The status of a gateway.

use super::{Gateway, Problem};
use crate::network::condition::Verdict;
use crate::network::kind::Key;
use crate::network::plan::{Plan, Planner, service};
use crate::network::service_request::ServiceRequest;
use crate::network::write::Write;
use control_api::networking::endpoint::{Endpoint, Protocol};
use k8s_openapi::api::core::v1::{ObjectReference, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

/// Type of the condition that this cluster's side of a gateway is configured.
const READY: &str = "Ready";
/// Type of the condition that the gateway names a template, which has no effect.
const TEMPLATE_IGNORED: &str = "TemplateIgnored";

impl Gateway<'_> {
    /// Returns the endpoint of a GatewayServer for peers, with its Service.
    pub(in crate::network::plan) fn endpoint(
        &self,
        planner: &Planner<'_>,
    ) -> Result<Option<(Key, Endpoint)>, Problem> {
        let Self::Server(_, server) = self else {
            return Ok(None);
        };
        let hash = ServiceRequest::read(server)?.hash();
        let Some((key, service)) = service::of(&planner.local, &hash) else {
            let refused = planner.local.derived.refused_services.get(&hash);
            return Err(refused.map_or(Problem::ServicePending, |message| {
                Problem::ServiceRefused(message.clone())
            }));
        };
        let endpoint = endpoint(key, service, &planner.local.cluster().nodes.external())?;

        Ok(Some((key.clone(), endpoint)))
    }

    /// Writes the status.
    pub(in crate::network::plan) fn status(
        &self,
        planner: &Planner<'_>,
        secret: Option<&Key>,
        endpoint: Option<&(Key, Endpoint)>,
        verdict: Result<(), Problem>,
        now: Timestamp,
    ) -> Option<Write> {
        let secret_ref = secret.map(|key| ObjectReference {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            ..ObjectReference::default()
        });
        let internal_endpoint = planner.local.cluster().gateway.clone();
        match self {
            Self::Server(key, server) => {
                let mut status = server.status.clone().unwrap_or_default();
                // A Service that is created again gets the former node port, which peers use.
                let is_pending = matches!(verdict, Err(Problem::ServicePending));
                let former = status.endpoint.take().filter(|_| is_pending);
                self.set_conditions(&mut status.conditions, verdict, now);
                status.internal_endpoint = internal_endpoint;
                status.secret_ref = secret_ref.or(status.secret_ref);
                status.endpoint = endpoint.map(|(_, endpoint)| endpoint.clone()).or(former);
                status.server_ref = endpoint
                    .map(|(service, _)| reference_to("v1", "Service", service))
                    .or(status.server_ref);
                Write::status(self.kind(), key, server.status.as_ref(), &status)
            }
            Self::Client(key, client) => {
                let mut status = client.status.clone().unwrap_or_default();
                self.set_conditions(&mut status.conditions, verdict, now);
                status.internal_endpoint = internal_endpoint;
                if secret_ref.is_some() {
                    let gateway = Key::new(planner.settings.namespace.clone(), service::NAME);
                    status.client_ref = Some(reference_to("apps/v1", "Deployment", &gateway));
                }
                status.secret_ref = secret_ref.or(status.secret_ref);
                Write::status(self.kind(), key, client.status.as_ref(), &status)
            }
        }
    }

    /// Adds an Event with the endpoint of a server if it has changed.
    pub(in crate::network::plan) fn announce_endpoint(
        &self,
        endpoint: Option<&(Key, Endpoint)>,
        plan: &mut Plan,
    ) {
        let (Self::Server(key, server), Some((service, endpoint))) = (self, endpoint) else {
            return;
        };
        let status = server.status.as_ref();
        let old = status.and_then(|status| status.endpoint.as_ref());
        if old != Some(endpoint) {
            let addresses = endpoint.addresses.join(", ");
            let port = endpoint.port.unwrap_or_default();
            let note =
                format!("peers reach it at {addresses}, UDP port {port} (Service {service})");
            plan.announce(self.kind(), key, false, "EndpointAssigned", note);
        }
    }

    /// Writes only the conditions, which report the problem.
    pub(in crate::network::plan) fn refuse(
        &self,
        problem: Problem,
        now: Timestamp,
    ) -> Option<Write> {
        match self {
            Self::Server(key, server) => {
                let mut status = server.status.clone().unwrap_or_default();
                self.set_conditions(&mut status.conditions, Err(problem), now);
                Write::status(self.kind(), key, server.status.as_ref(), &status)
            }
            Self::Client(key, client) => {
                let mut status = client.status.clone().unwrap_or_default();
                self.set_conditions(&mut status.conditions, Err(problem), now);
                Write::status(self.kind(), key, client.status.as_ref(), &status)
            }
        }
    }

    /// Returns a plan with an Event about a problem, or about its end.
    pub(in crate::network::plan) fn notice(&self, verdict: &Result<(), Problem>) -> Plan {
        let mut plan = Plan::default();
        match verdict {
            Ok(()) => plan.event_normal(self.kind(), self.key(), "Ready", "it serves its peer"),
            Err(problem) => {
                let (reason, is_reported) = problem.reason();
                if is_reported {
                    plan.warn(self.kind(), self.key(), reason, problem);
                }
            }
        }

        plan
    }

    fn set_conditions(
        &self,
        conditions: &mut Vec<Condition>,
        verdict: Result<(), Problem>,
        now: Timestamp,
    ) {
        let generation = self.meta().generation;
        let (is_true, reason, message) = match &verdict {
            Ok(()) => (
                true,
                "Configured",
                "the gateway is configured for this peer".to_owned(),
            ),
            Err(problem) => (false, problem.reason().0, problem.to_string()),
        };
        let ready = Verdict {
            type_: READY,
            is_true,
            reason,
            message,
        };
        ready.set(conditions, generation, now);
        let template = match self {
            Self::Server(_, server) => server.spec.server_template_ref.as_ref(),
            Self::Client(_, client) => client.spec.client_template_ref.as_ref(),
        };
        let named = template.and_then(|template| template.name.as_deref());
        match named.filter(|name| !name.is_empty()) {
            Some(name) => {
                let message = format!(
                    "template {name} has no effect: one gateway, which the Helm chart configures, serves all peers"
                );
                let ignored = Verdict {
                    type_: TEMPLATE_IGNORED,
                    is_true: true,
                    reason: TEMPLATE_IGNORED,
                    message,
                };
                ignored.set(conditions, generation, now);
            }
            None => conditions.retain(|old| old.type_ != TEMPLATE_IGNORED),
        }
    }
}

fn reference_to(api_version: &str, kind: &str, key: &Key) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        ..ObjectReference::default()
    }
}

/// Returns the endpoint of a Service outside of the cluster.
fn endpoint(key: &Key, service: &Service, nodes: &[String]) -> Result<Endpoint, Problem> {
    let spec = service.spec.clone().unwrap_or_default();
    let port = spec
        .ports
        .iter()
        .flatten()
        .next()
        .cloned()
        .unwrap_or_default();
    let (addresses, port) = match spec.type_.as_deref() {
        Some("NodePort") if nodes.is_empty() => return Err(Problem::NoNode),
        Some("NodePort") => (nodes.to_vec(), port.node_port),
        Some("LoadBalancer") => {
            let balancer = service
                .status
                .as_ref()
                .and_then(|it| it.load_balancer.as_ref());
            let ingress = balancer.and_then(|it| it.ingress.as_ref());
            let ingress: Vec<_> = ingress.into_iter().flatten().collect();
            let ips = ingress.iter().filter_map(|it| it.ip.clone());
            let names = ingress.iter().filter_map(|it| it.hostname.clone());
            (ips.chain(names).collect(), Some(port.port))
        }
        _ => {
            let ips = spec.cluster_ips.into_iter().flatten();
            (ips.filter(|ip| ip != "None").collect(), Some(port.port))
        }
    };
    let port = port.filter(|port| *port != 0);
    if addresses.is_empty() || port.is_none() {
        return Err(Problem::NoAddress(key.clone()));
    }

    Ok(Endpoint {
        addresses,
        port,
        ports: Vec::new(),
        protocol: Some(Protocol::Udp),
    })
}
