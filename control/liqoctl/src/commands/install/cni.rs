//! Which network plugin a cluster has, and whether the fabric works beside it.

use std::collections::BTreeMap;

/// A network plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plugin {
    /// Cilium, with its ConfigMap.
    Cilium(BTreeMap<String, String>),
    /// Calico; whether its data plane is eBPF.
    Calico {
        /// Routes by eBPF instead of the kernel's tables.
        bpf: bool,
    },
    /// One that routes by the kernel's tables, by name.
    Plain(&'static str),
    /// None that is known.
    #[default]
    Unknown,
}

/// Beginnings of the names of DaemonSets, and whose they are.
const PLAIN: [(&str, &str); 8] = [
    ("kube-flannel", "Flannel"),
    ("kindnet", "kindnet"),
    ("weave-net", "Weave Net"),
    ("kube-router", "kube-router"),
    ("aws-node", "the Amazon VPC plugin"),
    ("azure-cni", "Azure CNI"),
    ("antrea-agent", "Antrea"),
    ("canal", "Canal"),
];

/// Returns the plugin that DaemonSets of these names stand for.
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
    let plain = PLAIN.iter().find(|(name, _)| has(name));
    plain.map_or(Plugin::Unknown, |(_, name)| Plugin::Plain(name))
}

/// Returns the CIDRs that Cilium gives pods addresses of, if it does so itself.
pub(crate) fn cilium_cidrs(config: &BTreeMap<String, String>) -> Vec<String> {
    let pool = config
        .get("ipam")
        .is_some_and(|ipam| ipam == "cluster-pool");
    let cidrs = config.get("cluster-pool-ipv4-cidr").filter(|_| pool);
    cidrs
        .map(|cidrs| cidrs.split([' ', ',']).map(ToOwned::to_owned).collect())
        .unwrap_or_default()
}

/// Returns what a person should know about the plugin: its name and mode, or what stands
/// in the way.
///
/// # Errors
///
/// Returns cause and cure if pods would not use the kernel's routes, which the fabric needs.
pub(crate) fn judge(plugin: &Plugin) -> Result<String, String> {
    match plugin {
        Plugin::Cilium(config) if has_host_routing(config) => Err(
            "Cilium routes pods by eBPF past the kernel's tables, where the fabric's routes are: set bpf.hostLegacyRouting=true (enable-host-legacy-routing in ConfigMap cilium-config) and restart Cilium".to_owned(),
        ),
        Plugin::Cilium(_) => Ok("Cilium with the kernel's routes".to_owned()),
        Plugin::Calico { bpf: true } => Err(
            "Calico's eBPF data plane routes pods past the kernel's tables, where the fabric's routes are: set bpfEnabled to false in its FelixConfiguration".to_owned(),
        ),
        Plugin::Calico { bpf: false } => Ok("Calico with the kernel's routes".to_owned()),
        Plugin::Plain(name) => Ok((*name).to_owned()),
        Plugin::Unknown => Ok(
            "no network plugin that is known; it must let pods use the node's routes".to_owned(),
        ),
    }
}

/// Returns whether Cilium uses eBPF host routing: it does if it replaces kube-proxy and
/// masquerades by eBPF, unless it is told to use the kernel's tables.
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
    fn cilium_with_host_routing_is_refused_with_a_cure() {
        let bpf = [
            ("kube-proxy-replacement", "true"),
            ("enable-bpf-masquerade", "true"),
        ];
        let plugin = recognise(&["cilium".into()], Some(config(&bpf)), false);

        assert!(
            judge(&plugin)
                .unwrap_err()
                .contains("bpf.hostLegacyRouting=true")
        );
    }

    #[test]
    fn cilium_with_legacy_routing_is_fine() {
        let legacy = [
            ("kube-proxy-replacement", "true"),
            ("enable-bpf-masquerade", "true"),
            ("enable-host-legacy-routing", "true"),
        ];

        assert!(judge(&Plugin::Cilium(config(&legacy))).is_ok());
        assert!(judge(&Plugin::Cilium(config(&[]))).is_ok());
    }

    #[test]
    fn plugins_are_recognised_by_their_daemon_sets() {
        let of = |name: &str| recognise(&["kube-proxy".into(), name.into()], None, false);

        assert_eq!(of("kube-flannel-ds"), Plugin::Plain("Flannel"));
        assert_eq!(of("kindnet"), Plugin::Plain("kindnet"));
        assert_eq!(of("calico-node"), Plugin::Calico { bpf: false });
        assert_eq!(of("other"), Plugin::Unknown);
    }

    #[test]
    fn calicos_ebpf_is_refused() {
        assert!(judge(&recognise(&["calico-node".into()], None, true)).is_err());
    }

    #[test]
    fn ciliums_own_pool_counts_only_if_it_uses_it() {
        let entries = [
            ("ipam", "cluster-pool"),
            ("cluster-pool-ipv4-cidr", "10.0.0.0/8"),
        ];

        assert_eq!(cilium_cidrs(&config(&entries)), ["10.0.0.0/8"]);
        assert!(cilium_cidrs(&config(&entries[1..])).is_empty());
    }
}
