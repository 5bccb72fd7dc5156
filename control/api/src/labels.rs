//! Keys and values of labels.
//!
//! They are Liqo's, unless the comment states that they are an addition of this project.

/// On an object of a peer. Value: the peer's cluster ID.
pub const REMOTE_CLUSTER_ID: &str = "liqo.io/remote-cluster-id";
/// On an object that this project's controllers created. Value: `true`.
pub const MANAGED: &str = "liqo.io/managed";
/// On the namespace with the objects of a peer. Value: `true`. Only administrators may set it, see
/// [`tenant_namespace`](crate::tenant_namespace).
pub const TENANT_NAMESPACE: &str = "liqo.io/tenant-namespace";
/// On a namespace whose IP objects may request a Service for an address of the cluster itself. Value:
/// `true`. An addition of this project.
pub const ALLOW_INTERNAL_ADDRESSES: &str = "ipam.liqo.io/allow-internal-addresses";

/// On a ClusterRole whose rights all consumers have in their namespaces, to reflect further kinds of objects. Value: `true`. An
/// addition of this project.
pub const AGGREGATE_TO_REMOTE: &str = "liqo.io/aggregate-to-virtual-kubelet-remote";
/// On a ClusterRole whose rights the virtual kubelets of this cluster have in offloaded namespaces, likewise. Value: `true`. An
/// addition of this project.
pub const AGGREGATE_TO_LOCAL: &str = "liqo.io/aggregate-to-virtual-kubelet-local";

/// On a Node. Value for a virtual node: [`NODE_TYPE_VIRTUAL`].
pub const NODE_TYPE: &str = "liqo.io/type";
/// Value of [`NODE_TYPE`]: the node represents resources of a peer.
pub const NODE_TYPE_VIRTUAL: &str = "virtual-node";

/// Kubernetes' label on a Node that runs an API server. The value is empty.
pub const CONTROL_PLANE_NODE: &str = "node-role.kubernetes.io/control-plane";

/// Kubernetes' recommended label on an object of the chart. Value: the name of the component.
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// Value of [`APP_NAME`] on the ConfigMap with the cluster ID.
pub const CLUSTER_ID_CONFIG_MAP: &str = "clusterid-configmap";

/// On a [`Network`](crate::Network). Value: the use of the CIDR.
pub const NETWORK_TYPE: &str = "ipam.liqo.io/network-type";
/// Value of [`NETWORK_TYPE`]: a pod CIDR of this cluster.
pub const NETWORK_TYPE_POD: &str = "pod-cidr";
/// Value of [`NETWORK_TYPE`]: the service CIDR of this cluster.
pub const NETWORK_TYPE_SERVICE: &str = "service-cidr";
/// Value of [`NETWORK_TYPE`]: the CIDR from which IP objects get their addresses.
pub const NETWORK_TYPE_EXTERNAL: &str = "external-cidr";
/// Value of [`NETWORK_TYPE`]: the CIDR of the fabric between nodes and gateways.
pub const NETWORK_TYPE_INTERNAL: &str = "internal-cidr";
/// Value of [`NETWORK_TYPE`]: a CIDR that must not be used for remapping.
pub const NETWORK_TYPE_RESERVED: &str = "reserved";
/// On a [`Network`](crate::Network) whose CIDR must not be remapped. Value: `true`.
pub const NETWORK_NOT_REMAPPED: &str = "ipam.liqo.io/network-not-remapped";
/// On a [`Network`](crate::Network) whose CIDR other Networks may also have. Value: `true`.
pub const NETWORK_SHARED: &str = "ipam.liqo.io/network-shared";
/// On a [`Network`](crate::Network) of a [`Configuration`](crate::Configuration). Value: `pod` or `external`.
pub const CONFIGURATION_CIDR_TYPE: &str = "configuration.liqo.io/cidr-type";

