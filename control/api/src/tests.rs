//! The definitions are compared with Liqo's, written as in its reference: `*` marks a required field.

use super::*;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// References to objects are alike everywhere.
const REFERENCE: &str = "{apiVersion: string, fieldPath: string, kind: string, name: string, namespace: string, resourceVersion: string, uid: string}";

struct Expected<'a> {
    heading: &'a str,
    columns: &'a str,
    spec: &'a str,
    status: &'a str,
}

#[test]
fn ip_is_as_upstream() {
    expect(&Expected {
        heading: "IP ips.ipam.liqo.io/v1alpha1 Namespaced short - status",
        columns: "Local IP:string:.spec.ip; Remapped IP:string:.status.ip; Remapped IP CIDR:string:.status.cidr; Age:date:.metadata.creationTimestamp",
        spec: "{ip*: string(ipv4), masquerade: boolean, networkRef: REF, serviceTemplate: {metadata: {annotations: map<string>, finalizers: [string], labels: map<string>, name: string, namespace: string}, spec: {…20 fields}}}",
        status: "{cidr: string(cidr), ip: string(ipv4)}",
    });
}

#[test]
fn network_is_as_upstream() {
    expect(&Expected {
        heading: "Network networks.ipam.liqo.io/v1alpha1 Namespaced short net status",
        columns: "Desired CIDR:string:.spec.cidr; Remapped CIDR:string:.status.cidr; Age:date:.metadata.creationTimestamp",
        spec: "{cidr*: string(cidr), preAllocated: integer(int32) [0..]}",
        status: "{cidr: string(cidr)}",
    });
}

#[test]
fn configuration_is_as_upstream() {
    expect(&Expected {
        heading: "Configuration configurations.networking.liqo.io/v1beta1 Namespaced short conf status",
        columns: r"Desired Pod CIDR :string:.spec.remote.cidr.pod; Remapped Pod CIDR:string:.status.remote.cidr.pod; Age:date:.metadata.creationTimestamp; Desired External CIDR:string:.spec.remote.cidr.external:1; Remapped External CIDR:string:.status.remote.cidr.external:1; ClusterID:string:.metadata.labels.liqo\.io/remote-cluster-id:1",
        spec: "{local: {cidr: {external: [string(cidr)], pod: [string(cidr)]}}, remote: {cidr: {external: [string(cidr)], pod: [string(cidr)]}}}",
        status: "{conditions: [{lastTransitionTime*: string(date-time), message*: string, observedGeneration: integer(int64) [0..], reason*: string, status*: True|False|Unknown, type*: string}], remote: {cidr: {external: [string(cidr)], pod: [string(cidr)]}}}",
    });
}

#[test]
fn connection_is_as_upstream() {
    expect(&Expected {
        heading: "Connection connections.networking.liqo.io/v1beta1 Namespaced short conn status",
        columns: "Type:string:.spec.type; Status:string:.status.value; Age:date:.metadata.creationTimestamp; Latency:string:.status.latency.value:1; Path:string:.status.conditions[?(@.type==\"PathHealthy\")].reason:1",
        spec: "{gatewayRef*: REF, type*: Server|Client}",
        status: "{conditions: [{lastTransitionTime*: string(date-time), message*: string, observedGeneration: integer(int64) [0..], reason*: string, status*: True|False|Unknown, type*: string}], latency: {timestamp: string(date-time), value: string}, reporter: string, value: string}",
    });
}

#[test]
fn gateway_client_is_as_upstream() {
    expect(&Expected {
        heading: "GatewayClient gatewayclients.networking.liqo.io/v1beta1 Namespaced short gwc,gwclient status",
        columns: "Template Kind:string:.spec.clientTemplateRef.kind:1; Template Name:string:.spec.clientTemplateRef.name; Template Namespace:string:.spec.clientTemplateRef.namespace:1; IP:string:.spec.endpoint.addresses[*]; Port:string:.spec.endpoint.port; Protocol:string:.spec.endpoint.protocol:1; MTU:integer:.spec.mtu:1; Age:date:.metadata.creationTimestamp",
        spec: "{clientTemplateRef: REF, endpoint: {addresses: [string], port: integer(int32), ports: [integer(int32)], protocol: TCP|UDP}, mtu: integer, secretRef: {name: string=}}",
        status: "{clientRef: REF, conditions: [{lastTransitionTime*: string(date-time), message*: string, observedGeneration: integer(int64) [0..], reason*: string, status*: True|False|Unknown, type*: string}], internalEndpoint: {ip: string(ipv4), node: string}, secretRef: REF}",
    });
}

