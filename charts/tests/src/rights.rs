//! Tests that all rights in the chart's roles are documented, and that no role allows its holder to
//! obtain further rights.

use crate::roles::{Right, combined, objects, of_role as rights};
use serde_json::Value;
use std::collections::BTreeSet;

/// Documentation page that lists each right with its reason.
const PAGE: &str = include_str!("../../../docs/security.md");

/// Namespace with which the golden files are rendered.
const NAMESPACE: &str = "liqo-system";

#[test]
fn the_security_page_lists_every_right_and_no_other() {
    let roles: Vec<_> = objects()
        .into_iter()
        .filter(|it| matches!(it["kind"].as_str(), Some("ClusterRole" | "Role")))
        .collect();
    assert!(roles.len() >= 7, "{}", roles.len());

    for role in &roles {
        let heading = heading(role);
        let granted = rights(role);
        let documented = table(&heading);

        let missing: Vec<_> = granted.difference(&documented).collect();
        let stale: Vec<_> = documented.difference(&granted).collect();
        assert!(
            missing.is_empty() && stale.is_empty(),
            "{heading} granted and not documented {missing:#?}, documented and not granted {stale:#?}"
        );
    }
    let headings: BTreeSet<_> = roles.iter().map(heading).collect();
    let mut documented = PAGE
        .lines()
        .filter(|line| line.starts_with("ClusterRole `") || line.starts_with("Role `"));
    assert!(documented.all(|line| headings.iter().any(|it| line.starts_with(it))));
}

#[test]
fn no_role_reads_secrets_beyond_liqos_namespace_tenant_namespaces_and_offloaded_namespaces() {
    let cluster_roles = objects()
        .into_iter()
        .filter(|it| it["kind"] == "ClusterRole");
    let readers: Vec<_> = cluster_roles
        .filter(|role| {
            rights(role)
                .iter()
                .any(|(_, resource, ..)| is_secret(resource))
        })
        .map(|role| text(&role["metadata"]["name"]))
        .collect();

    let expected = [
        "liqo-virtual-kubelet-remote",
        "liqo-virtual-kubelet-local-namespace",
        "liqo-peering-user-tenant-ns",
        "liqo-controller-manager-tenant",
    ];
    assert_eq!(readers, expected);
    let bound = objects().into_iter().filter(|it| {
        text(&it["kind"]).ends_with("RoleBinding")
            && readers.contains(&text(&it["roleRef"]["name"]))
    });
    assert_eq!(bound.count(), 0, "the chart binds the roles to no account");
}

#[test]
fn the_gateway_reads_the_one_secret_with_its_keys() {
    let role = rights(&object("Role", "liqo-gateway"));
    let secrets: BTreeSet<_> = role
        .iter()
        .filter(|(_, resource, ..)| is_secret(resource))
        .map(|(_, _, name, verb)| (name.as_str(), verb.as_str()))
        .collect();

    let keys = "liqo-gateway-keys";
    assert_eq!(
        secrets,
        [(keys, "get"), (keys, "list"), (keys, "watch")].into()
    );
}

/// Without a token, the pod has the rights of an anonymous user.
#[test]
fn the_proxy_has_no_token() {
    let pod = &object("Deployment", "liqo-proxy")["spec"]["template"]["spec"];

    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(
        pod["serviceAccountName"],
        Value::Null,
        "the default account"
    );
    assert_eq!(pod["volumes"], Value::Null, "no projected token");
    let context = &pod["containers"][0]["securityContext"];
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["readOnlyRootFilesystem"], true);
    assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]));
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["hostNetwork"], Value::Null);
}

/// The key of the authority would let a process that reads it serve as any server of the Service.
#[test]
fn the_metric_agent_has_no_key_of_its_authority_and_its_api_is_verified() {
    let pod = &object("Deployment", "liqo-metric-agent")["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().unwrap();
    assert_eq!(volumes.len(), 1);
    let items = volumes[0]["secret"]["items"].as_array().unwrap();
    let keys: Vec<_> = items.iter().map(|it| text(&it["key"])).collect();
    assert_eq!(keys, ["tls.crt", "tls.key"]);
    let context = &pod["containers"][0]["securityContext"];
    assert_eq!(context["readOnlyRootFilesystem"], true);
    assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]));
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["hostNetwork"], Value::Null);

    let api = object("APIService", "v1beta1.metrics.liqo.io");
    assert_eq!(api["spec"]["insecureSkipTLSVerify"], Value::Null);
    assert_eq!(api["spec"]["service"]["name"], "liqo-metric-agent");
    assert_eq!(api["spec"]["groupPriorityMinimum"], 1000);
    assert_eq!(api["spec"]["versionPriority"], 15);
}

