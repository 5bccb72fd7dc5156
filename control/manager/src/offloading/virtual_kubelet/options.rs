//! The options of a virtual kubelet: a VkOptionsTemplate, or the defaults of the chart.
//!
//! Users write VkOptionsTemplates. Invalid and surplus values are left out, so that one wrong value does not prevent the
//! virtual kubelet, and an Event names them.

use super::image::{is_image, is_upstream};
use crate::offloading::bounds::{Bounds, Reason, check_key, check_label};
use crate::offloading::objects::{Local, Refusal};
use control_api::offloading::vk_options_template::ReflectorConfig;
use control_api::{ReflectedResource, VirtualNode, VkOptionsTemplate, VkOptionsTemplateSpec};
use control_runtime::Key;
use std::collections::BTreeMap;

/// Name of the VkOptionsTemplate of VirtualNodes that refer to none, as in the chart.
const DEFAULT: &str = "virtual-kubelet-default";

/// Address of the metrics unless the options name another one.
const METRICS_ADDRESS: &str = ":5872";

/// Most replicas of one virtual kubelet. One of them works, the others are standbys.
const REPLICAS_MAX: i32 = 10;

/// Most workers of one reflector. The reflectors of this project need none, upstream's one for each concurrent object.
const WORKERS_MAX: i64 = 1000;

/// Longest value of an annotation, and longest argument.
const VALUE_LEN_MAX: usize = 1024;

/// The reflectors in the order of their flags, with their default number of workers, and whether they have a type.
pub(super) const REFLECTORS: [(&str, i64, bool); 9] = [
    ("pod", 10, false),
    ("service", 3, true),
    ("endpointslice", 10, false),
    ("ingress", 3, true),
    ("configmap", 3, true),
    ("secret", 3, true),
    ("serviceaccount", 3, false),
    ("persistentvolumeclaim", 3, false),
    ("event", 3, true),
];

/// Default type of a reflector: all objects but those with the annotation `liqo.io/skip-reflection`.
const DENY_LIST: &str = "DenyList";

/// Returns the key of the VkOptionsTemplate of a VirtualNode, with Liqo in `namespace`.
pub(in crate::offloading) fn key_of(node: &VirtualNode, namespace: &str) -> Key {
    let reference = node.spec.vk_options_template_ref.as_ref();
    let part = |part: Option<&String>, default: &str| {
        let part = part.filter(|part| !part.is_empty());
        part.map_or_else(|| default.to_owned(), Clone::clone)
    };
    let name = reference.and_then(|it| it.name.as_ref());
    let placed = reference.and_then(|it| it.namespace.as_ref());

    Key::new(part(placed, namespace), part(name, DEFAULT))
}

/// Returns the valid options of a VirtualNode. `image` is that of the defaults.
///
/// # Errors
///
/// Returns a refusal if it refers to a VkOptionsTemplate that does not exist.
pub(super) fn find(
    local: &Local<'_>,
    node: &VirtualNode,
    (namespace, image): (&str, &str),
    bounds: &mut Bounds<'_>,
) -> Result<VkOptionsTemplateSpec, Refusal> {
    let key = key_of(node, namespace);
    let named = local.options.get(&key);
    match named {
        Some(VkOptionsTemplate { spec, .. }) => Ok(bounded(spec, image, bounds)),
        None if key == Key::new(namespace, DEFAULT) => Ok(bounded(&defaults(), image, bounds)),
        None => {
            let message = format!(
                "spec.vkOptionsTemplateRef: VkOptionsTemplate {key} does not exist: create it, or remove the reference"
            );
            Err(("VkOptionsTemplateMissing", message))
        }
    }
}

/// Returns the options of upstream's chart.
fn defaults() -> VkOptionsTemplateSpec {
    VkOptionsTemplateSpec {
        create_node: true,
        extra_args: vec!["--enable-apiserver-support=true".to_owned()],
        metrics_enabled: true,
        replicas: Some(1),
        ..VkOptionsTemplateSpec::default()
    }
}

