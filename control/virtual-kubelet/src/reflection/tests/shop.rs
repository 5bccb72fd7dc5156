//! Objects of the offloaded namespace `shop`.

use super::side::{Sides, settings};
use control_api::ShadowEndpointSlice;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

pub(super) fn map(value: &str) -> Value {
    json!({"data": {"color": value}})
}

pub(super) fn service() -> Value {
    json!({"spec": {"clusterIP": "10.96.0.7", "type": "ClusterIP", "ports": [{"port": 80, "protocol": "TCP"}]}})
}

pub(super) fn slice(endpoints: &[(&str, &str)]) -> Value {
    let endpoints = endpoints.iter().map(|(address, node)| {
        json!({"addresses": [address], "nodeName": node, "conditions": {"ready": true, "serving": true}})
    });
    json!({
        "metadata": {"labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": Vec::from_iter(endpoints),
        "ports": [{"name": "http", "port": 80}],
    })
}

pub(super) fn put_node(sides: &mut Sides, name: &str, cluster: Option<&str>) {
    let labels = match cluster {
        Some(cluster) => {
            json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": cluster})
        }
        None => json!({"liqo.io/remote-cluster-id": "milan"}),
    };
    sides.put::<Node>(json!({"metadata": {"name": name, "labels": labels}}));
}

pub(super) fn shop(seed: u64) -> Sides {
    let mut sides = Sides::new(seed, settings());
    put_node(&mut sides, "rome-1", None);
    put_node(&mut sides, "milan", Some("milan"));
    sides.put_in_shop::<ConfigMap>("kube-root-ca.crt", json!({"data": {"ca.crt": "x"}}));
    sides.put_in_shop::<ConfigMap>("web", map("blue"));
    sides.put_in_shop::<Secret>("web", json!({"data": {"key": "AAE="}, "type": "Opaque"}));
    sides.put_in_shop::<Service>("web", service());
    let endpoints = [("10.244.0.5", "rome-1"), ("10.244.0.6", "milan")];
    sides.put_in_shop::<EndpointSlice>("web-1", slice(&endpoints));
    sides
}

pub(super) fn addresses(sides: &mut Sides) -> Vec<String> {
    let slice = sides.remote::<ShadowEndpointSlice>("web-1");
    let endpoints = slice["spec"]["template"]["endpoints"].as_array();
    let endpoints = endpoints.into_iter().flatten();
    endpoints
        .map(|it| it["addresses"][0].as_str().unwrap().to_owned())
        .collect()
}
