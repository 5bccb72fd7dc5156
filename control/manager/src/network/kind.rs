//! The kinds of objects that the manager reads or writes.

use control_api::labels;
use control_api::{
    Configuration, Connection, GatewayClient, GatewayServer, IP, Network, PublicKey,
};
use control_runtime::Resource;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::RoleBinding;
use std::fmt;

pub(crate) use control_runtime::Key;

/// Name of the Secret that the gateway reads.
pub(crate) const GATEWAY_KEYS: &str = "liqo-gateway-keys";

/// Name of the manager's ServiceAccount, as in the chart.
pub(crate) const SERVICE_ACCOUNT: &str = "liqo-controller-manager";

/// Name of the ClusterRole for tenant namespaces, as in the chart, and of its RoleBindings.
pub(crate) const TENANT_ROLE: &str = "liqo-controller-manager-tenant";

/// Value of [`labels::SLICE_MANAGED_BY`] on the EndpointSlices that the manager creates.
pub(crate) const SLICE_MANAGER: &str = "controller-manager.liqo.io";

/// Prefix of the names of the IP objects of nodes.
pub(crate) const NODE_IP_PREFIX: &str = "node-";

/// A Service whose ClusterIP peers reach at an IP object that the manager creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ReachedService {
    /// That of the API server, which pods reach that run in another cluster.
    ApiServer,
    /// That of the proxy in front of the API server, as in the chart. `liqoctl peer --in-band` reads its IP.
    Proxy,
}

impl ReachedService {
    pub(crate) const ALL: [Self; 2] = [Self::ApiServer, Self::Proxy];

    /// Returns the name of the Service.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kubernetes",
            Self::Proxy => "liqo-proxy",
        }
    }

    /// Returns the key of the Service, with the namespace of Liqo.
    pub(crate) fn key(self, liqo: &str) -> Key {
        match self {
            Self::ApiServer => Key::new("default", self.name()),
            Self::Proxy => Key::new(liqo, self.name()),
        }
    }

    /// Returns the kind of the Service.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::ApiServer => Kind::ApiServerService,
            Self::Proxy => Kind::ProxyService,
        }
    }

    /// Returns the name of the IP in the namespace of Liqo, which is also the value of its label [`labels::IP_TYPE`].
    pub(crate) fn ip(self) -> &'static str {
        match self {
            Self::ApiServer => labels::IP_TYPE_API_SERVER,
            Self::Proxy => labels::IP_TYPE_API_SERVER_PROXY,
        }
    }

    /// Returns what a missing ClusterIP means.
    pub(crate) fn consequence(self) -> &'static str {
        match self {
            Self::ApiServer => "pods that run in another cluster cannot reach the API server",
            Self::Proxy => "peers cannot reach the API server in-band",
        }
    }
}

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Network,
    Ip,
    Configuration,
    GatewayServer,
    GatewayClient,
    PublicKey,
    Connection,
    Node,
    /// Pods of the gateway only.
    Pod,
    Namespace,
    /// The ConfigMap with the cluster ID.
    ConfigMap,
    /// Secrets of gateways; watched in each tenant namespace.
    Secret,
    /// The RoleBinding that gives the manager its rights in a tenant namespace.
    RoleBinding,
    /// The Secret with all private keys, which the gateway reads.
    GatewayKeys,
    /// Created by this project.
    Service,
    /// The Service of the API server.
    ApiServerService,
    /// The Service of the proxy in front of the API server, which the chart creates.
    ProxyService,
    /// Created by this project.
    EndpointSlice,
    /// Deployments of gateways in tenant namespaces.
    Deployment,
}

/// All kinds.
pub(crate) const KINDS: [Kind; 19] = [
    Kind::Network,
    Kind::Ip,
    Kind::Configuration,
    Kind::GatewayServer,
    Kind::GatewayClient,
    Kind::PublicKey,
    Kind::Connection,
    Kind::Node,
    Kind::Pod,
    Kind::Namespace,
    Kind::ConfigMap,
    Kind::Secret,
    Kind::RoleBinding,
    Kind::GatewayKeys,
    Kind::Service,
    Kind::ApiServerService,
    Kind::ProxyService,
    Kind::EndpointSlice,
    Kind::Deployment,
];

