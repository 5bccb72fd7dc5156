//! Settings of the ForeignCluster controller.

/// Values of the flags.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Namespace of Liqo itself.
    pub(crate) namespace: String,
    /// Namespaces that may contain the objects of any peer, besides those with the tenant labels.
    pub(crate) tenant_namespaces: Vec<String>,
    /// Whether peers are authenticated, and resources offloaded to them. Otherwise the objects of these modules are not
    /// registered, and only networking is summarized.
    pub(crate) has_authentication: bool,
}
