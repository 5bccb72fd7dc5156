use super::{forged, forged_with, variables};
use crate::pod::forge::{ApiServerSupport, Context, HomeApiServer};
use crate::pod::tests::context;
use control_api::offloading::virtual_node::OffloadingPatch;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};

const ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 70, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 70, 0, 2)),
];

fn with(
    api_server_support: ApiServerSupport,
    api_server: HomeApiServer<'_>,
    spec: &Value,
    annotations: &Value,
) -> Value {
    let patch = OffloadingPatch::default();
    let context = Context {
        api_server_support,
        api_server,
        ..context(&patch)
    };
    forged_with(&context, spec, annotations)
}

fn alias() -> HomeApiServer<'static> {
    HomeApiServer::Alias {
        port: 443,
        addresses: &ADDRESSES,
    }
}

fn support(value: &str) -> Value {
    json!({"liqo.io/api-server-support": value})
}

#[test]
fn variables_and_aliases_lead_to_the_api_server_of_this_cluster() {
    let local = json!({
        "containers": [{"name": "a", "env": [{"name": "LEVEL", "value": "1"}]}],
        "hostAliases": [{"ip": "192.0.2.2", "hostnames": ["db"]}],
        "initContainers": [{"name": "b"}],
    });
    let expected = [
        ("KUBERNETES_SERVICE_HOST", "kubernetes.default"),
        ("KUBERNETES_SERVICE_PORT", "443"),
        ("KUBERNETES_PORT", "tcp://kubernetes.default:443"),
        ("KUBERNETES_PORT_443_TCP", "tcp://kubernetes.default:443"),
        ("KUBERNETES_PORT_443_TCP_PROTO", "tcp"),
        ("KUBERNETES_PORT_443_TCP_ADDR", "kubernetes.default"),
        ("KUBERNETES_PORT_443_TCP_PORT", "443"),
    ];

    let spec = with(ApiServerSupport::TokenApi, alias(), &local, &json!({}));

    let with_own = [&[("LEVEL", "1")][..], &expected].concat();
    assert_eq!(variables(&spec["containers"][0]), with_own);
    assert_eq!(variables(&spec["initContainers"][0]), expected);
    let names = ["kubernetes.default", "kubernetes.default.svc"];
    assert_eq!(
        spec["hostAliases"],
        json!([
            {"ip": "192.0.2.2", "hostnames": ["db"]},
            {"ip": "10.70.0.1", "hostnames": names},
            {"ip": "10.70.0.2", "hostnames": names},
        ])
    );
}

#[test]
fn flags_replace_host_and_port_and_the_aliases() {
    let fixed = HomeApiServer::Fixed {
        host: "api.rome.example",
        port: 6443,
    };

    let spec = with(ApiServerSupport::TokenApi, fixed, &json!({}), &json!({}));

    assert_eq!(
        variables(&spec["containers"][0]),
        [
            ("KUBERNETES_SERVICE_HOST", "api.rome.example"),
            ("KUBERNETES_SERVICE_PORT", "6443"),
            ("KUBERNETES_PORT", "tcp://api.rome.example:6443"),
            ("KUBERNETES_PORT_443_TCP", "tcp://api.rome.example:6443"),
            ("KUBERNETES_PORT_443_TCP_PROTO", "tcp"),
            ("KUBERNETES_PORT_443_TCP_ADDR", "api.rome.example"),
            ("KUBERNETES_PORT_443_TCP_PORT", "6443"),
        ]
    );
    assert_eq!(spec.get("hostAliases"), None);
}

#[test]
fn an_ipv6_address_has_brackets_in_urls_only() {
    let fixed = HomeApiServer::Fixed {
        host: "2001:db8::1",
        port: 6443,
    };

    let spec = with(ApiServerSupport::TokenApi, fixed, &json!({}), &json!({}));

    let variables = variables(&spec["containers"][0]);
    assert_eq!(variables[0], ("KUBERNETES_SERVICE_HOST", "2001:db8::1"));
    assert_eq!(
        variables[2],
        ("KUBERNETES_PORT", "tcp://[2001:db8::1]:6443")
    );
}

#[test]
fn a_variable_of_the_container_keeps_its_value() {
    let env = json!([{"name": "KUBERNETES_SERVICE_HOST", "value": "192.0.2.1"}]);

    let spec = forged(
        &json!({"containers": [{"name": "a", "env": env}]}),
        &json!({}),
    );

    let variables = variables(&spec["containers"][0]);
    assert_eq!(variables.len(), 7);
    assert_eq!(variables[0], ("KUBERNETES_SERVICE_HOST", "192.0.2.1"));
}

#[test]
fn the_name_of_the_service_account_is_written_into_variables() {
    let variable = json!({
        "name": "ACCOUNT",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.serviceAccountName"}},
    });
    let other = json!({
        "name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
    });
    let local = json!({"containers": [{"name": "a", "env": [variable, other]}]});

    let spec = with(ApiServerSupport::TokenApi, alias(), &local, &json!({}));

    let env = &spec["containers"][0]["env"];
    assert_eq!(env[0], json!({"name": "ACCOUNT", "value": "shop"}));
    assert_eq!(env[1], other);
    for mode in [ApiServerSupport::Disabled, ApiServerSupport::Remote] {
        let spec = with(mode, alias(), &local, &json!({}));

        assert_eq!(spec["containers"][0]["env"], json!([variable, other]));
    }
}

#[test]
fn a_pod_without_a_service_account_has_the_default_one() {
    let variable = json!({
        "name": "ACCOUNT", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}},
    });
    let containers = json!([{"name": "a", "env": [variable]}]);

    for name in [Value::Null, json!("")] {
        let spec = forged(
            &json!({"containers": containers, "serviceAccountName": name}),
            &json!({}),
        );

        assert_eq!(variables(&spec["containers"][0])[0], ("ACCOUNT", "default"));
    }
}

#[test]
fn disabled_pods_get_neither_variables_nor_aliases() {
    for (default, annotations) in [
        (ApiServerSupport::Disabled, json!({})),
        (ApiServerSupport::Disabled, support("unknown")),
        (ApiServerSupport::TokenApi, support("disabled")),
    ] {
        let spec = with(default, alias(), &json!({}), &annotations);

        assert_eq!(
            spec["containers"],
            json!([{"name": "web", "image": "nginx"}])
        );
        assert_eq!(spec.get("hostAliases"), None);
        assert_eq!(spec["automountServiceAccountToken"], false);
        assert_eq!(spec.get("serviceAccountName"), None);
    }
}

#[test]
fn remote_pods_have_a_service_account_of_the_provider() {
    for default in [ApiServerSupport::Disabled, ApiServerSupport::TokenApi] {
        let kept = with(default, alias(), &json!({}), &support("remote"));
        let mut annotations = support("remote");
        annotations["liqo.io/remote-service-account-name"] = json!("reader");
        let named = with(default, alias(), &json!({}), &annotations);

        assert_eq!(kept["serviceAccountName"], "shop");
        assert_eq!(named["serviceAccountName"], "reader");
        assert_eq!(named["automountServiceAccountToken"], true);
        assert_eq!(
            named["containers"],
            json!([{"name": "web", "image": "nginx"}])
        );
        assert_eq!(named.get("hostAliases"), None);
    }
}

#[test]
fn the_remote_service_account_needs_the_mode_remote() {
    let spec = forged(
        &json!({}),
        &json!({"liqo.io/remote-service-account-name": "reader"}),
    );

    assert_eq!(spec.get("serviceAccountName"), None);
}
