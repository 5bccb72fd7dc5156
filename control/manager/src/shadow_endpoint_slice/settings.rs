//! Values of the flags.

use std::time::Duration;

/// Values of the flags.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Namespace of Liqo.
    pub(crate) namespace: String,
    /// Namespaces that may hold the Configuration of any peer.
    pub(crate) tenant_namespaces: Vec<String>,
    /// Whether endpoints at other providers of a consumer are left out.
    pub(crate) deny_direct_connections: bool,
    /// Time for which endpoints of a consumer stay ready while its API server does not respond, and the networks are connected.
    pub(crate) api_server_grace_period: Duration,
}
