//! Fields of VkOptionsTemplates and objects that change the Deployment.

use super::*;
use control_api::{Configuration, IP, Network};

/// Returns `rome` after a change of the VkOptionsTemplate.
fn with_options(edit: impl FnOnce(&mut Value)) -> Side {
    let mut rome = rome(1);
    rome.edit::<VkOptionsTemplate>(&default_options(), |it| edit(&mut it["spec"]));
    rome.run(MOMENT);
    assert!(rome.replanned().is_empty());

    rome
}

#[test]
fn every_option_reaches_the_deployment() {
    let tolerations = json!([{"key": "edge", "operator": "Exists"}]);
    let tolerated = tolerations.clone();
    let mut rome = with_options(move |spec| {
        spec["replicas"] = json!(2);
        spec["metricsAddress"] = json!("0.0.0.0:6000");
        spec["pullPolicy"] = json!("Always");
        spec["imagePullSecrets"] = json!([{"name": "registry"}]);
        spec["resources"] = json!({"requests": {"cpu": "10m"}, "limits": {}});
        spec["tolerations"] = tolerated;
        spec["extraArgs"] = json!([
            "--enable-apiserver-support=false",
            "--certificate-type=self"
        ]);
        spec["extraLabels"] = json!({"team": "edge"});
        spec["extraAnnotations"] = json!({"example.com/a": "b"});
        spec["nodeExtraLabels"] = json!({"x": "1", "y": "2"});
        spec["nodeExtraAnnotations"] = json!({"example.com/n": "3"});
        spec["labelsNotReflected"] = json!(["example.com/l"]);
        spec["reflectorsConfig"]["ingress"] = json!({"workers": 0, "type": "AllowList"});
        spec["reflectedResources"] = json!([
            {"group": "cert-manager.io", "version": "v1", "resource": "certificates", "status": true},
            {"group": "policy", "version": "v1", "resource": "poddisruptionbudgets", "type": "AllowList"},
        ]);
    });

    let deployment = rome.object::<Deployment>(&vk()).unwrap();
    let spec = &deployment["spec"];
    let pod = &spec["template"];
    assert_eq!(spec["replicas"], 2);
    assert_eq!(pod["spec"]["tolerations"], tolerations);
    assert_eq!(
        pod["spec"]["imagePullSecrets"],
        json!([{"name": "registry"}])
    );
    for metadata in [&deployment["metadata"], &pod["metadata"]] {
        assert_eq!(metadata["labels"]["team"], "edge");
        assert_eq!(metadata["annotations"]["example.com/a"], "b");
    }
    assert_eq!(
        spec["selector"]["matchLabels"]["team"],
        Value::Null,
        "immutable"
    );
    let container = container(&mut rome);
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["resources"], json!({"requests": {"cpu": "10m"}}));
    assert_eq!(container["ports"][0]["containerPort"], 6000);
    let arguments = arguments(&mut rome);
    let at = |argument: &str| {
        let found = arguments.iter().position(|it| it == argument);
        found.unwrap_or_else(|| panic!("no {argument} in {arguments:#?}"))
    };
    let order = [
        "--ingress-reflection-workers=0",
        "--ingress-reflection-type=AllowList",
        "--reflected-resource=certificates.v1.cert-manager.io:DenyList:status",
        "--reflected-resource=poddisruptionbudgets.v1.policy:AllowList",
        "--node-extra-annotations=example.com/n=3",
        "--node-extra-labels=x=1,y=2",
        "--enable-apiserver-support=false",
        "--certificate-type=self",
        "--metrics-enabled=true",
        "--metrics-address=0.0.0.0:6000",
    ];
    assert!(order.map(at).is_sorted());
    let patch = rome.spec::<VirtualNode>(&milan())["offloadingPatch"].clone();
    assert_eq!(patch["labelsNotReflected"], json!(["example.com/l"]));
}

