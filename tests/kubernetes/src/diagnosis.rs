//! Writes the state of clusters to files, for the diagnosis of failed tests.

use crate::cluster::Cluster;
use crate::host;
use crate::node::Node;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// File names for a cluster, and the arguments of `kubectl` that print each file.
const CLUSTER_FILES: [(&str, &str); 6] = [
    ("nodes.yaml", "get nodes -o yaml"),
    ("pods.txt", "get pods -A -o wide"),
    (
        "objects.yaml",
        "get all,configmaps,persistentvolumeclaims,endpointslices,csr,apiservices -A -o yaml",
    ),
    ("custom.txt", "get crds -o name"),
    (
        "events.txt",
        "get events -A --sort-by=.metadata.creationTimestamp",
    ),
    ("described-pods.txt", "describe pods -A"),
];

/// File names for a node, and the commands that print each file.
const NODE_FILES: [(&str, &[&str]); 7] = [
    ("links.txt", &["ip -d -s link show"]),
    ("addresses.txt", &["ip address show", "ip neighbour show"]),
    (
        "routes.txt",
        &[
            "ip rule show",
            "ip route show table all",
            "ip -6 route show table all",
            "ip nexthop show",
        ],
    ),
    ("nft.txt", &["nft list ruleset"]),
    ("bpf.txt", &["find /sys/fs/bpf -mindepth 1"]),
    (
        "containers.txt",
        &[
            "ctr --namespace k8s.io containers list",
            "ctr --namespace k8s.io tasks list",
        ],
    ),
    (
        "processes.txt",
        &["ps -eo pid,ppid,rss,time,args", "ss -tunap"],
    ),
];

/// Writes all files below `folder`. If a command fails, its file contains the error.
///
/// # Errors
///
/// Returns an error if a file cannot be written.
pub fn gather(clusters: &[Cluster], folder: &Path) -> Result<()> {
    for cluster in clusters {
        let folder = folder.join(cluster.name());
        fs::create_dir_all(&folder)
            .with_context(|| format!("failed to create {}", folder.display()))?;
        for (file, arguments) in CLUSTER_FILES {
            let mut command = cluster.kubectl();
            // An API server that does not respond must not delay the other files.
            command
                .arg("--request-timeout=10s")
                .args(arguments.split(' '));
            write(&folder.join(file), &output(&mut command))?;
        }
        pod_logs(cluster, &folder)?;
        for node in cluster.nodes() {
            node_state(&node, &folder.join(node.name()))?;
        }
    }

    Ok(())
}

/// Copies the logs of all pods, including the logs of containers that have since been restarted.
fn pod_logs(cluster: &Cluster, folder: &Path) -> Result<()> {
    for node in cluster.nodes() {
        let from = node.root().join("var/log/pods");
        let to = folder.join(node.name()).join("pods");
        fs::create_dir_all(&to).context("failed to create a folder for logs")?;
        let all = from.join(".");
        // The folder does not exist before the first pod starts.
        let _ = host::run("cp", &["-rL".as_ref(), all.as_os_str(), to.as_os_str()]);
    }

    Ok(())
}

fn node_state(node: &Node, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).context("failed to create a folder for a node")?;
    let logs = node.logs().join(".");
    // The folder does not exist before the first component starts.
    let _ = host::run("cp", &["-r".as_ref(), logs.as_os_str(), folder.as_os_str()]);
    let _ = fs::copy(node.folder().join("init.log"), folder.join("init.log"));
    for (file, commands) in NODE_FILES {
        let mut text = String::new();
        for line in commands {
            text += &format!("$ {line}\n");
            text += &match node.command("sh") {
                Ok(mut command) => output(command.args(["-c", line])),
                Err(error) => format!("{error:#}\n"),
            };
        }
        write(&folder.join(file), &text)?;
    }

    Ok(())
}

fn output(command: &mut Command) -> String {
    match host::output(command, "") {
        Ok(output) => {
            let [out, err] = [output.stdout, output.stderr];
            String::from_utf8_lossy(&[out, err].concat()).into_owned()
        }
        Err(error) => format!("{error:#}\n"),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}
