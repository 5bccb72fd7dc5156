//! Compares the role of the chart with the rights that the agent needs.

use crate::metric_agent::registrations;
use chart_tests::roles::{Rights, Role, assert_exact};
use control_runtime::Scope;

/// Rights of requests that no registration is about.
const FURTHER: [Rights; 2] = [
    // Kubelets check this right, with a SubjectAccessReview.
    Rights {
        role: Role::Cluster,
        group: "",
        resource: "nodes/metrics",
        name: "",
        verbs: &["get"],
    },
    Rights {
        role: Role::Cluster,
        group: "authorization.k8s.io",
        resource: "subjectaccessreviews",
        name: "",
        verbs: &["create"],
    },
];

#[test]
fn the_charts_role_is_the_rights_that_the_agent_needs() {
    let mut registrations = registrations();
    // The rights in kube-system are those of a Role that Kubernetes creates.
    registrations.retain(|it| it.scope == Scope::All);
    assert_eq!(registrations.len(), 3);

    assert_exact("liqo-metric-agent", "liqo", &registrations, &FURTHER);
}
