//! GatewayServer: the gateway that a peer's GatewayClient connects to.

use super::gateway::{Create, DEFAULT_PORT, Gateway, SERVER_TEMPLATES, ServiceType};
use crate::verbs::delete::Delete;
use crate::verbs::get::Get;
use crate::verbs::{Action, Verb};
use clap::Args;
use control_api::GatewayServer;
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

pub(crate) const ACTIONS: &[Action] = &[
    Action::new::<Create<GatewayServer>>(
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
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceEndpoint {
    /// The type of the Service.
    #[arg(
        long,
        default_value = "LoadBalancer",
        value_name = "TYPE",
        ignore_case = true
    )]
    pub(crate) service_type: ServiceType,

    /// The port of the Service.
    #[arg(long, default_value_t = DEFAULT_PORT, value_name = "PORT", value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub(crate) port: i32,

    /// The port of the nodes for a Service of type NodePort.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub(crate) node_port: Option<i32>,

    /// The address to request from a load balancer.
    #[arg(long, value_name = "IP")]
    pub(crate) load_balancer_ip: Option<String>,
}

impl Gateway for GatewayServer {
    const ROLE: &str = "server";
    const TEMPLATES: &str = SERVER_TEMPLATES;
    const TEMPLATE_NAME: &str = "wireguard-server";
    const TEMPLATE_FIELD: &str = "serverTemplateRef";

    type Endpoint = ServiceEndpoint;

    fn endpoint(endpoint: &ServiceEndpoint) -> Value {
        let type_ = endpoint.service_type.name();
        let mut service = json!({"port": endpoint.port, "serviceType": type_});
        if let Some(port) = endpoint.node_port {
            service["nodePort"] = port.into();
        }
        if let Some(ip) = &endpoint.load_balancer_ip {
            service["loadBalancerIP"] = ip.as_str().into();
        }
        service
    }

    fn secret(&self) -> Option<&ObjectReference> {
        self.status.as_ref()?.secret_ref.as_ref()
    }

    fn is_ready(&self) -> Result<(), String> {
        let status = self.status.clone().unwrap_or_default();
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
    use crate::kinds::gateway::{DEFAULT_MTU, Spec, Template, manifest};
    use crate::manifest::yaml;

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
        let spec = Spec::<GatewayServer> {
            endpoint,
            mtu: DEFAULT_MTU,
            template,
        };
        manifest("gws", "default", "milan", &spec)
    }

    #[test]
    fn the_manifest_equals_upstreams() {
        assert_eq!(
            yaml(of(ServiceType::LoadBalancer, None)),
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
            serde_json::from_value::<GatewayServer>(server)
                .unwrap()
                .is_ready()
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