/// `liqoctl` and upstream's controllers find the Service by this label.
#[test]
fn the_service_of_the_proxy_has_upstreams_labels_and_port() {
    let upstream = include_str!("../golden/upstream.yaml");
    let mut documents = upstream
        .split("\n---\n")
        .filter_map(|text| serde_saphyr::from_str::<Value>(text).ok());
    let service = documents
        .find(|it| it["kind"] == "Service" && it["metadata"]["name"] == "liqo-proxy")
        .expect("the values of upstream enable the proxy");

    let labels = &service["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/name"], "proxy");
    assert_eq!(labels["app.kubernetes.io/component"], "networking");
    assert_eq!(labels["app.kubernetes.io/instance"], "liqo-proxy");
    assert_eq!(service["spec"]["ports"][0]["port"], 8118);
    assert_eq!(service["spec"]["type"], "ClusterIP");
}

#[test]
fn no_role_holds_rights_that_grant_rights() {
    for role in objects()
        .iter()
        .filter(|it| text(&it["kind"]).ends_with("Role"))
    {
        for (group, resource, name, verb) in rights(role) {
            let right = format!(
                "{}: {verb} {group}/{resource} {name}",
                role["metadata"]["name"]
            );
            assert!(
                !["escalate", "impersonate", "*"].contains(&&*verb),
                "{right}"
            );
            assert!(
                resource != "nodes/proxy" && resource != "*" && group != "*",
                "{right}"
            );
            if verb == "bind" {
                let limited = [
                    "liqo-controller-manager-tenant",
                    "liqo-remote-controlplane",
                    "liqo-virtual-kubelet-authentication",
                    "liqo-virtual-kubelet-local",
                    "liqo-virtual-kubelet-node-lease",
                    "liqo-virtual-kubelet-remote-clusterwide",
                    "liqo-controller-manager-remote-namespace",
                    "liqo-virtual-kubelet-remote",
                    "liqo-virtual-kubelet-remote-extra",
                    "liqo-virtual-kubelet-local-namespace",
                    "liqo-virtual-kubelet-local-extra",
                    "liqo-virtual-kubelet-tenant",
                ];
                assert!(limited.contains(&name.as_str()), "{right}");
            }
        }
    }
}

#[test]
fn every_policy_denies() {
    let policies = names("ValidatingAdmissionPolicy");
    let expected = [
        "liqo-cluster-ids",
        "liqo-consumer-bindings",
        "liqo-consumer-finalizers",
        "liqo-consumer-limits",
        "liqo-consumer-objects",
        "liqo-consumer-reflection",
        "liqo-consumer-tokens",
        "liqo-controller-manager-bindings",
        "liqo-controller-manager-namespaces",
        "liqo-controller-manager-nodes",
        "liqo-controller-manager-secrets",
        "liqo-controller-manager-services",
        "liqo-ip-services",
        "liqo-namespace-offloadings",
        "liqo-offloading-bindings",
        "liqo-peering-user-objects",
        "liqo-peering-user-secrets",
        "liqo-shadow-pods",
        "liqo-tenant-condition",
        "liqo-tenant-namespaces",
        "liqo-tenant-policies",
        "liqo-virtual-kubelet-bindings",
        "liqo-virtual-kubelet-objects",
    ];
    assert_eq!(policies, expected.map(str::to_owned).into());
    for name in policies {
        let policy = object("ValidatingAdmissionPolicy", &name);
        let binding = object("ValidatingAdmissionPolicyBinding", &name);
        assert_eq!(policy["spec"]["failurePolicy"], "Fail", "{name}");
        assert_eq!(binding["spec"]["policyName"], Value::from(name));
        assert_eq!(
            binding["spec"]["validationActions"],
            serde_json::json!(["Deny"])
        );
        assert!(
            binding["spec"]["matchResources"].is_null(),
            "the binding exempts namespaces"
        );
    }
}