/// On an [`IP`](crate::IP). Value: the owner of the address.
pub const IP_TYPE: &str = "ipam.liqo.io/ip-type";
/// Value of [`IP_TYPE`]: a node. An addition of this project.
pub const IP_TYPE_NODE: &str = "node";
/// Value of [`IP_TYPE`]: the Service of the API server.
pub const IP_TYPE_API_SERVER: &str = "api-server";
/// Value of [`IP_TYPE`]: the proxy in front of the API server.
pub const IP_TYPE_API_SERVER_PROXY: &str = "api-server-proxy";
/// On an [`IP`](crate::IP). Value: name of the [`Network`](crate::Network) of its address.
pub const NETWORK_NAME: &str = "ipam.liqo.io/network-name";
/// On an [`IP`](crate::IP). Value: namespace of the [`Network`](crate::Network) of its address.
pub const NETWORK_NAMESPACE: &str = "ipam.liqo.io/network-namespace";
/// On an [`IP`](crate::IP) whose address must not be translated. Value: `true`.
pub const HOST_UNREACHABLE: &str = "networking.liqo.io/host-unreachable";

/// On an object of a gateway. Value: the component.
pub const COMPONENT: &str = "networking.liqo.io/component";
/// Value of [`COMPONENT`]: the gateway process.
pub const COMPONENT_GATEWAY: &str = "gateway";
/// On a PublicKey or a Secret of a gateway. Value: `true`.
pub const GATEWAY_RESOURCE: &str = "networking.liqo.io/gateway-resource";
/// On an object of a gateway. Value: name of the GatewayServer or GatewayClient.
pub const GATEWAY_NAME: &str = "networking.liqo.io/gateway-name";
/// On an object of a gateway. Value: namespace of the GatewayServer or GatewayClient.
pub const GATEWAY_NAMESPACE: &str = "networking.liqo.io/gateway-namespace";
/// On the gateway pod that forwards traffic. Value: `true`.
pub const ACTIVE: &str = "networking.liqo.io/active";

/// On a gateway's Service. Value: a hash of the requested endpoint. An addition of this project.
pub const GATEWAY_SERVICE: &str = "networking.liqo.io/gateway-service";
/// Kubernetes' recommended label. Value: the application to which an object belongs.
pub const APP_PART_OF: &str = "app.kubernetes.io/part-of";
/// Kubernetes' label on an EndpointSlice. Value: name of the Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Kubernetes' label on an EndpointSlice. Value: the controller that writes it.
pub const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Value of [`SLICE_MANAGED_BY`] on a reflected EndpointSlice.
pub const SLICE_MANAGED_BY_REFLECTION: &str = "endpointslice.reflection.liqo.io";

/// Value of [`SLICE_MANAGED_BY`] on an EndpointSlice of an imported Service.
pub const SLICE_MANAGED_BY_SERVICE_IMPORT: &str = "multicluster.liqo.io";

/// On a Secret with a nonce, in the provider's tenant namespace. Value: `true`.
pub const NONCE: &str = "liqo.io/nonce";
/// On a Secret with a signed nonce, in the consumer's tenant namespace. Value: `true`.
pub const SIGNED_NONCE: &str = "liqo.io/signed-nonce";
/// On a kubeconfig Secret. Value: the type of the Identity, `ControlPlane` or `ResourceSlice`.
pub const IDENTITY_TYPE: &str = "liqo.io/identity-type";
/// Value of [`IDENTITY_TYPE`]: the credentials of the control plane.
pub const IDENTITY_TYPE_CONTROL_PLANE: &str = "ControlPlane";
/// On a CertificateSigningRequest for a consumer. Value: `true`.
pub const REMOTE_TENANT_CSR: &str = "liqo.io/remote-tenant-csr";

/// On the objects of a virtual kubelet. Value: the component.
pub const OFFLOADING_COMPONENT: &str = "offloading.liqo.io/component";
/// Value of [`OFFLOADING_COMPONENT`]: the virtual kubelet.
pub const OFFLOADING_COMPONENT_VIRTUAL_KUBELET: &str = "virtual-kubelet";
/// On the objects of a virtual kubelet. Value: name of the [`VirtualNode`](crate::VirtualNode).
pub const VIRTUAL_NODE: &str = "liqo.io/virtual-node";

