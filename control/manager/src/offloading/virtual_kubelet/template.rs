//! The spec of a VirtualNode with the values of its options, and its `spec.template`.

use super::arguments::{arguments, metrics};
use super::image::is_upstream;
use super::options::port;
use super::overrides::{CONTAINER, Overrides, record};
use super::source::Source;
use control_api::annotations::{API_SERVER_ADDRESSES, RESERVED_CIDRS, TEMPLATE_VALUES};
use control_api::{VirtualNode, VirtualNodeSpec, labels};
use serde_json::{Value, json};

/// Prefix of the names of Deployments.
pub(super) const PREFIX: &str = "vk-";

/// Port of `/healthz` and `/readyz`, at which this project's virtual kubelet serves them without a flag.
const HEALTH_PORT: u16 = 8080;

/// Directory with the kubeconfig for the provider, from which this project's virtual kubelet reads it without a flag.
const KUBECONFIG_PATH: &str = "/var/run/secrets/liqo.io/kubeconfig";

/// User and group of the virtual kubelet, as in the images of this project.
const USER: i64 = 65532;

/// Fills the spec of a VirtualNode: what it leaves to the options, and its `spec.template`.
pub(super) fn complete(node: &mut VirtualNode, source: &Source<'_>) {
    let options = &source.options;
    let spec = &mut node.spec;
    spec.create_node.get_or_insert(options.create_node);
    spec.disable_network_check
        .get_or_insert(options.disable_network_check);
    let lists = [
        &options.annotations_not_reflected,
        &options.labels_not_reflected,
    ];
    if lists.iter().any(|list| !list.is_empty()) {
        let patch = spec.offloading_patch.get_or_insert_default();
        add(&mut patch.annotations_not_reflected, lists[0]);
        add(&mut patch.labels_not_reflected, lists[1]);
    }
    let filled = template(source, &node.spec, &Overrides::default());
    let overrides = Overrides::of(node, &filled);
    let mut template = template(source, &node.spec, &overrides);
    overrides.put(&mut template, &fixed_labels(source));
    harden(&mut template, source);
    node.spec.template = serde_json::from_value(template).ok();
    let annotations = node.metadata.annotations.get_or_insert_default();
    annotations.insert(TEMPLATE_VALUES.to_owned(), record(&filled));
    // No arguments: a change must not restart the virtual kubelet.
    let lists = [
        (RESERVED_CIDRS, &source.reserved),
        (API_SERVER_ADDRESSES, &source.api_servers),
    ];
    for (annotation, values) in lists {
        let list = Vec::from_iter(values.iter().copied()).join(",");
        match list.as_str() {
            "" => annotations.remove(annotation),
            _ => annotations.insert(annotation.to_owned(), list),
        };
    }
}

/// Appends the items that a list lacks.
fn add(list: &mut Vec<String>, items: &[String]) {
    for item in items {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

/// Returns the labels of the Deployment and its pods by which its selector finds the pods.
pub(super) fn fixed_labels(source: &Source<'_>) -> Value {
    json!({
        labels::OFFLOADING_COMPONENT: labels::OFFLOADING_COMPONENT_VIRTUAL_KUBELET,
        labels::REMOTE_CLUSTER_ID: source.peer,
        labels::VIRTUAL_NODE: source.key.name,
    })
}

/// Returns the template that upstream's webhook creates.
fn template(source: &Source<'_>, spec: &VirtualNodeSpec, overrides: &Overrides) -> Value {
    let options = &source.options;
    let fixed = fixed_labels(source);
    let mut labels = json!(options.extra_labels);
    if let (Some(labels), Some(fixed)) = (labels.as_object_mut(), fixed.as_object()) {
        labels.extend(fixed.clone());
    }
    let mut template = json!({
        "metadata": {
            "name": format!("{PREFIX}{}", source.key.name),
            "namespace": source.key.namespace,
            "labels": labels,
        },
        "spec": {
            "replicas": options.replicas,
            // Without the extra labels of upstream's, because a selector is immutable and the options are not.
            "selector": {"matchLabels": fixed},
            "strategy": {},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [container(source, spec, overrides)],
                    "serviceAccountName": source.key.name,
                },
            },
        },
    });
    if !options.extra_annotations.is_empty() {
        template["metadata"]["annotations"] = json!(options.extra_annotations);
        template["spec"]["template"]["metadata"]["annotations"] = json!(options.extra_annotations);
    }
    let pod = &mut template["spec"]["template"]["spec"];
    if !options.tolerations.is_empty() {
        pod["tolerations"] = json!(options.tolerations);
    }
    if !options.image_pull_secrets.is_empty() {
        pod["imagePullSecrets"] = json!(options.image_pull_secrets);
    }

    template
}

