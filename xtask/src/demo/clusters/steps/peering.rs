//! A whole peering: rome becomes a consumer of milan, and the peering ends.

use crate::console;
use crate::demo::claims::Verdict;
use crate::demo::clusters::tools::Tools;
use crate::demo::clusters::{MILAN, ROME};
use crate::shell::Shell;
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// Time limit of `liqoctl peer` on connected clusters.
const PEERED: Duration = Duration::from_secs(10);

/// The kinds of objects of a peering.
const KINDS: &str = "tenants,identities,resourceslices.authentication.liqo.io,renews,namespacemaps,virtualnodes,quotas,\
    configurations,gatewayservers,gatewayclients,publickeies,connections";

/// Time after the end of `unpeer` in which the last objects go.
const GONE: Duration = Duration::from_secs(1);

/// Peers the clusters, and checks that milan accepts the credentials of the virtual node in rome.
pub(super) fn peer(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    let start = Instant::now();
    let flags = ["--cpu", "2", "--memory", "4Gi"];
    let command = between(shell, tools, "peer", &flags)?;
    tools.show(shell, command)?;
    let took = start.elapsed();

    let tenant = format!("liqo-tenant-{MILAN}");
    let path = "jsonpath={.spec.kubeconfigSecretRef.name}";
    let secret = ["get", "virtualnode", MILAN, "-n", &tenant, "-o", path];
    let secret = tools.kubectl(shell, ROME, &secret)?;
    let path = "go-template={{.data.kubeconfig | base64decode}}";
    let kubeconfig = ["get", "secret", &secret, "-n", &tenant, "-o", path];
    let kubeconfig = tools.kubectl(shell, ROME, &kubeconfig)?;
    let file = workspace::target().join("demo-virtual-node.yaml");
    fs::write(&file, kubeconfig).context("failed to write the kubeconfig of the virtual node")?;
    let name = file.to_str().context("a path is not UTF-8")?;
    let path = "jsonpath={.status.userInfo.username}";
    let who = ["--kubeconfig", name, "auth", "whoami", "-o", path];
    let user = tools.kubectl(shell, ROME, &who);
    fs::remove_file(&file).context("failed to remove the kubeconfig of the virtual node")?;
    let user = user?;

    Ok(Verdict::new(
        took <= PEERED && user.starts_with(MILAN),
        format!(
            "peered after {}; milan knows the virtual node as {user}",
            console::seconds(took)
        ),
    ))
}

/// Ends the peering, and checks that no object of it is left in either cluster.
pub(super) fn unpeer(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    let command = between(shell, tools, "unpeer", &["--skip-confirm"])?;
    tools.show(shell, command)?;

    let ended = Instant::now();
    let mut left = left(shell, tools)?;
    while !left.is_empty() && ended.elapsed() < GONE {
        left = self::left(shell, tools)?;
    }
    Ok(Verdict::new(
        left.is_empty(),
        match left.is_empty() {
            true => "no object of the peering is left in either cluster".to_owned(),
            false => format!("left: {}", left.join(", ")),
        },
    ))
}

/// Returns the names of the objects of peerings in both clusters.
pub(super) fn left(shell: &mut Shell, tools: &Tools) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for name in [ROME, MILAN] {
        let objects = tools.kubectl(shell, name, &["get", KINDS, "-A", "-o", "name"])?;
        left.extend(objects.lines().map(|object| format!("{name}: {object}")));
    }
    Ok(left)
}

/// Returns a call of `liqoctl` for both clusters.
fn between(shell: &mut Shell, tools: &Tools, verb: &str, flags: &[&str]) -> Result<Command> {
    let rome = tools.kubeconfig(shell, ROME)?;
    let milan = tools.kubeconfig(shell, MILAN)?;
    let words = [verb, "--kubeconfig", &rome, "--remote-kubeconfig", &milan];

    Ok(tools.liqoctl(&[&words[..], flags].concat()))
}