/// On an offloaded namespace whose pods may run in other clusters. Value: `true`.
pub const SCHEDULING_ENABLED: &str = "liqo.io/scheduling-enabled";
/// On a pod of this cluster that runs in another one. Value: `true`.
pub const SHADOW_POD: &str = "liqo.io/shadowPod";
/// On a pod of this cluster. Value: `true` while the virtual node that runs it is not ready.
pub const REMOTE_UNAVAILABLE: &str = "liqo.io/remote-unavailable";
/// On an object that a provider has created for an object of a consumer. Value: its kind, as in [`MANAGED_BY_SHADOW_POD`].
pub const MANAGED_BY: &str = "liqo.io/managed-by";
/// Value of [`MANAGED_BY`] on a pod.
pub const MANAGED_BY_SHADOW_POD: &str = "shadowpod";
/// Value of [`MANAGED_BY`] on an EndpointSlice.
pub const MANAGED_BY_SHADOW_ENDPOINT_SLICE: &str = "shadowendpointslice";
/// Value of [`MANAGED_BY`] on the objects of an imported Service.
pub const MANAGED_BY_SERVICE_IMPORT: &str = "serviceimport";
/// On a namespace into which the Services are imported that peers export. Value: `true`. Only administrators may set it. An addition of
/// this project.
pub const IMPORT: &str = "multicluster.liqo.io/import";
/// On a ShadowPod. Value: the user that has created it, whose [`Quota`](crate::Quota) it counts against.
pub const CREATOR_USER: &str = "liqo.io/creator-user";
/// On a reflected object. Value: cluster ID of the cluster that it is reflected from.
pub const ORIGIN: &str = "offloading.liqo.io/origin";
/// On a reflected object. Value: cluster ID of the cluster that it is reflected to.
pub const DESTINATION: &str = "offloading.liqo.io/destination";
/// On a reflected object of a pod. Value: name of the virtual node.
pub const NODE_NAME: &str = "offloading.liqo.io/nodename";
/// On a Node. Value: `true` if claims of its pods can have storage of the provider.
pub const STORAGE_AVAILABLE: &str = "storage.liqo.io/available";

/// On an object that admission webhooks and policies do not review. Value: `true`. An addition of this project.
pub const WEBHOOK_SKIP: &str = "liqo.io/webhook-skip";
/// On the objects of the admission webhooks. Value: `true`.
pub const WEBHOOK: &str = "liqo.io/webhook";

/// Kubernetes' recommended label. Value: the tool that manages the object.
pub const APP_MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// On an object of the consumer that is replicated to a provider. Value: `true`; `false` on the replica.
pub const REPLICATION: &str = "liqo.io/replication";
/// On an object that is replicated. Value: cluster ID of the provider.
pub const REMOTE_ID: &str = "liqo.io/remoteID";
/// On a replica at the provider. Value: `true`.
pub const REPLICATED: &str = "liqo.io/replicated";
/// On a replica at the provider. Value: cluster ID of the consumer.
pub const ORIGIN_ID: &str = "liqo.io/originID";
/// On an object that is replicated: who writes its status. Replicas lack it.
pub const OWNERSHIP: &str = "liqo.io/ownership";
/// On the Identity and the VirtualNode of a ResourceSlice. Value: name of the ResourceSlice.
pub const RESOURCE_SLICE_NAME: &str = "liqo.io/resourceslice-name";
/// On an object of a peering user. Value: the name of the user.
pub const PEERING_USER_NAME: &str = "liqo.io/peering-user-name";
/// Kubernetes' recommended label. Value: the role of the object within its application.
pub const APP_COMPONENT: &str = "app.kubernetes.io/component";
/// Value of [`APP_COMPONENT`] on the roles of peering users.
pub const COMPONENT_PEERING_USER: &str = "peering-user";

/// Kubernetes' label on a namespace: the Pod Security Standard that its pods must meet.
pub const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
/// On a namespace that a provider has created for a consumer. Value: name of the [`TenantPolicy`](crate::TenantPolicy) that
/// applies to the consumer; without the label, the defaults apply. An addition of this project.
pub const TENANT_POLICY: &str = "liqo.io/tenant-policy";

/// Domains of keys that steer controllers and schedulers of the cluster.
const RESERVED_DOMAINS: [&str; 3] = ["kubernetes.io", "k8s.io", "liqo.io"];

/// Returns the domain of a key, which precedes the slash.
pub fn domain(key: &str) -> Option<&str> {
    key.split_once('/').map(|(domain, _)| domain)
}

/// Returns whether a key is of `kubernetes.io`, `k8s.io`, `liqo.io` or a subdomain of one of them.
pub fn is_reserved(key: &str) -> bool {
    let is_of = |domain: &str, reserved: &str| {
        let rest = domain.strip_suffix(reserved);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };

    domain(key).is_some_and(|domain| RESERVED_DOMAINS.into_iter().any(|it| is_of(domain, it)))
}
