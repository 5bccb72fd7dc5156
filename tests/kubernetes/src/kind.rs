//! Clusters of [kind](https://kind.sigs.k8s.io), for machines with Docker.
//!
//! Nodes are containers. Names, networks and kubeconfigs are the same as without kind. Faults are
//! not available.

use crate::spec::{KubeProxy, Spec};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// Checks that kind and Docker are installed and work.
///
/// # Errors
///
/// Returns an error with the missing program and the URL of its installation guide.
pub(crate) fn check() -> Result<()> {
    for (program, args, from) in [
        (
            "kind",
            ["version"],
            "https://kind.sigs.k8s.io/docs/user/quick-start",
        ),
        ("docker", ["info"], "https://docs.docker.com/engine/install"),
    ] {
        let works = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        ensure!(
            works,
            "--kind: `{program} {}` does not work here: install it from {from}, or leave out --kind",
            args.join(" ")
        );
    }

    Ok(())
}

/// Returns the configuration of a cluster (<https://kind.sigs.k8s.io/docs/user/configuration>).
///
/// # Errors
///
/// Returns an error that names a flag that kind does not support.
pub(crate) fn config(spec: &Spec) -> Result<Value> {
    ensure!(
        spec.hollow == 0,
        "--kind --hollow {}: kind has no hollow nodes",
        spec.hollow
    );
    let mode = match spec.kube_proxy {
        KubeProxy::Nftables => "nftables",
        KubeProxy::Iptables => "iptables",
        KubeProxy::Ipvs => "ipvs",
        KubeProxy::None => "none",
    };
    let (mut pods, mut services) = (spec.pod_cidr.to_string(), spec.service_cidr.to_string());
    if spec.ipv6 {
        pods = format!("{pods},{}", spec.pod_cidr_v6());
        services = format!("{services},{}", spec.service_cidr_v6());
    }
    let image = match spec.version.as_deref() {
        Some(version) if version.matches('.').count() == 2 => {
            Some(format!("kindest/node:v{}", version.trim_start_matches('v')))
        }
        Some(version) => {
            bail!("--kind --k8s-version {version}: kind's images have three numbers, as in v1.35.4")
        }
        None => None,
    };
    let node = |index: u8| {
        let role = if index == 0 {
            "control-plane"
        } else {
            "worker"
        };
        let mut node = json!({"role": role});
        if let Some(image) = &image {
            node["image"] = json!(image);
        }
        node
    };

    Ok(json!({
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": spec.name,
        "networking": {
            "podSubnet": pods,
            "serviceSubnet": services,
            "kubeProxyMode": mode,
            "ipFamily": if spec.ipv6 { "dual" } else { "ipv4" },
        },
        "nodes": (0..spec.nodes).map(node).collect::<Vec<_>>(),
    }))
}

/// Returns the names of kind's clusters.
///
/// # Errors
///
/// Returns an error with the standard error of kind.
pub(crate) fn names() -> Result<Vec<String>> {
    let output = Command::new("kind")
        .args(["get", "clusters", "--quiet"])
        .output()
        .context("failed to start kind")?;
    ensure!(
        output.status.success(),
        "kind: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = String::from_utf8(output.stdout).context("a name is not UTF-8")?;

    Ok(text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_nodes_are_those_of_the_laboratory() {
        let config = config(&Spec::new("rome")).unwrap();

        assert_eq!(config["networking"]["podSubnet"], "10.244.0.0/16");
        assert_eq!(config["networking"]["kubeProxyMode"], "nftables");
        let roles: Vec<_> = config["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["role"].as_str().unwrap())
            .collect();
        assert_eq!(roles, ["control-plane", "worker"]);
    }

    #[test]
    fn a_version_is_that_of_the_nodes_image() {
        let mut spec = Spec::new("rome");
        spec.version = Some("1.36.3".into());
        let known = config(&spec).unwrap();
        spec.version = Some("1.36".into());

        assert_eq!(known["nodes"][1]["image"], "kindest/node:v1.36.3");
        assert!(config(&spec).unwrap_err().to_string().contains("v1.35.4"));
    }

    #[test]
    fn what_kind_has_not_is_refused() {
        let mut spec = Spec::new("rome");
        spec.hollow = 10;

        assert!(config(&spec).unwrap_err().to_string().contains("--hollow"));
    }
}
