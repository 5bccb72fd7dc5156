//! The namespaces of a Liqo installation.

use clap::Args;

/// Namespace of Liqo, and the tenant namespaces that the settings name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Installation {
    /// Namespace of Liqo in the cluster.
    #[arg(
        long,
        value_name = "NAME",
        env = "POD_NAMESPACE",
        default_value = "liqo"
    )]
    pub namespace: String,

    /// Namespaces of the cluster that may hold the objects of any peer, besides those labelled
    /// liqo.io/tenant-namespace=true.
    #[arg(
        long,
        value_name = "NAME,...",
        env = "LIQO_TENANT_NAMESPACES",
        value_delimiter = ','
    )]
    pub tenant_namespaces: Vec<String>,
}

impl From<&str> for Installation {
    /// Creates an installation in `namespace`, without named tenant namespaces.
    fn from(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            tenant_namespaces: Vec::new(),
        }
    }
}