fn container(source: &Source<'_>, spec: &VirtualNodeSpec, overrides: &Overrides) -> Value {
    let options = &source.options;
    let of_pod = |name: &str, path: &str| {
        json!({
            "name": name,
            "valueFrom": {"fieldRef": {"fieldPath": path}},
        })
    };
    let mut container = json!({
        "name": CONTAINER,
        "image": options.container_image,
        "command": ["/usr/bin/virtual-kubelet"],
        "args": arguments(source, spec, overrides),
        "env": [
            of_pod("POD_IP", "status.podIP"),
            of_pod("POD_NAME", "metadata.name"),
            of_pod("POD_NAMESPACE", "metadata.namespace"),
            {"name": "VIRTUALNODE_NAME", "value": source.key.name},
        ],
        "resources": resources(options.resources.as_ref()),
    });
    if let Some(policy) = &options.pull_policy {
        container["imagePullPolicy"] = json!(policy);
    }
    let (is_enabled, address) = metrics(options, overrides);
    if let Some(port) = port(address).filter(|_| is_enabled) {
        container["ports"] = json!([{"containerPort": port, "name": "metrics", "protocol": "TCP"}]);
    }

    container
}

/// Returns resources without empty maps, which the API server removes.
fn resources(resources: Option<&impl serde::Serialize>) -> Value {
    let mut resources = serde_json::to_value(resources).unwrap_or_default();
    match resources.as_object_mut() {
        Some(fields) => fields.retain(|_, value| value.as_object().is_none_or(|it| !it.is_empty())),
        None => resources = json!({}),
    }

    resources
}

/// Adds to the template of an image of this project what upstream's images do not support: probes, the kubeconfig as a
/// volume instead of the right to read Secrets, and a security context for the profile `restricted` of Pod Security.
fn harden(template: &mut Value, source: &Source<'_>) {
    let pod = &mut template["spec"]["template"]["spec"];
    let image = pod["containers"][0]["image"].as_str().unwrap_or_default();
    if is_upstream(image) {
        return;
    }
    let probe = |path: &str, period: u8, timeout: u8, failures: u16| {
        json!({
            "httpGet": {"path": path, "port": "health"},
            "periodSeconds": period,
            "timeoutSeconds": timeout,
            "failureThreshold": failures,
        })
    };
    let container = &mut pod["containers"][0];
    let port = json!({"containerPort": HEALTH_PORT, "name": "health", "protocol": "TCP"});
    match container["ports"].as_array_mut() {
        Some(ports) => ports.push(port),
        None => container["ports"] = json!([port]),
    }
    // One hour, because a process that waits for the API server or the provider needs no restart.
    container["startupProbe"] = probe("/healthz", 1, 1, 3600);
    container["livenessProbe"] = probe("/healthz", 10, 5, 6);
    container["readinessProbe"] = probe("/readyz", 2, 2, 3);
    container["securityContext"] = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
    });
    container["volumeMounts"] =
        json!([{"name": "kubeconfig", "mountPath": KUBECONFIG_PATH, "readOnly": true}]);
    // The virtual kubelet reports a Secret that is missing, and waits for it.
    let secret = json!({"secretName": source.secret, "optional": true});
    pod["volumes"] = json!([{"name": "kubeconfig", "secret": secret}]);
    pod["securityContext"] = json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
}
