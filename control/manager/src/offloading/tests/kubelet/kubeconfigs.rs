//! Secrets with the kubeconfig for another cluster than the provider of the VirtualNode.

use super::*;
use k8s_openapi::api::core::v1::Secret;

const REFUSED: &str = "VirtualNode milan OtherProvider: label liqo.io/remote-cluster-id of Secret \
                       liqo-tenant-milan/kubeconfig-resourceslice-milan is `naples`, but the VirtualNode is of `milan`: name \
                       the Secret with the kubeconfig for `milan` in spec.kubeconfigSecretRef";

/// Writes the Secret of the VirtualNode as the kubeconfig for this cluster, or without a label.
fn put_secret(rome: &mut Side, cluster: Option<&str>) {
    let labels = match cluster {
        Some(cluster) => json!({"liqo.io/remote-cluster-id": cluster}),
        None => json!({}),
    };
    rome.put::<Secret>(json!({
        "metadata": {
            "name": "kubeconfig-resourceslice-milan",
            "namespace": "liqo-tenant-milan",
            "labels": labels,
        },
    }));
}

fn edit_replicas(rome: &mut Side, replicas: usize) {
    rome.edit::<VkOptionsTemplate>(&default_options(), |it| {
        it["spec"]["replicas"] = json!(replicas);
    });
}

#[test]
fn a_secret_of_another_cluster_prevents_a_virtual_kubelet() {
    let mut rome = empty(1);
    put_secret(&mut rome, Some("naples"));
    rome.put::<VkOptionsTemplate>(upstream("vkOptionsTemplate"));
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    assert_eq!(rome.events(), [REFUSED]);
    assert_eq!(rome.count::<Deployment>(), 0);
    assert_eq!(rome.count::<ServiceAccount>(), 0);
    assert_eq!(rome.count::<ClusterRoleBinding>(), 0);
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=None", "Node=None"]
    );
    assert!(rome.replanned().is_empty());

    put_secret(&mut rome, Some("milan"));
    rome.run(MOMENT);
    assert_eq!(rome.count::<Deployment>(), 1);
    assert_eq!(rome.count::<ClusterRoleBinding>(), 1);
    assert!(rome.replanned().is_empty());
}

#[test]
fn a_secret_of_the_provider_and_one_without_label_are_accepted() {
    for cluster in [Some("milan"), None] {
        let mut rome = empty(1);
        put_secret(&mut rome, cluster);
        rome.put::<ResourceSlice>(golden::local());
        rome.run(MOMENT);

        assert_eq!(rome.events(), [""; 0], "{cluster:?}");
        assert_eq!(rome.count::<Deployment>(), 1, "{cluster:?}");
    }
}

#[test]
fn the_secret_of_a_virtual_node_of_a_user_is_checked() {
    let mut rome = empty(1);
    put_secret(&mut rome, Some("naples"));
    let mut node = upstream("virtualNode");
    node["metadata"] = json!({"name": "milan", "namespace": "liqo-tenant-milan"});
    rome.put::<VirtualNode>(node);
    rome.run(MOMENT);
    assert_eq!(rome.events(), [REFUSED]);
    assert_eq!(rome.count::<Deployment>(), 0);

    rome.edit::<VirtualNode>(&milan(), |node| {
        node["spec"]["kubeconfigSecretRef"] = json!({"name": "other"});
    });
    rome.run(MOMENT);
    assert_eq!(rome.count::<Deployment>(), 1);
}

#[test]
fn a_virtual_kubelet_that_runs_stays_while_the_secret_is_of_another_cluster() {
    let mut rome = rome(1);
    put_secret(&mut rome, Some("milan"));
    start(&mut rome);
    let before = rome.object::<Deployment>(&vk());
    let rights = rome.object::<RoleBinding>(&tenant_binding());
    put_secret(&mut rome, Some("naples"));
    rome.run(MOMENT);
    assert_eq!(rome.events(), [REFUSED]);
    edit_replicas(&mut rome, 2);
    rome.run(MOMENT);
    for leader in [0, 1, 0, 1] {
        rome.simulation.crash(0);
        rome.simulation.crash(1);
        rome.simulation.hand_over(leader);
        rome.run(MOMENT);
    }

    assert_eq!(rome.object::<Deployment>(&vk()), before);
    assert_eq!(rome.object::<RoleBinding>(&tenant_binding()), rights);
    assert_eq!(rome.count::<ClusterRoleBinding>(), 1);
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=Running", "Node=Running"]
    );

    put_secret(&mut rome, Some("milan"));
    rome.run(MOMENT);
    assert_eq!(rome.spec::<Deployment>(&vk())["replicas"], 2);
    assert!(rome.replanned().is_empty());
}

/// The VirtualNode changes as soon as the process starts, and the Secrets are listed later.
#[test]
fn a_start_of_the_manager_creates_no_virtual_kubelet_before_the_secrets_are_listed() {
    for seed in 0..20 {
        let mut rome = rome(seed);
        put_secret(&mut rome, Some("naples"));
        rome.run(MOMENT);
        rome.simulation.crash(0);
        rome.simulation.crash(1);
        rome.remove::<Deployment>(&vk());
        rome.simulation.hand_over(1);
        rome.run(MOMENT);

        assert_eq!(rome.count::<Deployment>(), 0, "seed {seed}");
    }
}
