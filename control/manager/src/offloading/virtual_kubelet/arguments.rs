//! The arguments of a virtual kubelet, those of upstream's in its order.

use super::options::REFLECTORS;
use super::overrides::Overrides;
use super::source::Source;
use control_api::{VirtualNodeSpec, VkOptionsTemplateSpec};
use std::collections::BTreeMap;

/// Returns the arguments of the virtual kubelet of a VirtualNode.
pub(super) fn arguments(
    source: &Source<'_>,
    spec: &VirtualNodeSpec,
    overrides: &Overrides,
) -> Vec<String> {
    let options = &source.options;
    let mut arguments = identity(source);
    arguments.extend(classes(spec));
    arguments.extend(reflectors(options));
    let resources = options.reflected_resources.iter();
    arguments.extend(resources.map(|it| format!("--reflected-resource={it}")));
    let extra = [
        ("node-extra-annotations", &options.node_extra_annotations),
        ("node-extra-labels", &options.node_extra_labels),
    ];
    for (flag, entries) in extra {
        let value = overrides.text(flag).map(str::to_owned);
        let value = value.unwrap_or_else(|| joined(entries));
        if !value.is_empty() {
            arguments.push(format!("--{flag}={value}"));
        }
    }
    arguments.extend(options.extra_args.iter().cloned());
    let (is_enabled, address) = metrics(options, overrides);
    if is_enabled {
        arguments.push("--metrics-enabled=true".to_owned());
        arguments.push(format!("--metrics-address={address}"));
    }
    let check = !spec.disable_network_check.unwrap_or_default();
    arguments.extend([
        format!("--foreign-kubeconfig-secret-name={}", source.secret),
        format!("--create-node={}", spec.create_node.unwrap_or_default()),
        format!("--node-check-network={check}"),
    ]);

    arguments
}

/// Returns whether metrics are served, and where.
pub(super) fn metrics<'a>(
    options: &'a VkOptionsTemplateSpec,
    overrides: &'a Overrides,
) -> (bool, &'a str) {
    let is_enabled = overrides.text("metrics-enabled").map(|it| it == "true");
    let address = overrides.text("metrics-address");
    let default = options.metrics_address.as_deref().unwrap_or_default();

    (
        is_enabled.unwrap_or(options.metrics_enabled),
        address.unwrap_or(default),
    )
}

/// Returns the arguments with the CIDRs of the provider and those that they are remapped to, of versions after v1.2.0.
pub(super) fn remote_cidrs(source: &Source<'_>) -> Vec<String> {
    let flags = [
        ("remote-pod-cidr", source.remapped.pod.as_slice()),
        ("remote-external-cidr", source.remapped.external.as_slice()),
    ];
    let mut arguments = Vec::new();
    for (flag, pairs) in flags {
        arguments.extend(pairs.iter().map(|(cidr, _)| format!("--{flag}={cidr}")));
        arguments.extend(pairs.iter().map(|(_, to)| format!("--{flag}-remap={to}")));
    }

    arguments
}

fn identity(source: &Source<'_>) -> Vec<String> {
    let key = source.key;
    let mut arguments = vec![
        format!("--foreign-cluster-id={}", source.peer),
        format!("--nodename={}", key.name),
        "--node-ip=$(POD_IP)".to_owned(),
        format!("--tenant-namespace={}", key.namespace),
        format!("--liqo-namespace={}", source.liqo),
        format!("--home-cluster-id={}", source.home),
    ];
    let cidrs = source.pod_cidrs.iter();
    arguments.extend(cidrs.map(|cidr| format!("--local-podcidr={cidr}")));

    arguments
}

fn classes(spec: &VirtualNodeSpec) -> Vec<String> {
    let storage = spec.storage_classes.iter();
    let storage = storage.map(|it| (it.storage_class_name.as_str(), it.default));
    let ingress = spec.ingress_classes.iter();
    let ingress = ingress.map(|it| (it.ingress_class_name.as_str(), it.default));
    let balancers = spec.load_balancer_classes.iter();
    let balancers = balancers.map(|it| (it.load_balancer_class_name.as_str(), it.default));
    let negotiated = [
        ("storage", "storage", real(storage)),
        ("ingress", "ingress", real(ingress)),
        ("load-balancer", "load-balancer", real(balancers)),
    ];
    let enabled = negotiated
        .into_iter()
        .filter_map(|(flag, kind, class)| Some((flag, kind, class?)));

    enabled
        .flat_map(|(flag, kind, class)| {
            [
                format!("--enable-{flag}"),
                format!("--remote-real-{kind}-class-name={class}"),
            ]
        })
        .collect()
}

/// Returns the default class, else the first one.
fn real<'a>(classes: impl Iterator<Item = (&'a str, Option<bool>)> + Clone) -> Option<&'a str> {
    let mut defaults = classes
        .clone()
        .filter(|(_, default)| *default == Some(true));
    let mut all = classes;
    let (class, _) = defaults.next().or_else(|| all.next())?;

    Some(class)
}

fn reflectors(options: &VkOptionsTemplateSpec) -> Vec<String> {
    let configured = |name: &str| options.reflectors_config.get(name);
    let workers = REFLECTORS.into_iter().map(|(name, default, _)| {
        let workers = configured(name).map_or(default, |it| it.workers);
        format!("--{name}-reflection-workers={workers}")
    });
    let types = REFLECTORS.into_iter().filter_map(|(name, _, _)| {
        let type_ = configured(name)?.type_.as_deref()?;
        Some(format!("--{name}-reflection-type={type_}"))
    });

    workers.chain(types).collect()
}

fn joined(entries: &BTreeMap<String, String>) -> String {
    let entries = entries.iter().map(|(key, value)| format!("{key}={value}"));

    entries.collect::<Vec<_>>().join(",")
}