#[test]
fn without_metrics_there_is_neither_flag_nor_port() {
    let mut rome = with_options(|spec| spec["metricsEnabled"] = json!(false));

    assert!(!arguments(&mut rome).iter().any(|it| it.contains("metrics")));
    let ports = container(&mut rome)["ports"].clone();
    assert_eq!(ports.as_array().unwrap().len(), 1, "{ports}");
}

#[test]
fn options_that_are_withdrawn_leave_the_deployment() {
    let mut rome = with_options(|spec| {
        spec["extraLabels"] = json!({"team": "edge"});
        spec["extraAnnotations"] = json!({"example.com/a": "b"});
        spec["tolerations"] = json!([{"key": "edge"}]);
        spec["nodeExtraLabels"] = json!({"x": "1"});
    });
    rome.edit::<Deployment>(&vk(), |it| {
        it["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = json!("3");
        it["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] =
            json!("now");
    });
    rome.edit::<VkOptionsTemplate>(&default_options(), |it| {
        for field in [
            "extraLabels",
            "extraAnnotations",
            "tolerations",
            "nodeExtraLabels",
        ] {
            it["spec"].as_object_mut().unwrap().remove(field);
        }
    });
    rome.run(MOMENT);

    let text = rome.object::<Deployment>(&vk()).unwrap().to_string();
    for part in ["edge", "example.com/a", "x=1"] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    for part in ["deployment.kubernetes.io/revision", "restartedAt"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(rome.replanned().is_empty());
}

#[test]
fn an_option_that_a_virtual_node_leaves_open_is_that_of_its_template() {
    let mut rome = rome(1);
    let template = json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "VkOptionsTemplate",
        "metadata": {"name": "reflection", "namespace": "shop"},
        "spec": {
            "containerImage": IMAGE,
            "createNode": false,
            "disableNetworkCheck": true,
            "metricsEnabled": false,
        },
    });
    let mut node = upstream("virtualNode");
    node["metadata"] = json!({"name": "other", "namespace": "liqo-tenant-milan"});
    node["spec"] = json!({
        "clusterID": "milan",
        "kubeconfigSecretRef": {"name": "kubeconfig"},
        "vkOptionsTemplateRef": {"name": "reflection", "namespace": "shop"},
    });
    rome.put::<VirtualNode>(node);
    rome.run(MOMENT);
    // They are not chosen before the template exists.
    let spec = rome.spec::<VirtualNode>(&key("milan", "other"));
    assert_eq!(spec["createNode"], Value::Null);
    rome.put::<VkOptionsTemplate>(template);
    rome.run(MOMENT);

    let spec = rome.spec::<VirtualNode>(&key("milan", "other"));
    assert_eq!(spec["createNode"], false);
    assert_eq!(spec["disableNetworkCheck"], true);
    let deployment = rome
        .spec::<Deployment>(&key("milan", "vk-other"))
        .to_string();
    for argument in [
        "--create-node=false",
        "--node-check-network=false",
        "--foreign-kubeconfig-secret-name=kubeconfig",
        "--pod-reflection-workers=10",
    ] {
        assert!(deployment.contains(argument), "{argument}: {deployment}");
    }
    assert_eq!(
        rome.conditions(&key("milan", "other")),
        ["VirtualKubelet=Creating", "Node=None"]
    );
    let subjects = rome.object::<RoleBinding>(&tenant_binding()).unwrap()["subjects"].clone();
    assert_eq!(subjects.as_array().unwrap().len(), 2);
    assert!(rome.replanned().is_empty());
}

#[test]
fn classes_and_changes_of_the_spec_are_arguments() {
    let mut rome = rome(1);
    rome.edit_slice(&milan(), |slice| {
        let status = &mut slice["status"];
        status["storageClasses"] = json!([{"storageClassName": "fast"}]);
        status["ingressClasses"] =
            json!([{"ingressClassName": "a"}, {"ingressClassName": "nginx", "default": true}]);
        status["loadBalancerClasses"] = json!([{"loadBalancerClassName": "example.com/lb"}]);
    });
    rome.edit::<VirtualNode>(&milan(), |node| {
        node["spec"]["disableNetworkCheck"] = json!(true);
    });
    rome.run(MOMENT);

    let arguments = arguments(&mut rome).join(" ");
    let classes = "--enable-storage --remote-real-storage-class-name=fast --enable-ingress \
                   --remote-real-ingress-class-name=nginx --enable-load-balancer \
                   --remote-real-load-balancer-class-name=example.com/lb ";
    assert!(arguments.contains(classes), "{arguments}");
    assert!(arguments.contains("--node-check-network=false"));
    let template = rome.spec::<VirtualNode>(&milan())["template"].to_string();
    assert!(template.contains("--enable-ingress"));
}

#[test]
fn a_changed_offloading_patch_changes_the_pods() {
    let mut rome = rome(1);
    let hash = |rome: &mut Side| {
        let spec = rome.spec::<Deployment>(&vk());
        spec["template"]["metadata"]["annotations"]["liqo.io/offloading-patch-hash"].clone()
    };
    let before = hash(&mut rome);
    rome.edit_slice(&milan(), |slice| {
        slice["status"]["nodeSelector"] = json!({"kubernetes.io/arch": "arm64"});
    });
    rome.run(MOMENT);

    assert_ne!(hash(&mut rome), before);
}

/// Returns the Configuration of a peer, with its CIDRs and those that they are remapped to.
fn configuration(peer: &str, cidrs: &Value, remapped: &Value) -> Value {
    json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "Configuration",
        "metadata": {
            "name": peer,
            "namespace": format!("liqo-tenant-{peer}"),
            "labels": {"liqo.io/remote-cluster-id": peer},
        },
        "spec": {"remote": {"cidr": cidrs}},
        "status": {"remote": {"cidr": remapped}},
    })
}