/// Returns options whose fields are valid and limited.
fn bounded(
    spec: &VkOptionsTemplateSpec,
    image: &str,
    bounds: &mut Bounds<'_>,
) -> VkOptionsTemplateSpec {
    let mut options = spec.clone();
    if !is_image(&spec.container_image) {
        options.container_image = image.to_owned();
        if !spec.container_image.is_empty() {
            bounds.leave_out("containerImage", &spec.container_image, "invalid image");
        }
    }
    options.replicas = Some(replicas(spec.replicas, bounds));
    options.metrics_address = Some(metrics_address(spec.metrics_address.as_deref(), bounds));
    options.pull_policy = pull_policy(spec.pull_policy.as_deref(), bounds);
    options.reflectors_config = reflectors(&spec.reflectors_config, bounds);
    options.reflected_resources = resources(&spec.reflected_resources, bounds);
    options.extra_args = arguments(&spec.extra_args, &options.container_image, bounds);
    options.extra_labels = bounds.map("extraLabels", &spec.extra_labels, |key, value| {
        check_label(key, value)
    });
    options.extra_annotations = bounds.map(
        "extraAnnotations",
        &spec.extra_annotations,
        |key, value: &String| check_annotation(key, value),
    );
    options.node_extra_labels =
        bounds.map("nodeExtraLabels", &spec.node_extra_labels, |key, value| {
            check_label(key, value)
        });
    options.node_extra_annotations = bounds.map(
        "nodeExtraAnnotations",
        &spec.node_extra_annotations,
        |key, value: &String| check_node_annotation(key, value),
    );
    options.labels_not_reflected = taken(
        "labelsNotReflected",
        &spec.labels_not_reflected,
        bounds,
        check_key,
    );
    options.annotations_not_reflected = taken(
        "annotationsNotReflected",
        &spec.annotations_not_reflected,
        bounds,
        check_key,
    );
    let secrets = spec.image_pull_secrets.iter();
    let secrets = secrets.map(|it| (it.name.as_str(), it));
    options.image_pull_secrets = bounds
        .take("imagePullSecrets", secrets, |name, _| check_key(name))
        .into_iter()
        .cloned()
        .collect();
    let tolerations = spec.tolerations.iter();
    let tolerations = tolerations.map(|it| (it.key.as_deref().unwrap_or_default(), it));
    options.tolerations = bounds
        .take("tolerations", tolerations, |key, _| {
            if key.is_empty() {
                return Ok(());
            }
            check_key(key)
        })
        .into_iter()
        .cloned()
        .collect();

    options
}

fn replicas(replicas: Option<i32>, bounds: &mut Bounds<'_>) -> i32 {
    match replicas {
        None => 1,
        Some(replicas) if (0..=REPLICAS_MAX).contains(&replicas) => replicas,
        Some(replicas) => {
            bounds.leave_out("replicas", &replicas.to_string(), "not between 0 and 10");
            1
        }
    }
}

fn metrics_address(address: Option<&str>, bounds: &mut Bounds<'_>) -> String {
    match address {
        Some(address) if port(address).is_some() => address.to_owned(),
        Some(address) if !address.is_empty() => {
            bounds.leave_out("metricsAddress", address, "no ADDRESS:PORT");
            METRICS_ADDRESS.to_owned()
        }
        Some(_) | None => METRICS_ADDRESS.to_owned(),
    }
}

/// Returns the port of an address of the form `[ADDRESS]:PORT`.
pub(super) fn port(address: &str) -> Option<u16> {
    let (host, port) = address.rsplit_once(':')?;
    let is_host = host.len() <= 253 && host.bytes().all(|byte| byte.is_ascii_graphic());
    let port = port.parse().ok().filter(|port| *port > 0)?;

    is_host.then_some(port)
}

/// Returns the pull policy; `None` for that of the API server.
fn pull_policy(policy: Option<&str>, bounds: &mut Bounds<'_>) -> Option<String> {
    let policy = policy.filter(|policy| !policy.is_empty())?;
    if ["Always", "IfNotPresent", "Never"].contains(&policy) {
        return Some(policy.to_owned());
    }
    bounds.leave_out("pullPolicy", policy, "not Always, IfNotPresent or Never");

    None
}

