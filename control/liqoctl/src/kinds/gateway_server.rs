//! GatewayServer: the gateway that a peer's GatewayClient connects to.

use super::gateway::{DEFAULT_MTU, DEFAULT_PORT, ServiceType, Template, TemplateFlags};
use crate::manifest;
use crate::verbs::create::{Build, Common, Namespaces};
use crate::verbs::delete::Delete;
use crate::verbs::get::Get;
use crate::verbs::{Action, Verb};
use clap::Args;
use control_api::GatewayServer;
use serde_json::{Value, json};

pub(crate) const ACTIONS: &[Action] = &[
    Action::new::<Create>(
        Verb::Create,
        "Creates a GatewayServer: the gateway of a peer connects to this cluster.",
        "liqoctl create gatewayserver rome -n liqo-tenant-rome --remote-cluster-id rome --service-type NodePort",
    ),
    Action::new::<Get<GatewayServer>>(
        Verb::Get,
        "Lists GatewayServers.",
        "liqoctl get gatewayserver --remote-cluster-id rome",
    ),
    Action::new::<Delete<GatewayServer>>(
        Verb::Delete,
        "Deletes a GatewayServer.",
        "liqoctl delete gatewayserver rome -n liqo-tenant-rome",
    ),
];

/// The Service of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceEndpoint {
    /// Type of the Service.
    pub(crate) service_type: ServiceType,
    /// Port of the Service.
    pub(crate) port: i32,
    /// Port of the nodes.
    pub(crate) node_port: Option<i32>,
    /// The address to request from a load balancer.
    pub(crate) load_balancer_ip: Option<String>,
}

/// Returns a GatewayServer.
pub(crate) fn manifest(
    name: &str,
    namespace: &str,
    peer: &str,
    endpoint: &ServiceEndpoint,
    mtu: i64,
    template: &Template,
) -> Value {
    let mut service = json!({"port": endpoint.port, "serviceType": endpoint.service_type.name()});
    if let Some(port) = endpoint.node_port {
        service["nodePort"] = port.into();
    }
    if let Some(ip) = &endpoint.load_balancer_ip {
        service["loadBalancerIP"] = ip.as_str().into();
    }
    let spec = json!({
        "endpoint": service,
        "mtu": mtu,
        "secretRef": {},
        "serverTemplateRef": template.reference(),
    });
    manifest::object("GatewayServer", name, Some(namespace), peer, spec)
}

/// Flags of `liqoctl create gatewayserver`.
#[derive(Args, Debug)]
struct Create {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    template: TemplateFlags<GatewayServer>,

    /// The address to request from a load balancer.
    #[arg(long, value_name = "IP")]
    load_balancer_ip: Option<String>,

    /// The MTU of the tunnel, in bytes.
    #[arg(long, default_value_t = DEFAULT_MTU, value_name = "BYTES", value_parser = clap::value_parser!(i64).range(576..=9000))]
    mtu: i64,

    /// The port of the nodes for a Service of type NodePort.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(i32).range(1..=65535))]
    node_port: Option<i32>,

    /// The port of the Service.
    #[arg(long, default_value_t = DEFAULT_PORT, value_name = "PORT", value_parser = clap::value_parser!(i32).range(1..=65535))]
    port: i32,

    /// The type of the Service.
    #[arg(
        long,
        default_value = "LoadBalancer",
        value_name = "TYPE",
        ignore_case = true
    )]
    service_type: ServiceType,

    /// Wait until the GatewayServer has an endpoint.
    #[arg(long)]
    wait: bool,
}

impl Build for Create {
    type Object = GatewayServer;

    fn common(&self) -> &Common {
        &self.common
    }

    fn manifest(&self, namespaces: Namespaces<'_>) -> Value {
        let endpoint = ServiceEndpoint {
            service_type: self.service_type,
            port: self.port,
            node_port: self.node_port,
            load_balancer_ip: self.load_balancer_ip.clone(),
        };
        manifest(
            &self.common.name,
            namespaces.object,
            &self.common.remote_cluster_id,
            &endpoint,
            self.mtu,
            &self.template.template(namespaces.liqo),
        )
    }

    fn wait(&self) -> bool {
        self.wait
    }

    fn is_ready(server: &GatewayServer) -> Result<(), String> {
        let status = server.status.clone().unwrap_or_default();
        let has_address = status
            .endpoint
            .is_some_and(|endpoint| !endpoint.addresses.is_empty());
        match (has_address, status.server_ref.is_some()) {
            (true, true) => Ok(()),
            (false, _) => Err("it has no endpoint yet".to_owned()),
            (true, false) => Err("it has no serverRef yet".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::gateway::SERVER_TEMPLATES;

    fn of(service_type: ServiceType, node_port: Option<i32>) -> Value {
        let endpoint = ServiceEndpoint {
            service_type,
            port: DEFAULT_PORT,
            node_port,
            load_balancer_ip: None,
        };
        let template = Template {
            resource: SERVER_TEMPLATES.into(),
            name: "wireguard-server".into(),
            namespace: "liqo".into(),
        };
        manifest("gws", "default", "milan", &endpoint, DEFAULT_MTU, &template)
    }

    #[test]
    fn the_manifest_equals_upstreams() {
        assert_eq!(
            manifest::yaml(of(ServiceType::LoadBalancer, None)),
            "\
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata:
  labels:
    liqo.io/remote-cluster-id: milan
  name: gws
  namespace: default
spec:
  endpoint:
    port: 51840
    serviceType: LoadBalancer
  mtu: 1340
  secretRef: {}
  serverTemplateRef:
    apiVersion: networking.liqo.io/v1beta1
    kind: WgGatewayServerTemplate
    name: wireguard-server
    namespace: liqo
status: {}
"
        );
    }

    #[test]
    fn the_manifest_is_a_gateway_server() {
        let mut server = of(ServiceType::NodePort, Some(31110));
        // The API server adds the default of the Secret's name.
        server["spec"]["secretRef"] = json!({"name": ""});

        let read: GatewayServer = serde_json::from_value(server).unwrap();

        let endpoint = read.spec.endpoint.unwrap();
        assert_eq!(endpoint.node_port, Some(31110));
        let type_ = serde_json::to_value(endpoint.service_type).unwrap();
        assert_eq!(type_, "NodePort");
    }

    #[test]
    fn a_server_is_ready_with_endpoint_and_server_ref() {
        let with = |status: Value| {
            let mut server = of(ServiceType::NodePort, None);
            server["spec"]["secretRef"] = json!({"name": ""});
            server["status"] = status;
            Create::is_ready(&serde_json::from_value(server).unwrap())
        };
        let endpoint = json!({"addresses": ["172.18.2.3"], "port": 31110});

        assert!(with(json!({})).unwrap_err().contains("no endpoint"));
        assert!(
            with(json!({"endpoint": endpoint}))
                .unwrap_err()
                .contains("no serverRef")
        );
        assert_eq!(
            with(json!({"endpoint": endpoint, "serverRef": {"name": "a"}})),
            Ok(())
        );
    }
}