#[test]
fn remapped_cidrs_of_the_provider_are_arguments_of_this_projects_image_only() {
    let mut rome = rome(1);
    let mut configuration = configuration(
        "milan",
        &json!({"pod": ["10.1.0.0/16", "10.2.0.0/16"], "external": ["10.3.0.0/16"]}),
        &json!({"pod": ["10.4.0.0/16", ""], "external": ["10.5.0.0/16"]}),
    );
    rome.put::<Configuration>(configuration.clone());
    rome.run(MOMENT);
    let incomplete = arguments(&mut rome);
    assert!(
        !incomplete.iter().any(|it| it.contains("remote-pod")),
        "{incomplete:?}"
    );

    configuration["status"]["remote"]["cidr"]["pod"][1] = json!("10.6.0.0/16");
    rome.put::<Configuration>(configuration);
    rome.run(MOMENT);
    let complete = arguments(&mut rome).join(" ");
    let expected = "--remote-pod-cidr=10.1.0.0/16 --remote-pod-cidr=10.2.0.0/16 \
                    --remote-pod-cidr-remap=10.4.0.0/16 --remote-pod-cidr-remap=10.6.0.0/16 \
                    --remote-external-cidr=10.3.0.0/16 --remote-external-cidr-remap=10.5.0.0/16";
    assert!(complete.ends_with(expected), "{complete}");

    rome.edit::<VkOptionsTemplate>(&default_options(), |it| {
        it["spec"]["containerImage"] = json!("ghcr.io/liqotech/virtual-kubelet:v1.2.0");
    });
    rome.run(MOMENT);
    let of_upstream = arguments(&mut rome).join(" ");
    assert!(
        of_upstream.ends_with("--node-check-network=true"),
        "{of_upstream}"
    );
}

