//! The configuration files of a node. All functions are pure.

use super::Plan;
use crate::spec::NodeSpec;
use serde_json::{Value, json};

/// The image of the sandbox container (`pause`) of each pod.
const PAUSE: &str = "registry.k8s.io/pause:3.10";

/// Returns the path inside the node and the content of each configuration file.
pub(super) fn files(plan: &Plan) -> Vec<(&'static str, String)> {
    let mut files = vec![
        ("/etc/cni/net.d/10-lab.conflist", pretty(&cni(&plan.node))),
        ("/etc/containerd/config.toml", containerd()),
        ("/etc/kubernetes/kubelet.yaml", pretty(&kubelet(plan))),
    ];
    if let Some(proxy) = proxy(plan) {
        files.push(("/etc/kubernetes/proxy.yaml", pretty(&proxy)));
    }

    files
}

/// Returns the CNI configuration. Each pod has a veth pair to its node, without a bridge.
fn cni(node: &NodeSpec) -> Value {
    let ranges: Vec<_> = node
        .pod_cidrs()
        .into_iter()
        .map(|cidr| json!([{ "subnet": cidr }]))
        .collect();
    let mut routes = vec![json!({"dst": "0.0.0.0/0"})];
    routes.extend(node.ip_v6.map(|_| json!({"dst": "::/0"})));

    json!({"cniVersion": "1.0.0", "name": "lab", "plugins": [
        {"type": "ptp", "mtu": 1500, "ipMasq": false, "ipam": {
            "type": "host-local",
            // The folder is on tmpfs, so that a restart of the node frees the addresses of its
            // pods.
            "dataDir": "/run/cni-ipam",
            "ranges": ranges,
            "routes": routes,
        }},
        {"type": "portmap", "capabilities": {"portMappings": true}},
    ]})
}

/// Returns containerd's configuration. Without CAP_SYS_RESOURCE, runc cannot give a container a
/// lower `oom_score_adj` than containerd has, and fails with `EOF`. With `restrict_oom_score_adj`,
/// containerd raises such values to its own.
pub(super) fn containerd() -> String {
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/opt/cni/bin"]
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "/usr/sbin/runc"
SystemdCgroup = false
"#
    )
}

fn kubelet(plan: &Plan) -> Value {
    let pki = |file: &str| format!("/etc/kubernetes/pki/{file}");
    let name = &plan.node.name;

    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": pki(&format!("kubelet-{name}-serving.crt")),
        "tlsPrivateKeyFile": pki(&format!("kubelet-{name}-serving.key")),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDomain": "cluster.local",
        "clusterDNS": [plan.spec.dns_service()],
        "resolvConf": "/etc/resolv.conf",
        // A full disk of the machine must cause neither image collection nor pod eviction.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "maxPods": 110,
        "volumeStatsAggPeriod": "0s",
        // The default is a folder in /usr, which is read-only in a node.
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "oomScoreAdj": 0,
    })
}

fn proxy(plan: &Plan) -> Option<Value> {
    let mode = plan.spec.kube_proxy.mode()?;
    let mut cidrs = plan.spec.pod_cidr.to_string();
    if plan.spec.ipv6 {
        cidrs = format!("{cidrs},{}", plan.spec.pod_cidr_v6());
    }

    Some(json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/pki/proxy.conf"},
        "clusterCIDR": cidrs,
        "mode": mode,
        "hostnameOverride": plan.node.name,
        "oomScoreAdj": 0,
        // Zero means that kube-proxy does not change these settings of the machine.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }))
}

/// Returns nftables rules that masquerade traffic from pods to destinations outside of the pod
/// CIDR, as CNI plugins do.
pub(super) fn masquerade(plan: &Plan) -> String {
    let pods = plan.spec.pod_cidr;
    let v6 = plan.spec.ipv6.then(|| {
        let pods = plan.spec.pod_cidr_v6();
        format!("    ip6 saddr {pods} ip6 daddr != {pods} fib daddr type != local masquerade\n")
    });

    format!(
        "table inet lab-cni {{
  chain postrouting {{
    type nat hook postrouting priority srcnat + 10; policy accept;
    ip saddr {pods} ip daddr != {pods} fib daddr type != local masquerade
{}  }}
}}
",
        v6.unwrap_or_default()
    )
}

/// Returns `ip` commands that create routes to the pod CIDRs of the other nodes.
pub(super) fn routes(plan: &Plan) -> Vec<String> {
    plan.nodes
        .iter()
        .filter(|node| node.name != plan.node.name)
        .flat_map(|node| {
            let v4 = format!("route replace {} via {}", node.pod_cidr, node.ip);
            let v6 = node.pod_cidr_v6.zip(node.ip_v6);
            let v6 = v6.map(|(cidr, ip)| format!("route replace {cidr} via {ip}"));
            [v4].into_iter().chain(v6)
        })
        .collect()
}

/// Settings below `/proc/sys/net` and their values. Each network namespace has its own settings.
pub(super) const SETTINGS: [(&str, &str); 7] = [
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/eth0/rp_filter", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    // Duplicate address detection would delay each pod by a second.
    ("ipv6/conf/default/accept_dad", "0"),
    ("bridge/bridge-nf-call-iptables", "1"),
];

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests;