impl Kind {
    /// Returns the API resource of the kind.
    pub(crate) fn resource(self) -> Resource {
        match self {
            Self::Network => Resource::of::<Network>(),
            Self::Ip => Resource::of::<IP>(),
            Self::Configuration => Resource::of::<Configuration>(),
            Self::GatewayServer => Resource::of::<GatewayServer>(),
            Self::GatewayClient => Resource::of::<GatewayClient>(),
            Self::PublicKey => Resource::of::<PublicKey>(),
            Self::Connection => Resource::of::<Connection>(),
            Self::Node => Resource::of::<Node>(),
            Self::Pod => Resource::of::<Pod>(),
            Self::Namespace => Resource::of::<Namespace>(),
            Self::ConfigMap => Resource::of::<ConfigMap>(),
            Self::Secret | Self::GatewayKeys => Resource::of::<Secret>(),
            Self::RoleBinding => Resource::of::<RoleBinding>(),
            Self::Service | Self::ApiServerService | Self::ProxyService => {
                Resource::of::<Service>()
            }
            Self::EndpointSlice => Resource::of::<EndpointSlice>(),
            Self::Deployment => Resource::of::<Deployment>(),
        }
    }

    /// Returns the kind of an object; `None` if the manager does not follow its resource.
    ///
    /// The Secret that the gateway reads and the Services with an IP have separate kinds.
    pub(crate) fn of(resource: &Resource, key: &Key, namespace: &str) -> Option<Self> {
        let keys = (Self::GatewayKeys, Key::new(namespace, GATEWAY_KEYS));
        let services = ReachedService::ALL.map(|it| (it.kind(), it.key(namespace)));
        let mut named = std::iter::once(keys).chain(services);
        if let Some((kind, _)) =
            named.find(|(kind, named)| named == key && *resource == kind.resource())
        {
            return Some(kind);
        }
        let kind = KINDS
            .into_iter()
            .find(|kind| kind.resource() == *resource)?;
        // Another controller follows all RoleBindings.
        let is_followed = kind != Self::RoleBinding || key.name == TENANT_ROLE;

        is_followed.then_some(kind)
    }

    /// Returns the selector of the objects that the manager follows; `None` for all.
    pub(crate) fn selector(self) -> Option<String> {
        let label = |key: &str, value: &str| Some(format!("{key}={value}"));
        match self {
            Self::Pod => label(labels::COMPONENT, labels::COMPONENT_GATEWAY),
            Self::ConfigMap => label(labels::APP_NAME, labels::CLUSTER_ID_CONFIG_MAP),
            Self::Secret => label(labels::GATEWAY_RESOURCE, "true"),
            Self::Service => label(labels::MANAGED, "true"),
            Self::EndpointSlice => label(labels::SLICE_MANAGED_BY, SLICE_MANAGER),
            Self::Deployment => Some(format!(
                "{}={},{}=true",
                labels::COMPONENT,
                labels::COMPONENT_GATEWAY,
                labels::MANAGED
            )),
            Self::Network
            | Self::Ip
            | Self::Configuration
            | Self::GatewayServer
            | Self::GatewayClient
            | Self::PublicKey
            | Self::Connection
            | Self::Node
            | Self::Namespace
            | Self::RoleBinding
            | Self::GatewayKeys
            | Self::ApiServerService
            | Self::ProxyService => None,
        }
    }

