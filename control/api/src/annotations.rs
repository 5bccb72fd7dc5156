//! Keys of Liqo's annotations.

/// On an object that the installation created, not a user. Value: `true`.
pub const PREINSTALLED: &str = "liqo.io/preinstalled";

/// On the kubeconfig Secret of a control plane. Value: tenant namespace of this cluster at the provider.
pub const REMOTE_TENANT_NAMESPACE: &str = "liqo.io/remote-tenant-namespace";

/// On a CertificateSigningRequest for a consumer. Value: namespace and name of the Secret for the certificate. An
/// addition of this project.
pub const CERTIFICATE_SECRET: &str = "liqo.io/certificate-secret";
/// On a Secret with a nonce. Value: SHA-256 of the public key that was verified with it, hexadecimal. An addition of
/// this project.
pub const NONCE_KEY: &str = "liqo.io/nonce-key";

/// On a consumer's ResourceSlice: it grants no further pods, unless the value is `false`.
pub const CORDON: &str = "liqo.io/cordon";
/// On a consumer's ResourceSlice: its Tenant is cordoned, unless the value is `false`.
pub const CORDON_TENANT: &str = "liqo.io/cordon-tenant";

/// Returns whether a value of [`CORDON`] or [`CORDON_TENANT`] cordons, by upstream's rules.
pub fn cordons(value: &str) -> bool {
    !["false", "False", "0"].contains(&value)
}

/// On a ResourceSlice: the consumer creates a VirtualNode for it, unless the value is `false`.
pub const CREATE_VIRTUAL_NODE: &str = "liqo.io/create-virtual-node";
/// On a tenant namespace. Value: the provider's decision about the Tenant, `Cordoned` or `Drained`. An addition of this
/// project.
pub const TENANT_CONDITION: &str = "liqo.io/tenant-condition";
/// On a tenant namespace. Value: the ResourceSlices that the provider has cordoned, as `name=uid`, separated by commas. An
/// addition of this project.
pub const CORDONED_SLICES: &str = "liqo.io/cordoned-resourceslices";
/// On a ForeignCluster. Value: `true` if the cluster never answers again.
pub const PERMANENTLY_UNREACHABLE: &str = "liqo.io/foreign-cluster-permanently-unreachable";

/// On the RoleBinding of a peering user: whether this cluster may become a consumer of the user's cluster, although the user
/// can read the key of this cluster then. Value: `true`.
pub const ALLOW_REVERSE_PEERING: &str = "liqo.io/allow-reverse-peering";

/// On a namespace that a provider has created for a consumer, and on its RoleBinding. Value: namespace and name of the
/// [`NamespaceMap`](crate::NamespaceMap).
pub const NAMESPACE_MAP: &str = "liqo.io/managed-by-namespace-map";
/// On a NamespaceMap: the consumer removes what it has reflected into a namespace that it withdraws, so the provider waits for
/// that before it deletes the namespace. Value: `true`. An addition of this project.
pub const REMOVES_OBJECTS: &str = "liqo.io/removes-reflected-objects";
/// On a namespace that a provider has created for a consumer. Value: name of the consumer's namespace.
pub const ORIGINAL_NAME: &str = "liqo.io/original-name";

/// On a pod: how it accesses the API server of its own cluster, `disabled`, `remote`, or as the virtual node by default.
pub const API_SERVER_SUPPORT: &str = "liqo.io/api-server-support";
/// On a pod: the anti-affinity of the remote pod, `propagate`, `soft` or `hard`.
pub const ANTI_AFFINITY_PRESET: &str = "liqo.io/anti-affinity-preset";
/// On a pod: keys of the labels that [`ANTI_AFFINITY_PRESET`] compares, separated by commas.
pub const ANTI_AFFINITY_LABELS: &str = "liqo.io/anti-affinity-labels";
/// On a pod: RuntimeClass of the remote pod.
pub const REMOTE_RUNTIME_CLASS: &str = "liqo.io/remote-runtime-class-name";
/// On a ShadowPod. Value: UID of the consumer's pod. A pod of the same name that replaced it gets a ShadowPod of its own. An addition of
/// this project.
pub const POD_UID: &str = "liqo.io/pod-uid";
/// On a pod: ServiceAccount of the remote pod, if [`API_SERVER_SUPPORT`] is `remote`.
pub const REMOTE_SERVICE_ACCOUNT: &str = "liqo.io/remote-service-account-name";

