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
/// On a ResourceSlice. Value: whether the consumer creates a VirtualNode for it.
pub const CREATE_VIRTUAL_NODE: &str = "liqo.io/create-virtual-node";
/// On a ResourceSlice of a provider that grants no more resources to it. Value: `true`.
pub const CORDON: &str = "liqo.io/cordon";
/// On a ForeignCluster whose API server will never respond again. Value: `true`.
pub const PERMANENTLY_UNREACHABLE: &str = "liqo.io/foreign-cluster-permanently-unreachable";
