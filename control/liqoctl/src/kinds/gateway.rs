//! Common parts of GatewayServer and GatewayClient.

use crate::manifest::{self, NETWORKING};
use crate::objects::Kind;
use crate::verbs::create::{Build, Common, Namespaces};
use clap::{Args, ValueEnum};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::marker::PhantomData;

/// Default MTU of the tunnel, in bytes: the outer packets fit links of 1,500 bytes.
pub(crate) const DEFAULT_MTU: i64 = 1340;
/// Default port of a gateway's Service.
pub(crate) const DEFAULT_PORT: i32 = 51840;

/// Resource of upstream's server templates, as `group/version/plural`.
pub(crate) const SERVER_TEMPLATES: &str = "networking.liqo.io/v1beta1/wggatewayservertemplates";
/// Resource of upstream's client templates, as `group/version/plural`.
pub(crate) const CLIENT_TEMPLATES: &str = "networking.liqo.io/v1beta1/wggatewayclienttemplates";

/// One side of a tunnel.
pub(crate) trait Gateway: Kind {
    /// `server` or `client`.
    const ROLE: &str;
    /// Resource of upstream's templates of this kind.
    const TEMPLATES: &str;
    /// Name of the template that upstream's chart installs.
    const TEMPLATE_NAME: &str;
    /// Field of the spec with the template.
    const TEMPLATE_FIELD: &str;

    /// The field `endpoint` of the spec, with its flags.
    type Endpoint: Args + Clone + Debug;

    /// Returns the field `endpoint` of the spec.
    fn endpoint(endpoint: &Self::Endpoint) -> Value;

    /// Returns the reference to the Secret with the keys.
    fn secret(&self) -> Option<&ObjectReference>;

    /// Checks that the controller manager has processed the object.
    ///
    /// # Errors
    ///
    /// Returns the missing part.
    fn is_ready(&self) -> Result<(), String>;
}

/// Parameters of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Spec<G: Gateway> {
    /// Endpoint of the server.
    pub(crate) endpoint: G::Endpoint,
    /// MTU of the tunnel, in bytes.
    pub(crate) mtu: i64,
    /// Template for upstream's controllers.
    pub(crate) template: Template,
}

/// Returns a GatewayServer or GatewayClient.
pub(crate) fn manifest<G: Gateway>(
    name: &str,
    namespace: &str,
    peer: &str,
    spec: &Spec<G>,
) -> Value {
    let mut fields = json!({
        "endpoint": G::endpoint(&spec.endpoint),
        "mtu": spec.mtu,
        "secretRef": {},
    });
    fields[G::TEMPLATE_FIELD] = spec.template.reference();
    manifest::object(&G::kind(&()), name, Some(namespace), peer, fields)
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

/// Flags of `liqoctl create gatewayserver` and `liqoctl create gatewayclient`.
#[derive(Args, Debug)]
pub(crate) struct Create<G: Gateway> {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    endpoint: G::Endpoint,

    /// The MTU of the tunnel, in bytes.
    #[arg(long, default_value_t = DEFAULT_MTU, value_name = "BYTES", value_parser = clap::value_parser!(i64).range(576..=9000))]
    mtu: i64,

    /// The resource of the template, for a cluster with upstream's Liqo.
    #[arg(long = "type", default_value = G::TEMPLATES, value_name = "GROUP/VERSION/PLURAL")]
    type_: String,

    /// The name of the template.
    #[arg(long, default_value = G::TEMPLATE_NAME, value_name = "NAME")]
    template_name: String,

    /// The namespace of the template. Default: Liqo's namespace.
    #[arg(long, value_name = "NAMESPACE")]
    template_namespace: Option<String>,

    /// Wait until the controller manager has processed the object.
    #[arg(long)]
    wait: bool,

    #[arg(skip)]
    kind: PhantomData<G>,
}

impl<G: Gateway> Build for Create<G> {
    type Object = G;

    fn common(&self) -> &Common {
        &self.common
    }

    fn manifest(&self, namespaces: Namespaces<'_>) -> Value {
        let template_namespace = self.template_namespace.as_deref();
        let spec = Spec::<G> {
            endpoint: self.endpoint.clone(),
            mtu: self.mtu,
            template: Template {
                resource: self.type_.clone(),
                name: self.template_name.clone(),
                namespace: template_namespace.unwrap_or(namespaces.liqo).to_owned(),
            },
        };
        let Common {
            name,
            remote_cluster_id,
            ..
        } = &self.common;
        manifest(name, namespaces.object, remote_cluster_id, &spec)
    }

    fn wait(&self) -> bool {
        self.wait
    }

    fn is_ready(object: &G) -> Result<(), String> {
        object.is_ready()
    }
}