/// On a VirtualNode. Value: digests of the values in its `spec.template` that the controller has filled in, as
/// `name=digest`, separated by commas. An addition of this project.
pub const TEMPLATE_VALUES: &str = "liqo.io/virtual-kubelet-values";
/// On a VirtualNode whose provider has no networking with this cluster. Value: CIDRs of this cluster and of other peers, separated by
/// commas. The address of a remote pod in one of them is not reflected. An addition of this project.
pub const RESERVED_CIDRS: &str = "liqo.io/reserved-cidrs";
/// On a VirtualNode. Value: addresses at which pods at the provider reach the API server of this cluster, before the provider remaps
/// them, separated by commas. An addition of this project.
pub const API_SERVER_ADDRESSES: &str = "liqo.io/api-server-addresses";
/// On the Deployment of a virtual kubelet. Value: digest of the fields that the controller has written. An addition of this
/// project.
pub const DEPLOYMENT_HASH: &str = "liqo.io/virtual-kubelet-hash";
/// On the pods of a virtual kubelet. Value: SHA-256 of the VirtualNode's `spec.offloadingPatch` as JSON, hexadecimal.
pub const OFFLOADING_PATCH_HASH: &str = "liqo.io/offloading-patch-hash";
/// On a pod that a provider has created for a ShadowPod: it gets ephemeral containers and resizes of the ShadowPod. Value: `true`.
/// An addition of this project.
pub const APPLIES_CHANGES: &str = "liqo.io/applies-changes";
/// On a pod that a provider has created for a ShadowPod. Value: why it refuses the last change of the ShadowPod, with the remedy.
/// An addition of this project.
pub const CHANGE_REFUSED: &str = "liqo.io/change-refused";
/// On a [`NamespaceOffloading`](crate::NamespaceOffloading): when the pods of an unreachable virtual node are replaced,
/// `never` or a duration. An addition of this project.
pub const REPATRIATION: &str = "liqo.io/repatriation";
/// On a [`NamespaceOffloading`](crate::NamespaceOffloading): the time after which a pod is deleted that the provider does not
/// place, if a controller replaces it. An addition of this project.
pub const RETURN_UNSCHEDULABLE: &str = "liqo.io/return-unschedulable";
/// On a DaemonSet: its pods may run on virtual nodes. Value: `true`. An addition of this project.
pub const ALLOW_VIRTUAL_NODES: &str = "liqo.io/allow-virtual-nodes";
/// On the Secret with the certificates of the webhooks. Value: name of their Service.
pub const WEBHOOK_SERVICE_NAME: &str = "liqo.io/webhook-service-name";
/// On an object that is not reflected. Each value but `false` sets it.
pub const SKIP_REFLECTION: &str = "liqo.io/skip-reflection";
/// On an object that is reflected although its kind is reflected by an allow list. Each value but `false` sets it.
pub const ALLOW_REFLECTION: &str = "liqo.io/allow-reflection";
/// On a Service whose pods in other clusters are reached there without the consumer. Value: `true`.
pub const USE_DIRECT_CONNECTIONS: &str = "liqo.io/use-direct-connections";
/// On the Node of a provider with networking. Value: comma-separated `OWN=HERE` pairs of the CIDRs that its pods have there and in
/// this cluster. An addition of this project.
pub const REMOTE_POD_CIDRS: &str = "liqo.io/remote-pod-cidrs";
/// On a ShadowEndpointSlice. Value: the addresses that other providers of the consumer have, by cluster ID, as JSON. They are
/// reached without the consumer.
pub const DIRECT_CONNECTIONS_DATA: &str = "liqo.io/direct-connections-data";

/// On an object that `kubectl apply` has written. Value: the object as it was applied.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
