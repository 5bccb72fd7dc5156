//! Values of `spec.template` that users write.

use super::*;

/// Returns a VirtualNode of a user, with a template.
fn of_user(template: &Value) -> Value {
    let mut node = upstream("virtualNode");
    node["metadata"] = json!({"name": "milan", "namespace": "liqo-tenant-milan"});
    node["spec"]["template"] = template.clone();

    node
}

fn template(container: &Value) -> Value {
    json!({
        "metadata": {"labels": {"team": "edge", "liqo.io/virtual-node": "other"}},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"annotations": {"example.com/a": "b"}},
                "spec": {
                    "hostNetwork": true,
                    "serviceAccountName": "other",
                    "containers": [container],
                },
            },
        },
    })
}

#[test]
fn the_values_of_a_user_replace_those_of_the_options() {
    let mut rome = empty(1);
    let mut options = upstream("vkOptionsTemplate");
    options["spec"]["containerImage"] = json!(IMAGE);
    options["spec"]["nodeExtraLabels"] = json!({"from": "options"});
    rome.put::<VkOptionsTemplate>(options);
    rome.put::<VirtualNode>(of_user(&template(&json!({
        "name": "virtual-kubelet",
        "image": "example.com/vk:2",
        "resources": {"limits": {"memory": "64Mi"}},
        "args": ["--node-extra-labels=a=b", "--metrics-address=:7000", "--tenant-namespace=other"],
        "securityContext": {"privileged": true},
    }))));
    rome.run(MOMENT);

    for updated in [IMAGE, "example.com/vk:3"] {
        let deployment = rome.object::<Deployment>(&vk()).unwrap();
        let labels = &deployment["metadata"]["labels"];
        assert_eq!(labels["team"], "edge");
        assert_eq!(
            labels["liqo.io/virtual-node"], "milan",
            "the selector needs it"
        );
        let pod = &deployment["spec"]["template"];
        assert_eq!(pod["metadata"]["annotations"]["example.com/a"], "b");
        assert_eq!(pod["spec"]["hostNetwork"], Value::Null);
        assert_eq!(pod["spec"]["serviceAccountName"], "milan");
        let container = container(&mut rome);
        assert_eq!(container["image"], "example.com/vk:2");
        assert_eq!(
            container["resources"],
            json!({"limits": {"memory": "64Mi"}})
        );
        assert_eq!(container["securityContext"]["privileged"], Value::Null);
        assert_eq!(container["ports"][0]["containerPort"], 7000);
        let arguments = arguments(&mut rome);
        let has = |argument: &str| arguments.iter().any(|it| it == argument);
        assert!(has("--node-extra-labels=a=b"), "{arguments:?}");
        assert!(has("--metrics-address=:7000"), "{arguments:?}");
        assert!(has("--tenant-namespace=liqo-tenant-milan"), "{arguments:?}");
        assert!(!has("--tenant-namespace=other"), "{arguments:?}");
        assert!(rome.replanned().is_empty());
        rome.edit::<VkOptionsTemplate>(&default_options(), |it| {
            it["spec"]["containerImage"] = json!(updated);
        });
        rome.run(MOMENT);
    }
}

#[test]
fn a_value_that_the_user_has_not_written_follows_the_options() {
    let mut rome = rome(1);
    rome.edit::<VirtualNode>(&milan(), |node| {
        let pod = &mut node["spec"]["template"]["spec"]["template"]["spec"];
        pod["containers"][0]["resources"] = json!({"limits": {"memory": "64Mi"}});
    });
    rome.run(MOMENT);
    rome.edit::<VkOptionsTemplate>(&default_options(), |it| {
        it["spec"]["containerImage"] = json!("registry.example/liqo/virtual-kubelet:v2");
        it["spec"]["resources"] = json!({"limits": {"memory": "1Gi"}});
    });
    rome.run(MOMENT);

    let container = container(&mut rome);
    assert_eq!(
        container["image"],
        "registry.example/liqo/virtual-kubelet:v2"
    );
    assert_eq!(
        container["resources"],
        json!({"limits": {"memory": "64Mi"}})
    );
    assert!(rome.replanned().is_empty());
}

#[test]
fn a_virtual_node_of_an_upstream_installation_gets_this_projects_image() {
    let mut rome = empty(1);
    rome.put::<Deployment>(upstream("deployment"));
    rome.put::<ResourceSlice>(golden::local());
    rome.put::<VirtualNode>(upstream("virtualNode"));
    rome.run(MOMENT);

    assert_eq!(container(&mut rome)["image"], IMAGE);
    assert_eq!(rome.count::<Deployment>(), 1);
    assert_eq!(rome.events(), [""; 0]);
    assert!(rome.replanned().is_empty());
}

#[test]
fn a_deployment_with_another_selector_is_replaced() {
    let mut rome = rome(1);
    rome.edit::<Deployment>(&vk(), |it| {
        it["spec"]["selector"]["matchLabels"]["gone"] = json!("1");
        it["spec"]["replicas"] = json!(5);
    });
    rome.run(MOMENT);

    let spec = rome.spec::<Deployment>(&vk());
    assert_eq!(spec["selector"]["matchLabels"]["gone"], Value::Null);
    assert_eq!(spec["replicas"], 1);
    assert!(rome.replanned().is_empty());
}
