//! Objects of others, and failures.

use super::super::Edit;
use super::*;

#[test]
fn a_service_account_of_others_is_neither_used_nor_deleted() {
    let mut rome = empty(1);
    let account = json!({"metadata": {"name": "milan", "namespace": "liqo-tenant-milan"}});
    rome.put::<ServiceAccount>(account);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    let events = rome.events();
    assert_eq!(events.len(), 1, "{events:?}");
    let expected = "VirtualNode milan ServiceAccountExists: ServiceAccount liqo-tenant-milan/milan";
    assert!(events[0].starts_with(expected), "{events:?}");
    assert_eq!(rome.count::<Deployment>(), 0);
    assert_eq!(rome.count::<ClusterRoleBinding>(), 0);
    assert_eq!(rome.count::<RoleBinding>(), 1, "that of the manager");

    rome.remove::<ResourceSlice>(&milan());
    rome.run(MOMENT);
    assert_eq!(rome.count::<VirtualNode>(), 0);
    assert_eq!(rome.count::<ServiceAccount>(), 1);
    assert_eq!(rome.requests::<ServiceAccount>(), 0);
}

#[test]
fn a_deployment_of_others_is_neither_changed_nor_deleted() {
    let mut rome = empty(1);
    rome.put::<Deployment>(json!({
        "metadata": {
            "name": "vk-milan",
            "namespace": "liqo-tenant-milan",
            "labels": {"liqo.io/virtual-node": "milan"},
        },
        "spec": {"selector": {}, "template": {}},
    }));
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    let events = rome.events();
    assert_eq!(events.len(), 1, "{events:?}");
    let expected = "VirtualNode milan DeploymentExists: Deployment liqo-tenant-milan/vk-milan";
    assert!(events[0].starts_with(expected), "{events:?}");

    rome.remove::<ResourceSlice>(&milan());
    rome.run(MOMENT);
    assert_eq!(rome.count::<VirtualNode>(), 0);
    assert_eq!(rome.count::<Deployment>(), 1);
    assert_eq!(rome.requests::<Deployment>(), 0);
}

fn bindings(rome: &mut Side) -> [Value; 3] {
    [
        rome.object::<RoleBinding>(&tenant_binding()),
        rome.object::<RoleBinding>(&lease_binding()),
        rome.object::<ClusterRoleBinding>(&cluster_binding()),
    ]
    .map(|binding| without_identity(binding.unwrap()))
}

#[test]
fn bindings_with_other_subjects_or_roles_are_replaced() {
    let edits: [Edit; 3] = [
        ("another subject", |it| {
            it["subjects"][0] = json!({"kind": "User", "name": "eve"});
        }),
        ("a further subject", |it| {
            let subjects = it["subjects"].as_array_mut().unwrap();
            subjects.push(json!({"kind": "User", "name": "eve"}));
        }),
        ("another role", |it| {
            it["roleRef"]["name"] = json!("cluster-admin");
        }),
    ];
    for (name, edit) in edits {
        let mut rome = rome(1);
        let before = bindings(&mut rome);
        rome.edit::<RoleBinding>(&tenant_binding(), edit);
        rome.edit::<RoleBinding>(&lease_binding(), edit);
        rome.edit::<ClusterRoleBinding>(&cluster_binding(), edit);
        rome.run(MOMENT);

        assert_eq!(bindings(&mut rome), before, "{name}");
        assert!(rome.replanned().is_empty(), "{name}");
    }
}

#[test]
fn a_binding_that_exists_before_its_virtual_node_is_not_trusted() {
    let mut rome = empty(1);
    let mut binding = upstream("clusterRoleBinding");
    binding["subjects"] = json!([{"kind": "User", "name": "eve"}]);
    rome.put::<ClusterRoleBinding>(binding);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    let binding = rome.object::<ClusterRoleBinding>(&cluster_binding());
    assert_eq!(
        without_identity(binding.unwrap()),
        upstream("clusterRoleBinding")
    );
}

#[test]
fn rights_of_a_virtual_node_that_vanished_are_removed() {
    let mut rome = rome(1);
    rome.edit_slice(&milan(), |slice| {
        slice["metadata"]["annotations"] = json!({})
    });
    rome.edit::<VirtualNode>(&milan(), |it| it["metadata"]["finalizers"] = json!([]));
    rome.remove::<VirtualNode>(&milan());
    rome.run(MOMENT);

    assert_eq!(rome.count::<VirtualNode>(), 0);
    assert_eq!(rome.count::<ClusterRoleBinding>(), 0);
    assert_eq!(rome.object::<RoleBinding>(&tenant_binding()), None);
    assert_eq!(rome.object::<RoleBinding>(&lease_binding()), None);
}

