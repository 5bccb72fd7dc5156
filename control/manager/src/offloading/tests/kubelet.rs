//! A consumer with virtual kubelets, and the Deployments that it creates.

use super::side::{MOMENT, Side, key, settings};
use super::{golden, without_identity};
use crate::network::covers;
use crate::offloading::Kubelets;
use control_api::{Network, ResourceSlice, VirtualNode, VkOptionsTemplate};
use control_runtime::Key;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use serde_json::{Value, json};

mod ending;
mod faults;
mod hostile;
mod kubeconfigs;
mod overrides;
mod serving;
mod template;

/// Image of this project.
const IMAGE: &str = "registry.example/liqo/virtual-kubelet:v1";

/// Objects of upstream's installation.
fn upstream(object: &str) -> Value {
    let objects: Value = serde_json::from_str(include_str!("kubelet.json")).unwrap();
    objects[object].clone()
}

fn milan() -> Key {
    key("milan", "milan")
}

fn vk() -> Key {
    key("milan", "vk-milan")
}

fn cluster_binding() -> Key {
    Key::cluster("liqo-node-milan")
}

fn tenant_binding() -> Key {
    key("milan", "liqo-virtual-kubelet-tenant")
}

fn lease_binding() -> Key {
    Key::new("kube-node-lease", "liqo-virtual-kubelet-node-lease")
}

fn authentication_binding() -> Key {
    Key::new("kube-system", "liqo-virtual-kubelet-authentication")
}

fn default_options() -> Key {
    Key::new("liqo", "virtual-kubelet-default")
}

/// Returns `rome` with virtual kubelets, and without a slice.
fn empty(seed: u64) -> Side {
    let mut settings = settings();
    settings.kubelets = Some(Kubelets {
        namespace: "liqo".to_owned(),
        tenant_namespaces: Vec::new(),
        image: IMAGE.to_owned(),
    });
    let mut rome = Side::with_settings(seed, settings);
    for namespace in ["liqo", "kube-node-lease", "kube-system", "shop"] {
        rome.put::<Namespace>(json!({"metadata": {"name": namespace}}));
    }
    rome.put::<ConfigMap>(json!({
        "metadata": {
            "name": "liqo-clusterid-configmap",
            "namespace": "liqo",
            "labels": {"app.kubernetes.io/name": "clusterid-configmap"},
        },
        "data": {"CLUSTER_ID": "rome"},
    }));
    rome.put::<Network>(json!({
        "apiVersion": "ipam.liqo.io/v1alpha1",
        "kind": "Network",
        "metadata": {
            "name": "pod-cidr",
            "namespace": "liqo",
            "labels": {"ipam.liqo.io/network-type": "pod-cidr"},
        },
        "spec": {"cidr": "10.244.0.0/16"},
        "status": {"cidr": "10.244.0.0/16"},
    }));
    put_peer(&mut rome, "milan");

    rome
}

/// Creates the tenant namespace of a peer, in which the manager has rights.
fn put_peer(rome: &mut Side, peer: &str) {
    rome.put_peer(peer);
    rome.put_identity(peer, "milan", true);
    rome.put::<RoleBinding>(json!({
        "metadata": {"name": "liqo-controller-manager-tenant", "namespace": format!("liqo-tenant-{peer}")},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "liqo-controller-manager-tenant",
        },
        "subjects": [
            {"kind": "ServiceAccount", "name": "liqo-controller-manager", "namespace": "liqo"},
        ],
    }));
}

/// Returns `rome` with the virtual node of a slice that `milan` has accepted, with the options of upstream's chart and an
/// image of this project.
fn rome(seed: u64) -> Side {
    let mut rome = empty(seed);
    let mut options = upstream("vkOptionsTemplate");
    options["spec"]["containerImage"] = json!(IMAGE);
    rome.put::<VkOptionsTemplate>(options);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);
    assert_eq!(rome.events(), [""; 0]);

    rome
}

/// Starts the virtual kubelet, as Kubernetes and the virtual kubelet do: a pod, an available replica, and a Node.
fn start(rome: &mut Side) {
    rome.put::<Pod>(json!({
        "metadata": {
            "name": "vk-milan-1",
            "namespace": "liqo-tenant-milan",
            "labels": {
                "offloading.liqo.io/component": "virtual-kubelet",
                "liqo.io/remote-cluster-id": "milan",
                "liqo.io/virtual-node": "milan",
            },
        },
        "spec": {"nodeName": "worker", "containers": []},
    }));
    rome.edit::<Deployment>(&vk(), |it| it["status"] = json!({"availableReplicas": 1}));
    let labels = json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "milan"});
    rome.put_node("milan", &labels);
    rome.run(MOMENT);
}

/// Returns the container of the Deployment.
fn container(rome: &mut Side) -> Value {
    let spec = rome.spec::<Deployment>(&vk());
    spec["template"]["spec"]["containers"][0].clone()
}

fn arguments(rome: &mut Side) -> Vec<String> {
    let container = container(rome);
    let arguments = container["args"].as_array().unwrap().iter();
    arguments
        .map(|it| it.as_str().unwrap().to_owned())
        .collect()
}

