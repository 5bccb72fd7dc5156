//! GatewayServer and GatewayClient: what they have in common, what keeps them from serving, their status.

use super::secret::KeyProblem;
use super::{Planner, service};
use crate::condition::Verdict;
use crate::kind::{Key, Kind};
use crate::world::{Subject, is_going};
use crate::write::Write;
use control_api::endpoint::{Endpoint, Protocol};
use control_api::{GatewayClient, GatewayServer};
use k8s_openapi::api::core::v1::{ObjectReference, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

/// Type of the condition that everything about a gateway is done here.
const READY: &str = "Ready";
/// Type of the condition that a template was named, which has no effect.
const TEMPLATE_IGNORED: &str = "TemplateIgnored";

/// Longest name of a gateway: `gw-` and it make a label.
const NAME_LEN_MAX: usize = 60;

/// A GatewayServer or GatewayClient.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gateway<'a> {
    Server(&'a Key, &'a GatewayServer),
    Client(&'a Key, &'a GatewayClient),
}

/// What keeps a gateway from serving its peer, and the cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    #[error("it does not say which peer it is for: add the label liqo.io/remote-cluster-id")]
    NoPeer,
    #[error("{0}")]
    InvalidPeer(String),
    #[error(
        "`{0}` is this cluster's own id: peers need different ones, so install one of the two again with another id"
    )]
    OwnCluster(String),
    #[error("{kind} {key} serves this peer already: delete one of the two")]
    Conflict { kind: Kind, key: Key },
    #[error(
        "its name has more than {NAME_LEN_MAX} characters: make it again with a shorter one, best the cluster id"
    )]
    NameTooLong,
    #[error("{0}")]
    Service(#[from] service::Refusal),
    #[error("{0}")]
    Key(#[from] KeyProblem),
    #[error("the API server refuses its Service: {0}")]
    ServiceRefused(String),
    #[error("its Service is not there yet")]
    ServicePending,
    #[error(
        "Service {0} has no address yet: check that the cluster has load balancers, or use NodePort"
    )]
    NoAddress(Key),
    #[error("no node is ready, so no address can be told")]
    NoNode,
    #[error(
        "spec.endpoint names no address or no port: copy them from status.endpoint of the peer's GatewayServer"
    )]
    NoEndpoint,
    #[error("PublicKey {0} does not hold 32 bytes: copy the publicKey of the peer's Secret")]
    PublicKeyInvalid(Key),
    #[error("PublicKeys {0} and {1} name different keys of this peer: delete the wrong one")]
    TwoPublicKeys(Key, Key),
    #[error(
        "PublicKey {key} holds the same key as {other} of another peer: each peer needs its own key, so ask both for theirs again"
    )]
    SharedPublicKey { key: Key, other: Key },
    #[error("PublicKey {0} holds this cluster's own key: it should hold the peer's")]
    OwnPublicKey(Key),
    #[error("the peer's PublicKey is not there yet")]
    NoPublicKey,
}

impl Problem {
    /// Returns a word for it, and whether people should be told.
    fn reason(&self) -> (&'static str, bool) {
        match self {
            Self::NoPeer => ("NoClusterID", true),
            Self::InvalidPeer(_) => ("InvalidClusterID", true),
            Self::OwnCluster(_) => ("OwnClusterID", true),
            Self::Conflict { .. } => ("Conflict", true),
            Self::NameTooLong => ("NameTooLong", true),
            Self::Service(_) => ("InvalidEndpoint", true),
            Self::Key(problem) => (problem.reason(), *problem != KeyProblem::Pending),
            Self::ServiceRefused(_) => ("ServiceRefused", true),
            Self::ServicePending => ("WaitingForService", false),
            Self::NoAddress(_) => ("WaitingForAddress", false),
            Self::NoNode => ("NoReadyNode", true),
            Self::NoEndpoint => ("InvalidEndpoint", true),
            Self::PublicKeyInvalid(_) => ("InvalidPublicKey", true),
            Self::TwoPublicKeys(..) => ("TwoPublicKeys", true),
            Self::SharedPublicKey { .. } => ("KeyConflict", true),
            Self::OwnPublicKey(_) => ("KeyConflict", true),
            Self::NoPublicKey => ("WaitingForPublicKey", false),
        }
    }
}

impl<'a> Gateway<'a> {
    /// Returns the gateways of a peer, the eldest first.
    pub(super) fn of_peer(planner: &'a Planner, peer: &str) -> Vec<Self> {
        let subject = Subject::Peer(peer.to_owned());
        let mut gateways: Vec<_> = planner
            .world
            .linked(&subject)
            .filter_map(|(kind, key)| {
                if kind == Kind::GatewayServer {
                    Some(Self::Server(key, planner.world.servers.get(key)?))
                } else if kind == Kind::GatewayClient {
                    Some(Self::Client(key, planner.world.clients.get(key)?))
                } else {
                    None
                }
            })
            .filter(|gateway| !is_going(gateway.meta()))
            .collect();
        gateways.sort_by_key(|gateway| {
            let created = gateway.meta().creation_timestamp.clone();
            (
                created.map(|time| time.0),
                gateway.kind(),
                gateway.key().clone(),
            )
        });

        gateways
    }