/// Returns the configuration of every reflector.
fn reflectors(
    configured: &BTreeMap<String, ReflectorConfig>,
    bounds: &mut Bounds<'_>,
) -> BTreeMap<String, ReflectorConfig> {
    let known = |name: &str| REFLECTORS.iter().any(|(reflector, ..)| *reflector == name);
    for name in configured.keys().filter(|name| !known(name)) {
        bounds.leave_out("reflectorsConfig", name, "unknown resource");
    }
    let reflectors = REFLECTORS.map(|(name, workers, has_type)| {
        let given = configured.get(name);
        let type_ = given.and_then(|it| it.type_.as_deref());
        let type_ = match type_.filter(|_| has_type) {
            Some(type_) if ["AllowList", "DenyList", "CustomLiqo"].contains(&type_) => type_,
            Some(type_) => {
                bounds.leave_out("reflectorsConfig", type_, "not AllowList or DenyList");
                DENY_LIST
            }
            None => DENY_LIST,
        };
        let workers = match given.map(|it| it.workers) {
            Some(workers) if (0..=WORKERS_MAX).contains(&workers) => workers,
            Some(workers) => {
                let shown = workers.to_string();
                bounds.leave_out("reflectorsConfig", &shown, "not between 0 and 1000");
                workers.clamp(0, WORKERS_MAX)
            }
            None => workers,
        };
        let config = ReflectorConfig {
            type_: has_type.then(|| type_.to_owned()),
            workers,
        };
        (name.to_owned(), config)
    });

    BTreeMap::from(reflectors)
}

/// Returns the further kinds that may be reflected, each in one version.
fn resources(named: &[ReflectedResource], bounds: &mut Bounds<'_>) -> Vec<ReflectedResource> {
    let names: Vec<_> = named.iter().map(ReflectedResource::name).collect();
    let numbered = names.iter().zip(named).enumerate();
    let numbered = numbered.map(|(number, (name, it))| (name.as_str(), (number, it)));
    let taken = bounds.take("reflectedResources", numbered, |name, (number, it)| {
        it.check()?;
        if names[..*number].iter().any(|earlier| earlier == name) {
            return Err("named twice");
        }
        Ok(())
    });

    taken.into_iter().map(|(_, it)| it.clone()).collect()
}

fn taken(
    field: &str,
    items: &[String],
    bounds: &mut Bounds<'_>,
    check: impl Fn(&str) -> Result<(), Reason>,
) -> Vec<String> {
    let named = items.iter().map(|item| (item.as_str(), item));
    let taken = bounds.take(field, named, |name, _| check(name));

    taken.into_iter().cloned().collect()
}

/// Returns the valid flags for an image.
fn arguments(arguments: &[String], image: &str, bounds: &mut Bounds<'_>) -> Vec<String> {
    let is_upstream = is_upstream(image);
    taken("extraArgs", arguments, bounds, |argument| {
        check_argument(argument, is_upstream)
    })
}

/// Flags of upstream's virtual kubelet that this project's does not have. It would refuse to start with one.
const OF_UPSTREAM_ONLY: [&str; 12] = [
    "--enable-profiling",
    "--home-kubeconfig",
    "--listen-port",
    "--node-lease-duration",
    "--node-ping-interval",
    "--node-ping-timeout",
    "--resync-period",
    "--virtual-storage-class-name",
    "--vk-lease-duration",
    "--vk-lease-enabled",
    "--vk-lease-renew-interval",
    "--vk-lease-retry-period",
];

fn check_argument(argument: &str, is_upstream: bool) -> Result<(), Reason> {
    if argument.len() > VALUE_LEN_MAX {
        return Err("longer than 1024 bytes");
    }
    if !argument.starts_with("--") || argument.contains(char::is_control) {
        return Err("no flag");
    }
    let name = argument.split('=').next().unwrap_or_default();
    if !is_upstream && OF_UPSTREAM_ONLY.contains(&name) {
        return Err("a flag of upstream's virtual kubelet that this one does not have");
    }

    Ok(())
}

fn check_annotation(key: &str, value: &str) -> Result<(), Reason> {
    check_key(key)?;
    if value.len() > VALUE_LEN_MAX {
        return Err("longer than 1024 bytes");
    }

    Ok(())
}

/// Annotations of the Node are one flag, whose entries are separated by commas.
fn check_node_annotation(key: &str, value: &str) -> Result<(), Reason> {
    check_annotation(key, value)?;
    if value.contains(|c: char| c == ',' || c == '"' || c.is_control()) {
        return Err("a comma, a quotation mark or a control character");
    }

    Ok(())
}