/// Exceptions: the annotation that records which values of `spec.template` the controller has filled in, and the status.
#[test]
fn the_virtual_node_with_its_template_equals_upstreams() {
    let mut rome = empty(1);
    rome.put::<VkOptionsTemplate>(upstream("vkOptionsTemplate"));
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    let mut node = rome.object::<VirtualNode>(&milan()).unwrap();
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=Creating", "Node=Creating"]
    );
    node.as_object_mut().unwrap().remove("status");
    let annotations = node["metadata"].as_object_mut().unwrap();
    let annotations = annotations.remove("annotations").unwrap();
    let keys: Vec<_> = annotations.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["liqo.io/reserved-cidrs", "liqo.io/virtual-kubelet-values"]
    );
    assert_eq!(without_identity(node), upstream("virtualNode"));
}

/// Exceptions: the annotation with the digest of the fields, and the defaults of the API server.
#[test]
fn the_deployment_equals_upstreams() {
    let mut rome = empty(1);
    rome.put::<VkOptionsTemplate>(upstream("vkOptionsTemplate"));
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    let expected = upstream("deployment");
    let mut deployment = without_identity(rome.object::<Deployment>(&vk()).unwrap());
    let annotations = deployment["metadata"]["annotations"]
        .as_object_mut()
        .unwrap();
    annotations.remove("liqo.io/virtual-kubelet-hash").unwrap();
    assert!(covers(&expected, &deployment), "{deployment:#}");
    for path in [
        "/metadata/labels",
        "/spec/selector",
        "/spec/template/metadata",
        "/spec/template/spec/containers/0/args",
        "/spec/template/spec/containers/0/ports",
    ] {
        assert_eq!(deployment.pointer(path), expected.pointer(path), "{path}");
    }
}

#[test]
fn account_and_cluster_role_binding_equal_upstreams() {
    let mut rome = rome(1);

    let account = rome.object::<ServiceAccount>(&milan()).unwrap();
    assert_eq!(without_identity(account), upstream("serviceAccount"));
    let binding = rome
        .object::<ClusterRoleBinding>(&cluster_binding())
        .unwrap();
    assert_eq!(without_identity(binding), upstream("clusterRoleBinding"));
}

#[test]
fn a_virtual_kubelet_has_rights_in_its_tenant_namespace_and_to_leases_of_nodes() {
    let mut rome = rome(1);

    for key in [tenant_binding(), lease_binding(), authentication_binding()] {
        let binding = rome.object::<RoleBinding>(&key).unwrap();
        assert_eq!(binding["roleRef"]["kind"], "ClusterRole");
        assert_eq!(binding["roleRef"]["name"], *key.name);
        let subject =
            json!({"kind": "ServiceAccount", "name": "milan", "namespace": "liqo-tenant-milan"});
        assert_eq!(binding["subjects"], json!([subject]));
    }
}

#[test]
fn a_pod_of_this_project_meets_the_restricted_profile_and_has_probes_and_its_kubeconfig() {
    let mut rome = rome(1);

    let pod = rome.spec::<Deployment>(&vk())["template"]["spec"].clone();
    let context = &pod["securityContext"];
    assert_eq!(context["runAsNonRoot"], true);
    assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0];
    let context = &container["securityContext"];
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["readOnlyRootFilesystem"], true);
    assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
    for (probe, path) in [
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ] {
        let get = &container[probe]["httpGet"];
        assert_eq!(*get, json!({"path": path, "port": "health"}), "{probe}");
    }
    let ports = container["ports"].as_array().unwrap();
    let named: Vec<_> = ports
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(named, ["metrics", "health"]);
    let secret = &pod["volumes"][0]["secret"];
    assert_eq!(secret["secretName"], "kubeconfig-resourceslice-milan");
    assert_eq!(container["volumeMounts"][0]["readOnly"], true);
}

#[test]
fn the_conditions_follow_deployment_and_node() {
    let mut rome = rome(1);
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=Creating", "Node=Creating"]
    );

    start(&mut rome);
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=Running", "Node=Running"]
    );
    let times = |rome: &mut Side| {
        let node = rome.object::<VirtualNode>(&milan()).unwrap();
        node["status"]["conditions"][1]["lastTransitionTime"].clone()
    };
    let before = times(&mut rome);
    rome.run(10 * MOMENT);
    rome.edit::<Deployment>(&vk(), |it| it["status"] = json!({}));
    rome.run(MOMENT);
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=Creating", "Node=Running"]
    );
    assert_eq!(times(&mut rome), before);
    rome.remove::<Node>(&Key::cluster("milan"));
    rome.run(MOMENT);
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=Creating", "Node=Creating"]
    );
}

#[test]
fn each_object_is_written_once() {
    let mut rome = rome(1);

    assert_eq!(rome.requests::<VirtualNode>(), 2, "creation and status");
    assert_eq!(rome.requests::<Deployment>(), 1);
    assert_eq!(rome.requests::<ServiceAccount>(), 1);
    assert_eq!(rome.requests::<ClusterRoleBinding>(), 1);
    assert_eq!(rome.requests::<RoleBinding>(), 3);
    assert_eq!(rome.redundant().len(), 0, "{:?}", rome.redundant());
    assert_eq!(rome.replanned().len(), 0);
}
