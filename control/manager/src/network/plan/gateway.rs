//! GatewayServer and GatewayClient: their common fields, their problems and their status.

use super::{Planner, owner};
use crate::network::kind::{Key, Kind};
use crate::network::local::is_terminating;
use crate::network::service_request::ServiceRequest;
use control_api::networking::endpoint::Protocol;
use control_api::tenant_namespace::Misplaced;
use control_api::{GatewayClient, GatewayServer};
use control_fabric::{MTU_RANGE, is_host};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use problem::NAME_LEN_MAX;

pub(super) use key_problem::KeyProblem;
pub(super) use problem::{NOT_TENANT_NAMESPACE, Problem};

mod key_problem;
mod problem;
mod status;

/// A GatewayServer or GatewayClient.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gateway<'a> {
    Server(&'a Key, &'a GatewayServer),
    Client(&'a Key, &'a GatewayClient),
}

impl<'a> Gateway<'a> {
    /// Returns the gateways in the tenant namespace of a peer, the oldest first.
    pub(super) fn of_peer(planner: &'a Planner<'_>, peer: &str) -> Vec<Self> {
        let placed = planner.local.of_peer(peer).into_iter();
        let mut gateways: Vec<_> = placed
            .filter_map(|(kind, key)| Self::read(planner, kind, key))
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

    /// Returns the gateways of a peer in other namespaces, which have no effect, with the reason.
    pub(super) fn misplaced(planner: &'a Planner<'_>, peer: &str) -> Vec<(Self, Misplaced)> {
        let kinds = [Kind::GatewayServer, Kind::GatewayClient];
        let misplaced = planner.local.misplaced(peer, &kinds);
        misplaced
            .into_iter()
            .filter_map(|(kind, key, why)| Some((Self::read(planner, kind, key)?, why)))
            .collect()
    }

    /// Returns the gateway with a key; `None` if the object is of another kind or being deleted.
    fn read(planner: &'a Planner<'_>, kind: Kind, key: &'a Key) -> Option<Self> {
        let gateway = if kind == Kind::GatewayServer {
            Self::Server(key, planner.local.servers.get(key)?)
        } else if kind == Kind::GatewayClient {
            Self::Client(key, planner.local.clients.get(key)?)
        } else {
            return None;
        };

        (!is_terminating(gateway.meta())).then_some(gateway)
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

    /// Returns a reference to the gateway, for the objects that it owns.
    pub(super) fn owner(&self) -> OwnerReference {
        match self {
            Self::Server(_, server) => owner(*server),
            Self::Client(_, client) => owner(*client),
        }
    }

    /// Returns the name of the Secret in the spec.
    pub(super) fn secret_name(&self) -> Option<&'a str> {
        let reference = match self {
            Self::Server(_, server) => server.spec.secret_ref.as_ref(),
            Self::Client(_, client) => client.spec.secret_ref.as_ref(),
        };
        let name = reference.map(|reference| reference.name.as_str());
        name.filter(|name| !name.is_empty())
    }

    /// Returns the name of the objects that the manager creates for the gateway.
    pub(super) fn derived_name(&self) -> String {
        format!("gw-{}", self.key().name)
    }

    /// Checks the fields of the gateway itself.
    pub(super) fn check(&self) -> Result<(), Problem> {
        if self.key().name.len() > NAME_LEN_MAX {
            return Err(Problem::NameTooLong);
        }
        let mtu = match self {
            Self::Server(_, server) => server.spec.mtu,
            Self::Client(_, client) => client.spec.mtu,
        };
        if let Some(value) = mtu.filter(|mtu| !MTU_RANGE.contains(mtu)) {
            let problem = control_fabric::Problem::BadMtu { value };
            return Err(Problem::Field {
                field: "spec.mtu",
                problem,
            });
        }
        match self {
            Self::Server(_, server) => ServiceRequest::read(server).map(drop)?,
            Self::Client(_, client) => {
                let endpoint = client.spec.endpoint.clone().unwrap_or_default();
                if endpoint.protocol == Some(Protocol::Tcp) {
                    return Err(Problem::Field {
                        field: "spec.endpoint.protocol",
                        problem: control_fabric::Problem::NotUdp,
                    });
                }
                let mut addresses = endpoint.addresses.iter();
                // An empty list is reported below.
                let wrong = addresses.find(|address| !address.is_empty() && !is_host(address));
                if let Some(value) = wrong.cloned() {
                    return Err(Problem::Field {
                        field: "spec.endpoint.addresses",
                        problem: control_fabric::Problem::BadHost { value },
                    });
                }
                let port = endpoint.port.or(endpoint.ports.first().copied());
                let is_port = port.is_some_and(|port| (1..=65535).contains(&port));
                if endpoint.addresses.iter().all(String::is_empty) || !is_port {
                    return Err(Problem::NoEndpoint);
                }
            }
        }

        Ok(())
    }
}
