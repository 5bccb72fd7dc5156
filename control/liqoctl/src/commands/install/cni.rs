//! Recognises the network plugin of a cluster, and checks that it is compatible with the fabric.

use std::collections::BTreeMap;

/// A network plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plugin {
    /// Cilium, with its ConfigMap.
    Cilium(BTreeMap<String, String>),
    /// Calico.
    Calico {
        /// Whether its data plane is eBPF.
        bpf: bool,
    },
    /// Name of a plugin that uses the kernel's routing tables.
    KernelRouting(&'static str),
    /// No known plugin.
    #[default]
    Unknown,
}

/// Prefixes of the names of DaemonSets, and their plugins.
const KERNEL_ROUTING: [(&str, &str); 8] = [
    ("kube-flannel", "Flannel"),
    ("kindnet", "kindnet"),
    ("weave-net", "Weave Net"),
    ("kube-router", "kube-router"),
    ("aws-node", "the Amazon VPC plugin"),
    ("azure-cni", "Azure CNI"),
    ("antrea-agent", "Antrea"),
    ("canal", "Canal"),
];

/// Returns the plugin to which one of the DaemonSets belongs.
pub(crate) fn recognise(
    daemon_sets: &[String],
    cilium: Option<BTreeMap<String, String>>,
    calico_bpf: bool,
) -> Plugin {
    let has = |name: &str| daemon_sets.iter().any(|found| found.starts_with(name));
    if has("cilium") {
        return Plugin::Cilium(cilium.unwrap_or_default());
    }
    if has("calico-node") {
        return Plugin::Calico { bpf: calico_bpf };
    }
    let plain = KERNEL_ROUTING.iter().find(|(name, _)| has(name));
    plain.map_or(Plugin::Unknown, |(_, name)| Plugin::KernelRouting(name))
}

/// Returns the CIDRs of the pool from which Cilium allocates addresses of pods; none if it has no
/// pool.
pub(crate) fn cilium_cidrs(config: &BTreeMap<String, String>) -> Vec<String> {
    let pool = config
        .get("ipam")
        .is_some_and(|ipam| ipam == "cluster-pool");
    let cidrs = config.get("cluster-pool-ipv4-cidr").filter(|_| pool);
    cidrs
        .map(|cidrs| cidrs.split([' ', ',']).map(ToOwned::to_owned).collect())
        .unwrap_or_default()
}

/// Checks that pods use the kernel's routes, which the fabric needs. Returns the name and the mode of
/// the plugin.
///
/// # Errors
///
/// Returns cause and remedy if the plugin bypasses the kernel's routes.
pub(crate) fn check(plugin: &Plugin) -> Result<String, String> {
    match plugin {
        Plugin::Cilium(config) if has_host_routing(config) => Err(
            "Cilium's eBPF host routing bypasses the kernel's routing tables, which contain the fabric's routes: set bpf.hostLegacyRouting=true (enable-host-legacy-routing in ConfigMap cilium-config) and restart Cilium".to_owned(),
        ),
        Plugin::Cilium(_) => Ok("Cilium with the kernel's routes".to_owned()),
        Plugin::Calico { bpf: true } => Err(
            "Calico's eBPF data plane bypasses the kernel's routing tables, which contain the fabric's routes: set bpfEnabled to false in its FelixConfiguration".to_owned(),
        ),
        Plugin::Calico { bpf: false } => Ok("Calico with the kernel's routes".to_owned()),
        Plugin::KernelRouting(name) => Ok((*name).to_owned()),
        Plugin::Unknown => Ok(
            "unknown network plugin; its pods must use the node's routes".to_owned(),
        ),
    }
}

/// Returns whether Cilium uses eBPF host routing: if it replaces kube-proxy and masquerades by eBPF,
/// unless legacy host routing is enabled.
fn has_host_routing(config: &BTreeMap<String, String>) -> bool {
    let is = |key: &str, value: &str| config.get(key).is_some_and(|found| found == value);
    if is("enable-host-legacy-routing", "true") {
        return false;
    }
    let replaces = is("kube-proxy-replacement", "true") || is("kube-proxy-replacement", "strict");
    replaces && is("enable-bpf-masquerade", "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = entries
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        owned.collect()
    }

    #[test]
    fn cilium_with_host_routing_is_refused_with_the_remedy() {
        let bpf = [
            ("kube-proxy-replacement", "true"),
            ("enable-bpf-masquerade", "true"),
        ];
        let plugin = recognise(&["cilium".into()], Some(config(&bpf)), false);

        assert!(
            check(&plugin)
                .unwrap_err()
                .contains("bpf.hostLegacyRouting=true")
        );
    }

    #[test]
    fn cilium_with_legacy_routing_is_accepted() {
        let legacy = [
            ("kube-proxy-replacement", "true"),
            ("enable-bpf-masquerade", "true"),
            ("enable-host-legacy-routing", "true"),
        ];

        assert!(check(&Plugin::Cilium(config(&legacy))).is_ok());
        assert!(check(&Plugin::Cilium(config(&[]))).is_ok());
    }

    #[test]
    fn plugins_are_recognised_by_their_daemon_sets() {
        let of = |name: &str| recognise(&["kube-proxy".into(), name.into()], None, false);

        assert_eq!(of("kube-flannel-ds"), Plugin::KernelRouting("Flannel"));
        assert_eq!(of("kindnet"), Plugin::KernelRouting("kindnet"));
        assert_eq!(of("calico-node"), Plugin::Calico { bpf: false });
        assert_eq!(of("other"), Plugin::Unknown);
    }

    #[test]
    fn calicos_ebpf_is_refused() {
        assert!(check(&recognise(&["calico-node".into()], None, true)).is_err());
    }

    #[test]
    fn a_pool_of_cilium_is_used_only_in_its_ipam_mode() {
        let entries = [
            ("ipam", "cluster-pool"),
            ("cluster-pool-ipv4-cidr", "10.0.0.0/8"),
        ];

        assert_eq!(cilium_cidrs(&config(&entries)), ["10.0.0.0/8"]);
        assert!(cilium_cidrs(&config(&entries[1..])).is_empty());
    }
}