#[test]
fn the_older_of_two_virtual_nodes_with_one_name_has_the_virtual_kubelet() {
    let mut rome = rome(1);
    put_peer(&mut rome, "naples");
    let mut other = upstream("virtualNode");
    other["metadata"] = json!({
        "name": "milan",
        "namespace": "liqo-tenant-naples",
        "creationTimestamp": "2030-01-01T00:00:00Z",
    });
    other["spec"]["clusterID"] = json!("naples");
    rome.edit::<VirtualNode>(&milan(), |it| {
        it["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    rome.put::<VirtualNode>(other);
    rome.run(MOMENT);

    assert_eq!(rome.count::<Deployment>(), 1);
    let events = rome.events();
    let expected = "DuplicateName: VirtualNode liqo-tenant-milan/milan is older";
    assert!(events.iter().any(|it| it.contains(expected)), "{events:?}");
    let binding = rome
        .object::<ClusterRoleBinding>(&cluster_binding())
        .unwrap();
    assert_eq!(binding["subjects"][0]["namespace"], "liqo-tenant-milan");
}

#[test]
fn a_virtual_node_that_can_have_no_virtual_kubelet_is_refused_with_the_reason() {
    let edits: [Edit; 5] = [
        ("NotTenantNamespace: namespace shop", |it| {
            it["metadata"]["namespace"] = json!("shop");
        }),
        ("NotTenantNamespace: spec.clusterID", |it| {
            it["spec"]["clusterID"] = json!("naples");
        }),
        ("NameTooLong: metadata.name", |it| {
            it["metadata"]["name"] = json!("x".repeat(64));
        }),
        ("KubeconfigMissing: spec.kubeconfigSecretRef", |it| {
            it["spec"]
                .as_object_mut()
                .unwrap()
                .remove("kubeconfigSecretRef");
        }),
        ("NodeExists: Node worker exists", |it| {
            it["metadata"]["name"] = json!("worker");
        }),
    ];
    for (expected, edit) in edits {
        let mut rome = empty(1);
        rome.put_node("worker", &json!({}));
        let mut node = upstream("virtualNode");
        node["metadata"] = json!({"name": "milan", "namespace": "liqo-tenant-milan"});
        edit(&mut node);
        rome.put::<VirtualNode>(node);
        rome.run(MOMENT);

        let events = rome.events();
        assert!(
            events.iter().any(|it| it.contains(expected)),
            "{expected}: {events:?}"
        );
        assert_eq!(rome.count::<Deployment>(), 0, "{expected}");
        assert_eq!(rome.count::<ClusterRoleBinding>(), 0, "{expected}");
        assert!(rome.replanned().is_empty(), "{expected}");
    }
}

#[test]
fn nothing_is_written_without_rights_in_the_namespace() {
    let mut rome = empty(1);
    let own = key("milan", "liqo-controller-manager-tenant");
    let binding = rome.object::<RoleBinding>(&own).unwrap();
    rome.remove::<RoleBinding>(&own);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);
    assert_eq!(
        rome.requests::<Deployment>() + rome.requests::<ServiceAccount>(),
        0
    );

    rome.put::<RoleBinding>(binding);
    rome.run(MOMENT);
    assert_eq!(rome.count::<Deployment>(), 1);
}

#[test]
fn crashes_and_partitions_end_in_the_same_objects() {
    let objects = |rome: &mut Side| {
        let specs = [
            rome.spec::<Deployment>(&vk()),
            rome.spec::<VirtualNode>(&milan()),
        ];
        (specs, bindings(rome))
    };
    let expected = objects(&mut rome(1));
    for seed in 0..20 {
        let mut rome = empty(seed);
        let mut options = upstream("vkOptionsTemplate");
        options["spec"]["containerImage"] = json!(IMAGE);
        rome.put::<VkOptionsTemplate>(options);
        rome.put::<ResourceSlice>(golden::local());
        rome.run_with_faults();

        assert_eq!(objects(&mut rome), expected, "seed {seed}");
        assert_eq!(
            rome.redundant().len(),
            0,
            "seed {seed}: {:?}",
            rome.redundant()
        );
        assert!(rome.replanned().is_empty(), "seed {seed}");

        start(&mut rome);
        rome.remove::<ResourceSlice>(&milan());
        rome.run_with_faults();
        let pod = key("milan", "vk-milan-1");
        rome.simulation.local().terminate::<Pod>(&pod);
        rome.run_with_faults();
        assert_eq!(rome.count::<VirtualNode>(), 0, "seed {seed}");
        assert_eq!(rome.count::<Node>(), 0, "seed {seed}");
        assert_eq!(rome.count::<ClusterRoleBinding>(), 0, "seed {seed}");
        assert_eq!(rome.count::<ServiceAccount>(), 0, "seed {seed}");
    }
}

#[test]
fn a_restart_of_the_manager_writes_nothing_and_withdraws_no_rights() {
    let mut rome = rome(1);
    start(&mut rome);
    let before = rome.simulation.log().len();
    for leader in [0, 1, 0, 1, 0, 1] {
        // All replicas, so that none of them knows the objects.
        rome.simulation.crash(0);
        rome.simulation.crash(1);
        rome.simulation.hand_over(leader);
        rome.run(MOMENT);
    }

    let log = &rome.simulation.log()[before..];
    assert!(log.is_empty(), "{log:?}");
}

#[test]
fn a_virtual_kubelet_that_runs_keeps_its_rights_while_its_virtual_node_is_refused() {
    let mut rome = rome(1);
    start(&mut rome);
    let before = bindings(&mut rome);
    rome.edit::<VirtualNode>(&milan(), |node| {
        node["spec"]["vkOptionsTemplateRef"] = json!({"name": "missing"});
    });
    rome.run(MOMENT);

    assert_eq!(bindings(&mut rome), before);
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=Running", "Node=Running"]
    );
}
