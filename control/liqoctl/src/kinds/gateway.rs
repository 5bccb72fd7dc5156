//! Common parts of GatewayServer and GatewayClient.

use crate::manifest::NETWORKING;
use crate::objects::Kind;
use clap::{Args, ValueEnum};
use control_api::{GatewayClient, GatewayServer};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};
use std::marker::PhantomData;

/// Default MTU of the tunnel, in bytes: the outer packets fit links of 1,500 bytes.
pub(crate) const DEFAULT_MTU: i64 = 1340;
/// Default port of a gateway's Service.
pub(crate) const DEFAULT_PORT: i32 = 51840;

/// Resource of upstream's server templates, as `group/version/plural`.
pub(crate) const SERVER_TEMPLATES: &str = "networking.liqo.io/v1beta1/wggatewayservertemplates";
/// Resource of upstream's client templates, as `group/version/plural`.
pub(crate) const CLIENT_TEMPLATES: &str = "networking.liqo.io/v1beta1/wggatewayclienttemplates";

/// One end of a tunnel.
pub(crate) trait Gateway: Kind {
    /// `server` or `client`.
    const ROLE: &str;
    /// Resource of upstream's templates of this kind.
    const TEMPLATES: &str;
    /// Name of the template that upstream's chart installs.
    const TEMPLATE_NAME: &str;

    /// Returns the reference to the Secret with the keys.
    fn secret(&self) -> Option<&ObjectReference>;
}

impl Gateway for GatewayServer {
    const ROLE: &str = "server";
    const TEMPLATES: &str = SERVER_TEMPLATES;
    const TEMPLATE_NAME: &str = "wireguard-server";

    fn secret(&self) -> Option<&ObjectReference> {
        self.status.as_ref()?.secret_ref.as_ref()
    }
}

impl Gateway for GatewayClient {
    const ROLE: &str = "client";
    const TEMPLATES: &str = CLIENT_TEMPLATES;
    const TEMPLATE_NAME: &str = "wireguard-client";

    fn secret(&self) -> Option<&ObjectReference> {
        self.status.as_ref()?.secret_ref.as_ref()
    }
}

/// Type of the Service of a gateway.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceType {
    /// A load balancer.
    #[value(name = "LoadBalancer")]
    LoadBalancer,
    /// A port of every node.
    #[value(name = "NodePort")]
    NodePort,
    /// An address within the cluster.
    #[value(name = "ClusterIP")]
    ClusterIp,
}

impl ServiceType {
    /// Returns Kubernetes' name of the type.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LoadBalancer => "LoadBalancer",
            Self::NodePort => "NodePort",
            Self::ClusterIp => "ClusterIP",
        }
    }
}

/// A template from which upstream's controllers create a gateway. This project's controllers ignore
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// Group, version and plural, as `networking.liqo.io/v1beta1/wggatewayservertemplates`.
    pub(crate) resource: String,
    /// Name of the template.
    pub(crate) name: String,
    /// Namespace of the template.
    pub(crate) namespace: String,
}

impl Template {
    /// Returns the template as objects refer to it.
    pub(crate) fn reference(&self) -> Value {
        let (version, plural) = self
            .resource
            .rsplit_once('/')
            .unwrap_or((NETWORKING, &self.resource));
        json!({
            "apiVersion": version,
            "kind": template_kind(plural),
            "name": self.name,
            "namespace": self.namespace,
        })
    }
}

/// Returns the kind of upstream's templates with this plural.
fn template_kind(plural: &str) -> String {
    match plural {
        "wggatewayservertemplates" => "WgGatewayServerTemplate".to_owned(),
        "wggatewayclienttemplates" => "WgGatewayClientTemplate".to_owned(),
        // The kind of another plural is unknown. This project's controller manager ignores the reference.
        other => other.to_owned(),
    }
}

/// Flags that name the template of a gateway.
#[derive(Args, Debug)]
pub(crate) struct TemplateFlags<G: Gateway> {
    /// The resource of the template, for a cluster with upstream's Liqo.
    #[arg(long = "type", default_value = G::TEMPLATES, value_name = "GROUP/VERSION/PLURAL")]
    type_: String,

    /// The name of the template.
    #[arg(long, default_value = G::TEMPLATE_NAME, value_name = "NAME")]
    template_name: String,

    /// The namespace of the template. Default: Liqo's namespace.
    #[arg(long, value_name = "NAMESPACE")]
    template_namespace: Option<String>,

    #[arg(skip)]
    gateway: PhantomData<G>,
}

impl<G: Gateway> TemplateFlags<G> {
    /// Returns the template; `liqo` is Liqo's namespace.
    pub(crate) fn template(&self, liqo: &str) -> Template {
        let namespace = self.template_namespace.as_deref();
        Template {
            resource: self.type_.clone(),
            name: self.template_name.clone(),
            namespace: namespace.unwrap_or(liqo).to_owned(),
        }
    }
}
