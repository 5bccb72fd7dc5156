//! Settings of the network controller.

use ipnet::Ipv4Net;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// Values of the flags.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Namespace of Liqo itself.
    pub(crate) namespace: String,
    /// Namespaces that may contain the objects of any peer, besides those with the tenant labels.
    pub(crate) tenant_namespaces: Vec<String>,
    /// Pools from which the CIDRs of peers are remapped, in order of preference.
    pub(crate) pools: Vec<Ipv4Net>,
    /// The UDP port on which gateway pods listen.
    pub(crate) gateway_port: u16,
    /// Whether pods that run in another cluster reach the API server of this one.
    pub(crate) exposes_api_server: bool,
    /// Image of the Deployments that upstream's `liqoctl` waits for; `None` if there are none.
    pub(crate) deployment_image: Option<String>,
    /// Deployment of the manager itself, which owns the objects that it creates in its namespace.
    pub(crate) installation: Option<OwnerReference>,
}
