//! Compares the roles of the chart with the rights that the registrations and the runtime need.

use crate::{
    authentication, certificates, daemon_set, endpoint_ip, foreign_cluster, multicluster,
    namespace, network, node_failure, offloading, replication, shadow_endpoint_slice, shadow_pod,
    webhook,
};
use chart_tests::roles::{Rights, Role, assert_exact};
use control_runtime::Cache;

/// Rights of requests that no registration is about.
const FURTHER: [Rights; 23] = [
    // Gives itself the rights of a tenant namespace, by a RoleBinding there.
    bind("liqo-controller-manager-tenant"),
    // Gives consumers their rights.
    bind("liqo-remote-controlplane"),
    bind("liqo-virtual-kubelet-remote-clusterwide"),
    // Gives virtual kubelets their rights.
    bind("liqo-virtual-kubelet-local"),
    bind("liqo-virtual-kubelet-tenant"),
    bind("liqo-virtual-kubelet-node-lease"),
    bind("liqo-virtual-kubelet-authentication"),
    // Finds the offloaded pods of a Node that is drained, in all namespaces, and evicts them.
    Rights {
        role: Role::Cluster,
        group: "",
        resource: "pods",
        name: "",
        verbs: &["list", "watch"],
    },
    Rights {
        role: Role::Cluster,
        group: "",
        resource: "pods/eviction",
        name: "",
        verbs: &["create"],
    },
    // Gives itself, and the virtual kubelets of both sides, their rights in offloaded namespaces.
    bind("liqo-controller-manager-remote-namespace"),
    bind("liqo-virtual-kubelet-remote"),
    bind("liqo-virtual-kubelet-remote-extra"),
    bind("liqo-virtual-kubelet-local-namespace"),
    bind("liqo-virtual-kubelet-local-extra"),
    // Reads whether a consumer has removed its root CA from a namespace that it withdraws.
    Rights {
        role: Role::RemoteNamespace,
        group: "",
        resource: "configmaps",
        name: "",
        verbs: &["get"],
    },
    // Approves the certificates of consumers.
    Rights {
        role: Role::Cluster,
        group: "certificates.k8s.io",
        resource: "signers",
        name: "kubernetes.io/kube-apiserver-client",
        verbs: &["approve"],
    },
    // Approves the serving certificates of virtual kubelets.
    Rights {
        role: Role::Cluster,
        group: "certificates.k8s.io",
        resource: "signers",
        name: "kubernetes.io/kubelet-serving",
        verbs: &["approve"],
    },
    // Reads exports and imports, whose kinds may be missing.
    read("serviceexports"),
    read("serviceimports"),
    // The runtime writes Events.
    Rights {
        role: Role::Cluster,
        group: "events.k8s.io",
        resource: "events",
        name: "",
        verbs: &["create", "patch"],
    },
    // The runtime elects a leader.
    Rights {
        role: Role::Namespace,
        group: "coordination.k8s.io",
        resource: "leases",
        name: "",
        verbs: &["create"],
    },
    Rights {
        role: Role::Namespace,
        group: "coordination.k8s.io",
        resource: "leases",
        name: "liqo-controller-manager",
        verbs: &["get", "list", "watch", "update"],
    },
    // Owns what it creates in its namespace.
    Rights {
        role: Role::Namespace,
        group: "apps",
        resource: "deployments",
        name: "liqo-controller-manager",
        verbs: &["get"],
    },
];

/// Returns the right to bind a ClusterRole.
const fn bind(role: &'static str) -> Rights {
    Rights {
        role: Role::Cluster,
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        name: role,
        verbs: &["bind"],
    }
}

/// Returns the right to read a kind of the Multi-Cluster Services API.
const fn read(resource: &'static str) -> Rights {
    Rights {
        role: Role::Cluster,
        group: "multicluster.x-k8s.io",
        resource,
        name: "",
        verbs: &["get", "list", "watch"],
    }
}

#[test]
fn the_charts_roles_are_the_rights_that_the_manager_needs() {
    let mut settings = network::settings();
    settings.deployment_image = Some("pause".to_owned());

    let kubelets = offloading::Kubelets {
        namespace: settings.namespace.clone(),
        tenant_namespaces: Vec::new(),
        image: "virtual-kubelet".to_owned(),
    };

    let mut registrations = network::registrations(&settings);
    registrations.extend(authentication::registrations(&settings.namespace));
    registrations.extend(offloading::registrations(Some(&kubelets)));
    registrations.extend(namespace::registrations(&settings.namespace));
    registrations.extend(shadow_pod::registrations(&settings.namespace));
    registrations.extend(node_failure::registrations());
    registrations.extend(shadow_endpoint_slice::registrations(&settings.namespace));
    registrations.extend(endpoint_ip::registrations());
    registrations.extend(multicluster::registrations(&settings.namespace));
    registrations.extend(replication::registrations(&settings.namespace));
    registrations.extend(daemon_set::registrations());
    let servers = [&certificates::WEBHOOKS, &certificates::METRIC_AGENT];
    registrations.extend(certificates::registrations(&settings.namespace, &servers));
    registrations.extend(webhook::registrations());
    registrations.extend(foreign_cluster::registrations(&foreign_cluster::Settings {
        namespace: settings.namespace.clone(),
        tenant_namespaces: Vec::new(),
        has_authentication: true,
    }));

    // Their controllers run in one process.
    Cache::fixture(&registrations).unwrap();
    let account = "liqo-controller-manager";
    assert_exact(account, &settings.namespace, &registrations, &FURTHER);
}