    pub(super) fn key(&self) -> &'a Key {
        match self {
            Self::Server(key, _) | Self::Client(key, _) => key,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Server(..) => Kind::GatewayServer,
            Self::Client(..) => Kind::GatewayClient,
        }
    }

    pub(super) fn meta(&self) -> &'a ObjectMeta {
        match self {
            Self::Server(_, server) => &server.metadata,
            Self::Client(_, client) => &client.metadata,
        }
    }

    /// Returns the name of the Secret that its user asks for.
    pub(super) fn secret_name(&self) -> Option<&'a str> {
        let reference = match self {
            Self::Server(_, server) => server.spec.secret_ref.as_ref(),
            Self::Client(_, client) => client.spec.secret_ref.as_ref(),
        };
        let name = reference.map(|reference| reference.name.as_str());
        name.filter(|name| !name.is_empty())
    }

    /// Returns the name of what is made for it.
    pub(super) fn derived_name(&self) -> String {
        format!("gw-{}", self.key().name)
    }

    /// Returns what is wrong with its own fields.
    pub(super) fn check(&self) -> Result<(), Problem> {
        if self.key().name.len() > NAME_LEN_MAX {
            return Err(Problem::NameTooLong);
        }
        match self {
            Self::Server(_, server) => service::Request::read(server).map(drop)?,
            Self::Client(_, client) => {
                let endpoint = client.spec.endpoint.clone().unwrap_or_default();
                let port = endpoint.port.or(endpoint.ports.first().copied());
                let is_port = port.is_some_and(|port| (1..=65535).contains(&port));
                if endpoint.addresses.iter().all(String::is_empty) || !is_port {
                    return Err(Problem::NoEndpoint);
                }
            }
        }

        Ok(())
    }

    /// Decides where peers reach the gateway of a server.
    pub(super) fn endpoint(&self, planner: &Planner) -> Result<Option<(Key, Endpoint)>, Problem> {
        let Self::Server(_, server) = self else {
            return Ok(None);
        };
        let hash = service::Request::read(server)?.hash();
        let Some((key, service)) = service::of(&planner.world, &hash) else {
            let refused = planner.world.refused_services.get(&hash);
            return Err(refused.map_or(Problem::ServicePending, |message| {
                Problem::ServiceRefused(message.clone())
            }));
        };
        let endpoint = endpoint(key, service, &planner.world.cluster.node_addresses)?;

        Ok(Some((key.clone(), endpoint)))
    }

    /// Writes the status.
    pub(super) fn status(
        &self,
        planner: &Planner,
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
        let internal_endpoint = planner.world.cluster.gateway.clone();
        match self {
            Self::Server(key, server) => {
                let mut status = server.status.clone().unwrap_or_default();
                self.set_conditions(&mut status.conditions, verdict, now);
                status.internal_endpoint = internal_endpoint;
                status.secret_ref = secret_ref.or(status.secret_ref);
                status.endpoint = endpoint.map(|(_, endpoint)| endpoint.clone());
                status.server_ref = endpoint
                    .map(|(service, _)| made("v1", "Service", service))
                    .or(status.server_ref);
                Write::status(self.kind(), key, server.status.as_ref(), &status)
            }
            Self::Client(key, client) => {
                let mut status = client.status.clone().unwrap_or_default();
                self.set_conditions(&mut status.conditions, verdict, now);
                status.internal_endpoint = internal_endpoint;
                if secret_ref.is_some() {
                    let gateway = Key::new(planner.settings.namespace.clone(), service::NAME);
                    status.client_ref = Some(made("apps/v1", "Deployment", &gateway));
                }
                status.secret_ref = secret_ref.or(status.secret_ref);
                Write::status(self.kind(), key, client.status.as_ref(), &status)
            }
        }
    }

    /// Writes no more of the status than why there is none.
    pub(super) fn refuse(&self, problem: Problem, now: Timestamp) -> Option<Write> {
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

    /// Tells people about a problem, or that there is none any more.
    pub(super) fn notice(&self, verdict: &Result<(), Problem>) -> super::Plan {
        let mut plan = super::Plan::default();
        match verdict {
            Ok(()) => plan.praise(self.kind(), self.key(), "Ready", "it serves its peer"),
            Err(problem) => {
                let (reason, is_told) = problem.reason();
                if is_told {
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
                "the gateway has all it needs to serve this peer".to_owned(),
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

fn made(api_version: &str, kind: &str, key: &Key) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        ..ObjectReference::default()
    }
}

/// Returns where a Service is reached from outside.
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