#[test]
fn without_networking_the_cidrs_of_this_cluster_and_of_other_peers_are_reserved() {
    let mut rome = rome(1);
    for (type_, cidr) in [
        ("pod-cidr", "10.244.0.0/16"),
        ("service-cidr", "10.96.0.0/12"),
        ("external-cidr", "10.70.0.0/16"),
    ] {
        rome.put::<Network>(json!({
            "apiVersion": "ipam.liqo.io/v1alpha1",
            "kind": "Network",
            "metadata": {"name": type_, "namespace": "liqo", "labels": {"ipam.liqo.io/network-type": type_}},
            "spec": {"cidr": cidr},
            "status": {"cidr": cidr},
        }));
    }
    let configuration = |peer: &str, remapped: &str| {
        configuration(
            peer,
            &json!({"pod": ["10.1.0.0/16"], "external": ["10.2.0.0/16"]}),
            &json!({"pod": [remapped], "external": ["10.72.0.0/16"]}),
        )
    };
    rome.run(MOMENT);
    let reserved = |rome: &mut Side| {
        let node = rome.object::<VirtualNode>(&milan()).unwrap_or_default();
        node["metadata"]["annotations"]["liqo.io/reserved-cidrs"].clone()
    };
    let of_rome = "10.244.0.0/16,10.70.0.0/16,10.96.0.0/12";
    assert_eq!(reserved(&mut rome), of_rome);

    // The virtual kubelet is not restarted.
    let deployment = |rome: &mut Side| rome.object::<Deployment>(&vk()).unwrap_or_default();
    let before = deployment(&mut rome)["spec"].clone();
    rome.put_peer("turin");
    rome.put::<Configuration>(configuration("turin", "10.71.0.0/16"));
    rome.run(MOMENT);
    let with_turin = "10.244.0.0/16,10.70.0.0/16,10.71.0.0/16,10.72.0.0/16,10.96.0.0/12";
    assert_eq!(reserved(&mut rome), with_turin);
    assert!(before.is_object());
    assert_eq!(deployment(&mut rome)["spec"], before);

    rome.put::<Configuration>(configuration("milan", "10.73.0.0/16"));
    rome.run(MOMENT);
    assert_eq!(reserved(&mut rome), Value::Null);
}

#[test]
fn the_addresses_of_this_clusters_api_server_are_named_while_networking_is_on() {
    let mut rome = rome(1);
    for (namespace, name, type_, address) in [
        ("liqo", "api-server", "api-server", "10.70.0.1"),
        ("liqo", "api-server-proxy", "api-server-proxy", "10.70.0.2"),
        ("demo", "of-a-user", "api-server", "10.70.0.3"),
    ] {
        rome.put::<IP>(json!({
            "apiVersion": "ipam.liqo.io/v1alpha1",
            "kind": "IP",
            "metadata": {"name": name, "namespace": namespace, "labels": {"ipam.liqo.io/ip-type": type_}},
            "spec": {"ip": "10.96.0.1"},
            "status": {"ip": address, "cidr": "10.70.0.0/16"},
        }));
    }
    rome.run(MOMENT);
    let named = |rome: &mut Side| {
        let node = rome.object::<VirtualNode>(&milan()).unwrap_or_default();
        node["metadata"]["annotations"]["liqo.io/api-server-addresses"].clone()
    };
    assert_eq!(named(&mut rome), Value::Null);

    rome.put::<Configuration>(configuration(
        "milan",
        &json!({"pod": ["10.1.0.0/16"], "external": ["10.2.0.0/16"]}),
        &json!({"pod": ["10.4.0.0/16"], "external": ["10.5.0.0/16"]}),
    ));
    rome.run(MOMENT);
    assert_eq!(named(&mut rome), "10.70.0.1");

    rome.edit::<IP>(&Key::new("liqo", "api-server"), |ip| {
        ip["status"]["ip"] = json!("10.70.0.8");
    });
    rome.run(MOMENT);
    assert_eq!(named(&mut rome), "10.70.0.8");
}

#[test]
fn without_any_vk_options_template_the_defaults_of_the_chart_apply() {
    let mut rome = empty(1);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    assert_eq!(container(&mut rome)["image"], IMAGE);
    let expected = upstream("deployment");
    let expected = &expected["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(json!(arguments(&mut rome)), *expected);
}