#[test]
fn gateway_server_is_as_upstream() {
    expect(&Expected {
        heading: "GatewayServer gatewayservers.networking.liqo.io/v1beta1 Namespaced short gws,gwserver status",
        columns: "Template Kind:string:.spec.serverTemplateRef.kind:1; Template Name:string:.spec.serverTemplateRef.name; Template Namespace:string:.spec.serverTemplateRef.namespace:1; IP:string:.status.endpoint.addresses[*]; Port:string:.status.endpoint.port; Protocol:string:.status.endpoint.protocol:1; MTU:integer:.spec.mtu:1; Age:date:.metadata.creationTimestamp",
        spec: "{endpoint: {loadBalancerIP: string, nodePort: integer(int32), nodePorts: [integer(int32)], port: integer(int32), ports: [integer(int32)], serviceType: ClusterIP|NodePort|LoadBalancer|ExternalName (default ClusterIP)}, mtu: integer, secretRef: {name: string=}, serverTemplateRef: REF, serviceAnnotations: map<string>, serviceLabels: map<string>}",
        status: "{conditions: [{lastTransitionTime*: string(date-time), message*: string, observedGeneration: integer(int64) [0..], reason*: string, status*: True|False|Unknown, type*: string}], endpoint: {addresses: [string], port: integer(int32), ports: [integer(int32)], protocol: TCP|UDP}, internalEndpoint: {ip: string(ipv4), node: string}, secretRef: REF, serverRef: REF}",
    });
}

#[test]
fn public_key_is_as_upstream() {
    expect(&Expected {
        heading: "PublicKey publickeies.networking.liqo.io/v1beta1 Namespaced short pk,pkies,pkey -",
        columns: "",
        spec: "{publicKey: string(byte)}",
        status: "",
    });
}

/// Theirs tells more of what is inside, which is of no use here.
#[test]
fn gateway_templates_have_the_names_of_upstream() {
    expect(&Expected {
        heading: "WgGatewayClientTemplate wggatewayclienttemplates.networking.liqo.io/v1beta1 Namespaced short wggct,wgct -",
        columns: "",
        spec: "{objectKind: object, template: object}",
        status: "",
    });
    expect(&Expected {
        heading: "WgGatewayServerTemplate wggatewayservertemplates.networking.liqo.io/v1beta1 Namespaced short wggst,wgst -",
        columns: "",
        spec: "{objectKind: object, template: object}",
        status: "",
    });
}

#[test]
fn foreign_cluster_is_as_upstream() {
    const CONDITION: &str = "{lastTransitionTime: string(date-time), message: string, reason: string, status*: None|Pending|Established|Error|Ready|NotReady|SomeNotReady (default None), type*: APIServerStatus|NetworkConnectionStatus|NetworkGatewayServerStatus|NetworkGatewayClientStatus|NetworkGatewayPresence|NetworkConfigurationStatus|AuthIdentityControlPlaneStatus|AuthTenantStatus|OffloadingVirtualNodeStatus|OffloadingNodeStatus}";
    let module = format!("{{conditions: [{CONDITION}], enabled*: boolean}}");
    let status = format!(
        "{{apiServerUrl: string, conditions: [{CONDITION}], foreignProxyUrl: string, modules: {{authentication*: {module}, networking*: {module}, offloading*: {module}}}, observedGeneration: integer(int64), role*: Consumer|Provider|ConsumerAndProvider|Unknown (default Unknown), tenantNamespace: {{local: string, remote: string}}}}"
    );

    expect(&Expected {
        heading: "ForeignCluster foreignclusters.core.liqo.io/v1beta1 Cluster short fc status",
        columns: "Role:string:.status.role; ClusterID:string:.spec.clusterID:1; Age:date:.metadata.creationTimestamp",
        spec: "{clusterID*: string}",
        status: &status,
    });
}

#[test]
fn all_kinds_are_in_the_category_of_upstream() {
    for crd in custom_resource_definitions() {
        assert_eq!(crd.spec.names.categories, Some(vec!["liqo".to_owned()]));
    }
}