#[test]
fn the_managers_writes_of_services_and_endpoint_slices_need_its_label() {
    let policy = object(
        "ValidatingAdmissionPolicy",
        "liqo-controller-manager-services",
    );

    let rules = policy["spec"]["matchConstraints"]["resourceRules"].as_array();
    let mut resources = BTreeSet::new();
    for rule in rules.into_iter().flatten() {
        let operations = serde_json::json!(["CREATE", "UPDATE", "DELETE"]);
        assert_eq!(rule["operations"], operations, "{rule}");
        resources.extend(rule["resources"].as_array().into_iter().flatten().map(text));
    }
    assert_eq!(
        resources,
        ["endpointslices", "services"].map(str::to_owned).into()
    );
    let granted = rights(&object("ClusterRole", "liqo-controller-manager"));
    let verbs = granted
        .iter()
        .filter(|(_, resource, ..)| resources.contains(resource))
        .map(|(.., verb)| verb.as_str());
    let covered: BTreeSet<_> = verbs.collect();
    assert_eq!(
        covered,
        ["create", "delete", "get", "list", "patch", "watch"].into(),
        "a further verb needs a further operation of the policy"
    );
    assert!(policy.to_string().contains("'liqo.io/managed'"));
}

#[test]
fn every_program_and_policy_gets_the_tenant_namespaces_of_the_values() {
    let flag = "--tenant-namespaces=peers,peers-of-old";
    let manager = object("Deployment", "liqo-controller-manager").to_string();
    let policy = object(
        "ValidatingAdmissionPolicy",
        "liqo-controller-manager-bindings",
    )
    .to_string();

    assert!(manager.contains(flag));
    assert!(policy.contains("['peers', 'peers-of-old']"), "{policy}");
    for (kind, name) in [("Deployment", "liqo-gateway"), ("DaemonSet", "liqo-fabric")] {
        let pod = object(kind, name);
        let containers = pod["spec"]["template"]["spec"]["containers"].as_array();
        let env = containers
            .into_iter()
            .flatten()
            .flat_map(|it| it["env"].as_array());
        let mut env = env.flatten();
        let variable = env
            .find(|it| it["name"] == "LIQO_TENANT_NAMESPACES")
            .unwrap();
        assert_eq!(variable["value"], "peers,peers-of-old", "{name}");
    }
}

#[test]
fn the_policy_for_ips_contains_the_clusters_cidrs() {
    let policy = object("ValidatingAdmissionPolicy", "liqo-ip-services").to_string();

    for (first, end) in [
        (0x0af4_0000_u32, 0x0af5_0000_u32), // 10.244.0.0/16
        (0x0af5_0000, 0x0af6_0000),         // 10.245.0.0/16
        (0x0a60_0000, 0x0a70_0000),         // 10.96.0.0/12
        (0x0a47_0000, 0x0a48_0000),         // 10.71.0.0/16
        (0x0a51_0000, 0x0a52_0000),         // 10.81.0.0/16
    ] {
        let range = format!("variables.address >= {first} && variables.address < {end}");
        assert!(policy.contains(&range), "{range}");
    }
}

fn object(kind: &str, name: &str) -> Value {
    let mut objects = objects().into_iter();
    let found = objects.find(|it| {
        let namespace = &it["metadata"]["namespace"];
        it["kind"] == kind
            && it["metadata"]["name"] == name
            && (namespace.is_null() || *namespace == NAMESPACE)
    });
    found.unwrap_or_else(|| panic!("the chart renders no {kind} {name}"))
}

fn names(kind: &str) -> BTreeSet<String> {
    let objects = objects().into_iter().filter(|it| it["kind"] == kind);
    objects.map(|it| text(&it["metadata"]["name"])).collect()
}

/// Returns the start of the line that precedes the role's table in [`PAGE`].
fn heading(role: &Value) -> String {
    let [kind, name] = [&role["kind"], &role["metadata"]["name"]].map(text);

    format!("{kind} `{name}`, ")
}

/// Returns the rights in the table of [`PAGE`] that follows a heading; none if another heading follows it. Administrators add
/// rights to such a role.
fn table(heading: &str) -> BTreeSet<Right> {
    let mut lines = PAGE.lines().skip_while(|line| !line.starts_with(heading));
    lines.next();
    let mut rights = BTreeSet::new();
    let is_heading = |line: &str| {
        let mut headings = ["#", "ClusterRole `", "Role `"].into_iter();
        headings.any(|heading| line.starts_with(heading))
    };
    let rows = lines
        .take_while(|line| !is_heading(line))
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let quoted = |cell: &str| {
            let quoted = cell.split('`').skip(1).step_by(2);
            quoted.map(str::to_owned).collect::<Vec<_>>()
        };
        let group = match cells[1] {
            "core" => String::new(),
            group => group.trim_matches('`').to_owned(),
        };
        let verbs: Vec<_> = cells[4].split(' ').map(str::to_owned).collect();
        let (resources, names) = (quoted(cells[2]), quoted(cells[3]));
        rights.extend(combined(&[group], &resources, &names, &verbs));
    }

    rights
}

fn is_secret(resource: &str) -> bool {
    resource == "secrets" || resource == "*"
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
