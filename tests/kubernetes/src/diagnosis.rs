//! What is worth knowing of clusters when something went wrong, as files.

use crate::cluster::Cluster;
use crate::host;
use crate::node::Node;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What is asked of a cluster: the file, and the arguments of `kubectl`.
const QUESTIONS: [(&str, &str); 6] = [
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

/// What is asked of a node: the file, and the commands.
const LOOKS: [(&str, &[&str]); 7] = [
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

/// Writes all of it below `folder`; what cannot be had is a line in its file.
///
/// # Errors
///
/// Returns an error if a file cannot be written.
pub fn gather(clusters: &[Cluster], folder: &Path) -> Result<()> {
    for cluster in clusters {
        let folder = folder.join(cluster.name());
        fs::create_dir_all(&folder)
            .with_context(|| format!("failed to create {}", folder.display()))?;
        for (file, question) in QUESTIONS {
            let mut command = cluster.kubectl();
            // An API server that is gone must not hold up the rest.
            command
                .arg("--request-timeout=10s")
                .args(question.split(' '));
            write(&folder.join(file), &told(&mut command))?;
        }
        pod_logs(cluster, &folder)?;
        for node in cluster.nodes() {
            node_state(&node, &folder.join(node.name()))?;
        }
    }

    Ok(())
}

/// The logs of all pods, of the containers before a restart, too.
fn pod_logs(cluster: &Cluster, folder: &Path) -> Result<()> {
    for node in cluster.nodes() {
        let from = node.root().join("var/log/pods");
        let to = folder.join(node.name()).join("pods");
        fs::create_dir_all(&to).context("failed to make a folder for logs")?;
        let all = from.join(".");
        // There are none before the first pod.
        let _ = host::run("cp", &["-rL".as_ref(), all.as_os_str(), to.as_os_str()]);
    }

    Ok(())
}

fn node_state(node: &Node, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).context("failed to make a folder for a node")?;
    let logs = node.logs().join(".");
    // There are none before the first component.
    let _ = host::run("cp", &["-r".as_ref(), logs.as_os_str(), folder.as_os_str()]);
    let _ = fs::copy(node.folder().join("init.log"), folder.join("init.log"));
    for (file, commands) in LOOKS {
        let mut text = String::new();
        for line in commands {
            text += &format!("$ {line}\n");
            text += &match node.command("sh") {
                Ok(mut command) => told(command.args(["-c", line])),
                Err(error) => format!("{error:#}\n"),
            };
        }
        write(&folder.join(file), &text)?;
    }

    Ok(())
}

fn told(command: &mut Command) -> String {
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
