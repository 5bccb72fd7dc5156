//! Detects the CIDRs of a cluster in its objects. PURE.

use super::args::Provider;
use ipnet::Ipv4Net;
use serde_json::Value;

/// Default pod CIDRs: of Flannel and kind, of k3s, of Calico.
const WELL_KNOWN: [&str; 3] = ["10.244.0.0/16", "10.42.0.0/16", "192.168.0.0/16"];

/// Default CIDRs of k3s.
const K3S_POD_CIDR: &str = "10.42.0.0/16";
const K3S_SERVICE_CIDR: &str = "10.43.0.0/16";

/// Objects of a cluster that describe its network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    /// `ClusterConfiguration` of ConfigMap kube-system/kubeadm-config.
    pub(crate) kubeadm: Option<String>,
    /// `config.conf` of ConfigMap kube-system/kube-proxy.
    pub(crate) kube_proxy: Option<String>,
    /// Command lines of the control plane's containers, split into arguments.
    pub(crate) control_plane: Vec<String>,
    /// `spec.cidrs` of ServiceCIDR `kubernetes`.
    pub(crate) service_cidrs: Vec<String>,
    /// CIDRs of the address pools of the network plugin: Calico or Cilium.
    pub(crate) plugin_cidrs: Vec<String>,
    /// `spec.clusterNetwork[].cidr` and `spec.serviceNetwork` of OpenShift's network.
    pub(crate) openshift: Option<(Vec<String>, Vec<String>)>,
    /// The nodes.
    pub(crate) nodes: Vec<NodeFacts>,
    /// The network plugin.
    pub(crate) plugin: super::cni::Plugin,
}

/// Properties of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    /// Name of the Node.
    pub(crate) name: String,
    /// IPv4 CIDRs of `spec.podCIDRs`.
    pub(crate) pod_cidrs: Vec<Ipv4Net>,
    /// IPv4 addresses of the node.
    pub(crate) addresses: Vec<std::net::Ipv4Addr>,
    /// Version of the kernel, such as `6.1.0-28-amd64`.
    pub(crate) kernel: String,
}

/// Detected CIDRs with their source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The CIDRs.
    pub(crate) cidrs: Vec<Ipv4Net>,
    /// Name of the source in messages.
    pub(crate) source: &'static str,
}

/// Returns the pod CIDRs of the most reliable source, or none.
pub(crate) fn pod_cidrs(observed: &Observed, provider: Option<&Provider>) -> Option<Found> {
    let of = |cidrs: Vec<Ipv4Net>, source| (!cidrs.is_empty()).then_some(Found { cidrs, source });
    let openshift = observed.openshift.as_ref().map(|(pods, _)| read(pods));
    of(
        openshift.unwrap_or_default(),
        "OpenShift's network configuration",
    )
    .or_else(|| {
        of(
            read(&observed.plugin_cidrs),
            "the network plugin's own configuration",
        )
    })
    .or_else(|| of(kubeadm(observed, "podSubnet"), "ConfigMap kubeadm-config"))
    .or_else(|| {
        of(
            flag(observed, "--cluster-cidr"),
            "the flags of kube-controller-manager",
        )
    })
    .or_else(|| of(kube_proxy(observed), "ConfigMap kube-proxy"))
    .or_else(|| {
        of(
            well_known(&observed.nodes),
            "the nodes' pod CIDRs, which are within a well-known default",
        )
    })
    .or_else(|| {
        let is_k3s = provider == Some(&Provider::K3s);
        let has_no_cidrs = observed.nodes.iter().all(|node| node.pod_cidrs.is_empty());
        (is_k3s && has_no_cidrs)
            .then(|| of(read(&[K3S_POD_CIDR.to_owned()]), "the default of k3s"))?
    })
}

/// Returns the service CIDR of the most reliable source, or none.
pub(crate) fn service_cidr(observed: &Observed, provider: Option<&Provider>) -> Option<Found> {
    let of = |cidrs: Vec<Ipv4Net>, source| {
        let cidrs: Vec<Ipv4Net> = cidrs.into_iter().take(1).collect();
        (!cidrs.is_empty()).then_some(Found { cidrs, source })
    };
    let openshift = observed
        .openshift
        .as_ref()
        .map(|(_, services)| read(services));
    of(
        openshift.unwrap_or_default(),
        "OpenShift's network configuration",
    )
    .or_else(|| of(read(&observed.service_cidrs), "ServiceCIDR kubernetes"))
    .or_else(|| {
        of(
            kubeadm(observed, "serviceSubnet"),
            "ConfigMap kubeadm-config",
        )
    })
    .or_else(|| {
        of(
            flag(observed, "--service-cluster-ip-range"),
            "the flags of kube-apiserver",
        )
    })
    .or_else(|| {
        (provider == Some(&Provider::K3s))
            .then(|| of(read(&[K3S_SERVICE_CIDR.to_owned()]), "the default of k3s"))?
    })
}

/// Parses the IPv4 CIDRs of a list whose items may be lists with commas. Skips everything else.
fn read(items: &[String]) -> Vec<Ipv4Net> {
    items
        .iter()
        .flat_map(|item| item.split(','))
        .filter_map(|cidr| cidr.trim().parse::<Ipv4Net>().ok())
        .map(|cidr| cidr.trunc())
        .collect()
}

fn kubeadm(observed: &Observed, field: &str) -> Vec<Ipv4Net> {
    let cidr = |text: &String| {
        let document: Value = serde_saphyr::from_str(text).ok()?;
        Some(document["networking"][field].as_str()?.to_owned())
    };
    read(observed.kubeadm.as_ref().and_then(cidr).as_slice())
}

fn kube_proxy(observed: &Observed) -> Vec<Ipv4Net> {
    let cidr = |text: &String| {
        let document: Value = serde_saphyr::from_str(text).ok()?;
        Some(document["clusterCIDR"].as_str()?.to_owned())
    };
    read(observed.kube_proxy.as_ref().and_then(cidr).as_slice())
}

/// Returns the value of a flag of the control plane, written `--flag=value` or `--flag value`.
fn flag(observed: &Observed, name: &str) -> Vec<Ipv4Net> {
    let words = &observed.control_plane;
    let at = |(i, word): (usize, &String)| match word.strip_prefix(name)? {
        "" => words.get(i + 1).cloned(),
        rest => rest.strip_prefix('=').map(ToOwned::to_owned),
    };
    read(words.iter().enumerate().find_map(at).as_slice())
}

/// Returns the well-known CIDR that contains the CIDRs of all nodes.
fn well_known(nodes: &[NodeFacts]) -> Vec<Ipv4Net> {
    let mut cidrs = nodes.iter().flat_map(|node| &node.pod_cidrs).peekable();
    if cidrs.peek().is_none() {
        return Vec::new();
    }
    let all: Vec<&Ipv4Net> = cidrs.collect();
    read(&WELL_KNOWN.map(ToOwned::to_owned))
        .into_iter()
        .find(|known| all.iter().all(|cidr| known.contains(*cidr)))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests;
