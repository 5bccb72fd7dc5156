//! Keys and values of labels, as Liqo's.

/// Of an object about a peer: the peer's cluster id.
pub const REMOTE_CLUSTER_ID: &str = "liqo.io/remote-cluster-id";
/// Of an object that this project made: `true`.
pub const MANAGED: &str = "liqo.io/managed";
/// Of a namespace that holds the objects of a peer: `true`. Who may set it: [`tenant_namespace`](crate::tenant_namespace).
pub const TENANT_NAMESPACE: &str = "liqo.io/tenant-namespace";
/// Of a namespace whose IPs may have a Service for an address of the cluster itself: `true`; this
/// project's addition.
pub const ALLOW_INTERNAL_ADDRESSES: &str = "ipam.liqo.io/allow-internal-addresses";

/// Of a Node that stands for a peer: [`NODE_TYPE_VIRTUAL`].
pub const NODE_TYPE: &str = "liqo.io/type";
/// Value of [`NODE_TYPE`].
pub const NODE_TYPE_VIRTUAL: &str = "virtual-node";

/// Of a chart's object: what it is.
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// Value of [`APP_NAME`] on the ConfigMap that holds the cluster id.
pub const CLUSTER_ID_CONFIG_MAP: &str = "clusterid-configmap";

/// Of a [`Network`](crate::Network): what it is for.
pub const NETWORK_TYPE: &str = "ipam.liqo.io/network-type";
/// Value of [`NETWORK_TYPE`]: this cluster's pods.
pub const NETWORK_TYPE_POD: &str = "pod-cidr";
/// Value of [`NETWORK_TYPE`]: this cluster's services.
pub const NETWORK_TYPE_SERVICE: &str = "service-cidr";
/// Value of [`NETWORK_TYPE`]: single addresses that peers reach.
pub const NETWORK_TYPE_EXTERNAL: &str = "external-cidr";
/// Value of [`NETWORK_TYPE`]: this cluster's own fabric.
pub const NETWORK_TYPE_INTERNAL: &str = "internal-cidr";
/// Value of [`NETWORK_TYPE`]: to be left alone.
pub const NETWORK_TYPE_RESERVED: &str = "reserved";
/// Of a [`Network`](crate::Network) that must keep its CIDR: `true`.
pub const NETWORK_NOT_REMAPPED: &str = "ipam.liqo.io/network-not-remapped";
/// Of a [`Network`](crate::Network) whose CIDR others may hold, too: `true`.
pub const NETWORK_SHARED: &str = "ipam.liqo.io/network-shared";
/// Of a [`Network`](crate::Network) that belongs to a [`Configuration`](crate::Configuration): `pod` or `external`.
pub const CONFIGURATION_CIDR_TYPE: &str = "configuration.liqo.io/cidr-type";

/// Of an [`IP`](crate::IP): what address it is.
pub const IP_TYPE: &str = "ipam.liqo.io/ip-type";
/// Value of [`IP_TYPE`]: a node's; this project's addition.
pub const IP_TYPE_NODE: &str = "node";
/// Of an [`IP`](crate::IP): name of the [`Network`](crate::Network) that gives its address.
pub const NETWORK_NAME: &str = "ipam.liqo.io/network-name";
/// Of an [`IP`](crate::IP): namespace of the [`Network`](crate::Network) that gives its address.
pub const NETWORK_NAMESPACE: &str = "ipam.liqo.io/network-namespace";
/// Of an [`IP`](crate::IP) that is not to be translated: `true`.
pub const HOST_UNREACHABLE: &str = "networking.liqo.io/host-unreachable";

/// Of a gateway's object: what part it is.
pub const COMPONENT: &str = "networking.liqo.io/component";
/// Value of [`COMPONENT`]: the gateway itself.
pub const COMPONENT_GATEWAY: &str = "gateway";
/// Of a key or Secret of a gateway: `true`.
pub const GATEWAY_RESOURCE: &str = "networking.liqo.io/gateway-resource";
/// Of a gateway's object: name of the GatewayServer or GatewayClient.
pub const GATEWAY_NAME: &str = "networking.liqo.io/gateway-name";
/// Of a gateway's object: namespace of the GatewayServer or GatewayClient.
pub const GATEWAY_NAMESPACE: &str = "networking.liqo.io/gateway-namespace";
/// Of the gateway pod that carries traffic: `true`.
pub const ACTIVE: &str = "networking.liqo.io/active";

/// Of a Service that this project made for its gateway: what was asked for, as a hash; its addition.
pub const GATEWAY_SERVICE: &str = "networking.liqo.io/gateway-service";
/// Kubernetes' own, of a controller's object: what it belongs to.
pub const APP_PART_OF: &str = "app.kubernetes.io/part-of";
/// Kubernetes' own, of an EndpointSlice: the Service it is for.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Kubernetes' own, of an EndpointSlice: who writes it.
pub const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
