use super::peering;
use crate::reflection::peering::Peering;
use crate::reflection::{configmap, secret, service};
use serde_json::{Value, json};

fn reflected_service(service: Value, class: Option<&str>) -> Value {
    json!(service::remote(
        &serde_json::from_value(service).unwrap(),
        &peering(),
        class
    ))
}

#[test]
fn a_service_has_no_addresses_and_ports_of_this_cluster() {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "ownerReferences": [], "finalizers": ["a"]},
        "spec": {
            "allocateLoadBalancerNodePorts": true,
            "clusterIP": "10.96.0.7",
            "clusterIPs": ["10.96.0.7"],
            "externalIPs": ["192.0.2.1"],
            "externalName": "x",
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 30001,
            "internalTrafficPolicy": "Local",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "loadBalancerClass": "local",
            "loadBalancerIP": "192.0.2.2",
            "loadBalancerSourceRanges": ["192.0.2.0/24"],
            "ports": [{"appProtocol": "h2c", "name": "http", "nodePort": 30000, "port": 80, "protocol": "TCP", "targetPort": "web"}],
            "publishNotReadyAddresses": true,
            "selector": {"app": "web"},
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}},
            "type": "LoadBalancer",
        },
        "status": {"loadBalancer": {}},
    });

    let reflected = reflected_service(object.clone(), Some("metallb"));
    assert_eq!(
        reflected["spec"],
        json!({
            "allocateLoadBalancerNodePorts": true,
            "externalName": "x",
            "externalTrafficPolicy": "Local",
            "internalTrafficPolicy": "Local",
            "ipFamilyPolicy": "SingleStack",
            "loadBalancerClass": "metallb",
            "loadBalancerSourceRanges": ["192.0.2.0/24"],
            "ports": [{"appProtocol": "h2c", "name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"}],
            "publishNotReadyAddresses": true,
            "selector": {"app": "web"},
            "sessionAffinity": "ClientIP",
            "type": "LoadBalancer",
        })
    );
    let metadata = reflected["metadata"].as_object().unwrap();
    assert_eq!(Vec::from_iter(metadata.keys()), ["labels", "name"]);

    object["metadata"]["annotations"] = json!({"liqo.io/force-remote-node-port": "true"});
    object["spec"]["clusterIP"] = json!("None");
    object["spec"]["type"] = json!("ClusterIP");
    let reflected = reflected_service(object, Some("metallb"));
    assert_eq!(reflected["spec"]["ports"][0]["nodePort"], 30000);
    assert_eq!(reflected["spec"]["clusterIP"], "None");
    for field in ["loadBalancerClass", "externalTrafficPolicy"] {
        assert_eq!(reflected["spec"][field], Value::Null, "{field}");
    }
}

#[test]
fn settings_exclude_labels_and_annotations_but_not_the_markers() {
    let peering = Peering {
        labels_not_reflected: ["tier", "offloading.liqo.io/origin"]
            .map(str::to_owned)
            .into(),
        annotations_not_reflected: ["cloud".to_owned()].into(),
        ..peering()
    };
    let map = json!({"metadata": {
        "name": "a",
        "labels": {"app": "web", "tier": "x", "offloading.liqo.io/nodename": "milan", "offloading.liqo.io/origin": "forged"},
        "annotations": {"cloud": "x", "note": "y", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }});

    let reflected = json!(configmap::remote(
        &serde_json::from_value(map).unwrap(),
        &peering
    ));

    assert_eq!(
        reflected["metadata"]["labels"],
        json!({"app": "web", "offloading.liqo.io/destination": "milan", "offloading.liqo.io/origin": "rome"})
    );
    assert_eq!(reflected["metadata"]["annotations"], json!({"note": "y"}));
}

#[test]
fn a_config_map_keeps_binary_data_and_immutability() {
    let map = json!({"metadata": {"name": "a"}, "binaryData": {"b": "AAE="}, "immutable": true});
    let reflected = json!(configmap::remote(
        &serde_json::from_value(map).unwrap(),
        &peering()
    ));

    assert_eq!(reflected["binaryData"], json!({"b": "AAE="}));
    assert_eq!(reflected["immutable"], true);
}

#[test]
fn the_reflected_root_ca_has_its_name_of_this_cluster_again() {
    for id in ["rome", "milano", "east-1"] {
        let name = control_api::root_ca::reflected_name(id);
        assert_eq!(configmap::local_name(&name, id), "kube-root-ca.crt");
    }
    assert_eq!(configmap::local_name("web", "rome"), "web");
}

#[test]
fn a_secret_with_a_token_of_a_service_account_is_not_reflected() {
    let object = json!({"metadata": {"name": "a"}, "type": "kubernetes.io/service-account-token"});
    let object = serde_json::from_value(object).unwrap();

    assert!(secret::remote(&object, &peering()).is_none());
}

#[test]
fn a_secret_keeps_its_type_and_immutability() {
    let object = json!({"metadata": {"name": "a"}, "type": "kubernetes.io/tls", "immutable": true, "data": {"tls.key": "AAE="}});
    let reflected = secret::remote(&serde_json::from_value(object.clone()).unwrap(), &peering());
    let reflected = json!(reflected.unwrap());

    for field in ["type", "immutable", "data"] {
        assert_eq!(reflected[field], object[field]);
    }
}