#[test]
fn an_object_of_upstream_survives_the_types() {
    let text = "\
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata:
  name: rome
spec:
  endpoint:
    loadBalancerIP: 203.0.113.9
    port: 51840
    serviceType: LoadBalancer
  mtu: 1340
  secretRef:
    name: ''
  serverTemplateRef:
    apiVersion: networking.liqo.io/v1beta1
    kind: WgGatewayServerTemplate
    name: wireguard-server
    namespace: liqo
status:
  endpoint:
    addresses:
    - 172.18.2.3
    port: 31110
    protocol: UDP
  internalEndpoint:
    ip: 10.244.1.9
    node: milan-worker
";
    let server: GatewayServer = serde_saphyr::from_str(text).unwrap();

    let value: serde_json::Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(server).unwrap(), value);
}

/// Compares the definition of the kind that the heading starts with.
#[track_caller]
fn expect(expected: &Expected<'_>) {
    let kind = expected.heading.split(' ').next().unwrap();
    let crd = custom_resource_definitions()
        .into_iter()
        .find(|crd| crd.spec.names.kind == kind)
        .unwrap();
    let version = &crd.spec.versions[0];
    let schema = version.schema.as_ref().unwrap();
    let properties = schema.open_api_v3_schema.as_ref().unwrap();
    let tree = |key| {
        let properties = properties.properties.as_ref().unwrap();
        properties.get(key).map(render).unwrap_or_default()
    };

    assert_eq!(
        crd.metadata.name,
        Some(format!("{}.{}", crd.spec.names.plural, crd.spec.group))
    );
    assert_eq!(heading(&crd, version), expected.heading);
    assert_eq!(columns(version), expected.columns);
    assert_eq!(tree("spec"), expected.spec.replace("REF", REFERENCE));
    assert_eq!(tree("status"), expected.status.replace("REF", REFERENCE));
}

fn heading(crd: &CustomResourceDefinition, version: &CustomResourceDefinitionVersion) -> String {
    let names = &crd.spec.names;
    let short = names.short_names.as_ref().map(|names| names.join(","));
    let status = version
        .subresources
        .as_ref()
        .and_then(|all| all.status.as_ref());
    format!(
        "{} {}.{}/{} {} short {} {}",
        names.kind,
        names.plural,
        crd.spec.group,
        version.name,
        crd.spec.scope,
        short
            .filter(|short| !short.is_empty())
            .unwrap_or("-".to_owned()),
        status.map_or("-", |_| "status"),
    )
}

fn columns(version: &CustomResourceDefinitionVersion) -> String {
    let columns = version.additional_printer_columns.iter().flatten();
    let columns = columns.map(|column| {
        let priority = column.priority.map(|priority| format!(":{priority}"));
        let priority = priority.unwrap_or_default();
        format!(
            "{}:{}:{}{priority}",
            column.name, column.type_, column.json_path
        )
    });

    columns.collect::<Vec<_>>().join("; ")
}

/// Renders a schema as the reference does.
fn render(schema: &JSONSchemaProps) -> String {
    if let Some(values) = &schema.enum_ {
        let values: Vec<_> = values.iter().filter_map(|value| value.0.as_str()).collect();
        let default = schema
            .default
            .as_ref()
            .and_then(|default| default.0.as_str());
        let default = default.map(|default| format!(" (default {default})"));
        return values.join("|") + &default.unwrap_or_default();
    }

    match schema.type_.as_deref() {
        Some("object") => object(schema),
        Some("array") => match schema.items.as_ref().unwrap() {
            JSONSchemaPropsOrArray::Schema(items) => format!("[{}]", render(items)),
            JSONSchemaPropsOrArray::Schemas(_) => panic!("a tuple"),
        },
        Some(scalar) => {
            let format = schema.format.as_ref().map(|format| format!("({format})"));
            let default = schema
                .default
                .as_ref()
                .map(|default| format!("={}", default.0.as_str().unwrap()));
            let minimum = schema.minimum.map(|minimum| format!(" [{minimum}..]"));
            let parts = [format, default, minimum].map(Option::unwrap_or_default);
            scalar.to_owned() + &parts.concat()
        }
        None => panic!("no type: {schema:?}"),
    }
}

fn object(schema: &JSONSchemaProps) -> String {
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        return format!("map<{}>", render(values));
    }
    let Some(properties) = &schema.properties else {
        return "object".to_owned();
    };
    if properties.contains_key("clusterIP") {
        return format!("{{…{} fields}}", properties.len());
    }
    let fields = properties.iter().map(|(key, field)| {
        let required = schema.required.as_ref();
        let is_required = required.is_some_and(|required| required.contains(key));
        let mark = if is_required { "*" } else { "" };
        format!("{key}{mark}: {}", render(field))
    });

    format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
}