    /// Returns the name of the objects that the manager follows; `None` for all.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::GatewayKeys => Some(GATEWAY_KEYS),
            Self::ApiServerService => Some(ReachedService::ApiServer.name()),
            Self::ProxyService => Some(ReachedService::Proxy.name()),
            Self::RoleBinding => Some(TENANT_ROLE),
            Self::Network
            | Self::Ip
            | Self::Configuration
            | Self::GatewayServer
            | Self::GatewayClient
            | Self::PublicKey
            | Self::Connection
            | Self::Node
            | Self::Pod
            | Self::Namespace
            | Self::ConfigMap
            | Self::Secret
            | Self::Service
            | Self::EndpointSlice
            | Self::Deployment => None,
        }
    }

    /// Returns the verbs of the manager's writes to objects of the kind.
    pub(crate) fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Network
            | Self::Ip
            | Self::Connection
            | Self::Secret
            | Self::RoleBinding
            | Self::Service
            | Self::EndpointSlice
            | Self::Deployment => &["create", "patch", "delete"],
            Self::GatewayKeys => &["create", "patch"],
            Self::Configuration => &["patch"],
            Self::GatewayServer
            | Self::GatewayClient
            | Self::PublicKey
            | Self::Node
            | Self::Pod
            | Self::Namespace
            | Self::ConfigMap
            | Self::ApiServerService
            | Self::ProxyService => &[],
        }
    }

    /// Returns the fields that are applied to its objects. Other changes are creations and merge patches.
    pub(crate) fn applied_fields(self) -> &'static [&'static str] {
        match self {
            Self::Network
            | Self::Ip
            | Self::Configuration
            | Self::GatewayServer
            | Self::GatewayClient
            | Self::Connection => &["status"],
            Self::Service | Self::Deployment => &[
                "metadata.annotations",
                "metadata.labels",
                "metadata.ownerReferences",
                "spec",
            ],
            Self::EndpointSlice => &[
                "addressType",
                "endpoints",
                "metadata.annotations",
                "metadata.labels",
                "metadata.ownerReferences",
                "ports",
            ],
            Self::PublicKey
            | Self::Node
            | Self::Pod
            | Self::Namespace
            | Self::ConfigMap
            | Self::Secret
            | Self::RoleBinding
            | Self::GatewayKeys
            | Self::ApiServerService
            | Self::ProxyService => &[],
        }
    }

    /// Returns the subresources that the manager writes, with the verbs.
    ///
    /// Only admission plugins of OpenShift require rights to `finalizers` and `restricted`: the former for
    /// owner references with `blockOwnerDeletion`, the latter for EndpointSlices that Kubernetes' own
    /// controllers do not write. The manager never sends requests to these subresources.
    pub(crate) fn subresources(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Network | Self::Connection => &[("status", "patch")],
            Self::Ip | Self::Configuration | Self::GatewayServer | Self::GatewayClient => {
                &[("status", "patch"), ("finalizers", "update")]
            }
            Self::EndpointSlice => &[("restricted", "create")],
            Self::PublicKey
            | Self::Node
            | Self::Pod
            | Self::Namespace
            | Self::ConfigMap
            | Self::Secret
            | Self::RoleBinding
            | Self::GatewayKeys
            | Self::Service
            | Self::ApiServerService
            | Self::ProxyService
            | Self::Deployment => &[],
        }
    }

    /// Returns the kind of an owner reference; `None` if the manager creates no objects for that kind.
    pub(crate) fn of_owner(kind: &str) -> Option<Self> {
        match kind {
            "Configuration" => Some(Self::Configuration),
            "IP" => Some(Self::Ip),
            "GatewayServer" => Some(Self::GatewayServer),
            "GatewayClient" => Some(Self::GatewayClient),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "Network",
            Self::Ip => "IP",
            Self::Configuration => "Configuration",
            Self::GatewayServer => "GatewayServer",
            Self::GatewayClient => "GatewayClient",
            Self::PublicKey => "PublicKey",
            Self::Connection => "Connection",
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Namespace => "Namespace",
            Self::ConfigMap => "ConfigMap",
            Self::Secret | Self::GatewayKeys => "Secret",
            Self::RoleBinding => "RoleBinding",
            Self::Service | Self::ApiServerService | Self::ProxyService => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Deployment => "Deployment",
        })
    }
}
