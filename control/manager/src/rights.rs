//! Compares the roles of the chart with the rights that the registrations and the runtime need.

use crate::{
    authentication, foreign_cluster, namespace, network, offloading, replication,
    shadow_endpoint_slice,
};
use chart_tests::roles::{Rights, Role, assert_exact};
use control_runtime::Cache;

/// Rights of requests that no registration is about.
const FURTHER: [Rights; 11] = [
    // Gives itself the rights of a tenant namespace, by a RoleBinding there.
    Rights {
        role: Role::Cluster,
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        name: "liqo-controller-manager-tenant",
        verbs: &["bind"],
    },
    // Gives consumers their rights.
    Rights {
        role: Role::Cluster,
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        name: "liqo-remote-controlplane",
        verbs: &["bind"],
    },
    Rights {
        role: Role::Cluster,
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        name: "liqo-virtual-kubelet-remote-clusterwide",
        verbs: &["bind"],
    },
    // Gives itself, and the virtual kubelets of both sides, their rights in offloaded namespaces.
    Rights {
        role: Role::Cluster,
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        name: "liqo-controller-manager-remote-namespace",
        verbs: &["bind"],
    },
    Rights {
        role: Role::Cluster,
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        name: "liqo-virtual-kubelet-remote",
        verbs: &["bind"],
    },
    Rights {
        role: Role::Cluster,
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        name: "liqo-virtual-kubelet-local-namespace",
        verbs: &["bind"],
    },
    // Approves the certificates of consumers.
    Rights {
        role: Role::Cluster,
        group: "certificates.k8s.io",
        resource: "signers",
        name: "kubernetes.io/kube-apiserver-client",
        verbs: &["approve"],
    },
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

#[test]
fn the_charts_roles_are_the_rights_that_the_manager_needs() {
    let mut settings = network::settings();
    settings.deployment_image = Some("pause".to_owned());

    let mut registrations = network::registrations(&settings);
    registrations.extend(authentication::registrations(&settings.namespace));
    registrations.extend(offloading::registrations());
    registrations.extend(namespace::registrations(&settings.namespace));
    registrations.extend(shadow_endpoint_slice::registrations(&settings.namespace));
    registrations.extend(replication::registrations(&settings.namespace));
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
