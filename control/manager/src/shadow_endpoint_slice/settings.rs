//! Values of the flags.

/// Values of the flags.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Namespace of Liqo.
    pub(crate) namespace: String,
    /// Namespaces that may hold the Configuration of any peer.
    pub(crate) tenant_namespaces: Vec<String>,
    /// Whether endpoints at other providers of a consumer are left out.
    pub(crate) deny_direct_connections: bool,
}
