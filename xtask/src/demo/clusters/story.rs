//! What is shown, in order, and what each chapter claims.

use super::stage::Stage;
use super::{MILAN, ROME};
use crate::console;
use crate::demo::claims::Verdict;
use crate::demo::report::Claim;
use crate::shell::Shell;
use crate::workspace;
use anyhow::{Context as _, Result};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// A part of the story.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chapter {
    /// Its name, which never changes.
    pub(super) name: &'static str,
    /// What is done, and why it matters.
    pub(super) why: &'static str,
    /// Does it, and finds out whether it worked.
    pub(super) tell: fn(&mut Shell, &Stage) -> Result<Verdict>,
}

/// All chapters but the last, `clean-up`.
pub(super) const CHAPTERS: &[Chapter] = &[
    Chapter {
        name: "clusters",
        why: "two clusters that chose the same addresses",
        tell: clusters,
    },
    Chapter {
        name: "install",
        why: "Liqo in both",
        tell: install,
    },
    Chapter {
        name: "connect",
        why: "one command, and both see each other",
        tell: connect,
    },
    Chapter {
        name: "curl",
        why: "a pod in rome asks a pod in milan, and one in milan a pod in rome",
        tell: curl,
    },
    Chapter {
        name: "failover",
        why: "a gateway is deleted while a pod keeps asking",
        tell: failover,
    },
    Chapter {
        name: "view",
        why: "what either side sees of the other",
        tell: view,
    },
];

/// Pods on both nodes that tell who asks.
const WEB: &str = "tests/kubernetes/it/manifests/web.yaml";

/// Where they listen.
const PORT: u16 = 8080;

/// How soon the clusters are to be connected, once the gateways run.
const CONNECTED: Duration = Duration::from_secs(10);

/// Requests while a gateway goes.
const REQUESTS: usize = 100;

/// How many of them may fail: each waits for a second, which is what a lost gateway may cost.
const FAILED_MAX: usize = 2;

/// How long the requests may take together.
const REQUESTS_TIMEOUT: Duration = Duration::from_secs(60);

fn clusters(shell: &mut Shell, stage: &Stage) -> Result<Verdict> {
    shell.run(stage.laboratory(&["up", ROME, MILAN]))?;
    let mut networks = Vec::new();
    for name in [ROME, MILAN] {
        for image in ["gateway", "route-agent", "controller-manager"] {
            let archive = workspace::target().join(format!("images/liqo-{image}.tar"));
            let archive = archive.to_str().context("a path is not UTF-8")?;
            shell.run(stage.laboratory(&["load", name, archive]))?;
        }
        let path = "jsonpath={.items[*].spec.podCIDR}";
        let told = stage.kubectl(shell, name, &["get", "nodes", "-o", path])?;
        console::note(format_args!("{name:<10} the nodes' pods: {told}"));
        networks.push(told);
    }

    Ok(Verdict::new(
        networks[0] == networks[1],
        format!("two nodes each, pods in {}", networks[0]),
    ))
}

fn install(shell: &mut Shell, stage: &Stage) -> Result<Verdict> {
    let start = Instant::now();
    for name in [ROME, MILAN] {
        let kubeconfig = stage.kubeconfig(shell, name)?;
        let chart = workspace::root().join("charts/liqo");
        let chart = chart.to_str().context("a path is not UTF-8")?;
        let words = ["install", "--kubeconfig", &kubeconfig, "--cluster-id", name];
        let flags = ["--local-chart-path", chart, "--set", "tag=dev"];
        stage.show(shell, stage.liqoctl(&[&words[..], &flags].concat()))?;
    }

    Ok(Verdict::new(
        true,
        format!("twice in {}", console::seconds(start.elapsed())),
    ))
}

fn connect(shell: &mut Shell, stage: &Stage) -> Result<Verdict> {
    let start = Instant::now();
    let [rome, milan] = [ROME, MILAN].map(|name| stage.kubeconfig(shell, name));
    let (rome, milan) = (rome?, milan?);
    let words = ["network", "connect", "--kubeconfig", &rome];
    let remote = ["--remote-kubeconfig", &milan, "--wait"];
    let how = ["--gw-server-service-type", "NodePort"];
    stage.show(shell, stage.liqoctl(&[&words[..], &remote, &how].concat()))?;

    let took = start.elapsed();
    Ok(Verdict::new(
        took <= CONNECTED,
        format!("connected after {}", console::seconds(took)),
    ))
}

fn curl(shell: &mut Shell, stage: &Stage) -> Result<Verdict> {
    for name in [ROME, MILAN] {
        let manifest = workspace::root().join(WEB);
        let manifest = manifest.to_str().context("a path is not UTF-8")?;
        stage.kubectl(shell, name, &["apply", "-f", manifest])?;
    }
    for name in [ROME, MILAN] {
        let words = ["rollout", "status", "deployment/web", "--timeout=60s"];
        stage.kubectl(shell, name, &words)?;
    }

    let mut answered = true;
    for (here, there) in [(ROME, MILAN), (MILAN, ROME)] {
        let client = pod(shell, stage, here)?;
        let server = pod(shell, stage, there)?;
        let seen = seen(shell, stage, here, there, server.address)?;
        console::note(format_args!(
            "{here}: pod {} asks {there}'s pod {}, which it sees as {seen}",
            client.address, server.address
        ));
        let url = format!("http://{seen}:{PORT}/");
        let words = ["kubectl", here, "exec", &client.name, "--", "curl", "-s"];
        let command = stage.laboratory(&[&words[..], &["--max-time", "5", &url]].concat());
        let answer = stage.show(shell, command)?;
        answered &= answer.contains(&server.name);
    }

    Ok(Verdict::new(
        answered,
        if answered {
            "the remote pods answered, in both directions"
        } else {
            "another pod answered than was asked"
        },
    ))
}

fn failover(shell: &mut Shell, stage: &Stage) -> Result<Verdict> {
    let client = pod(shell, stage, ROME)?;
    let server = pod(shell, stage, MILAN)?;
    let seen = seen(shell, stage, ROME, MILAN, server.address)?;
    let one = format!("curl -s --max-time 1 -o /dev/null http://{seen}:{PORT}/ || echo failed");
    let all = format!("for i in $(seq {REQUESTS}); do {one}; sleep 0.05; done; echo ended");
    let detached = format!("({all}) >/tmp/requests 2>&1 &");
    let exec = ["exec", &client.name, "--", "sh", "-c"];
    stage.kubectl(shell, ROME, &[&exec[..], &[&detached]].concat())?;

    let gateways = "networking.liqo.io/component=gateway";
    let first = "jsonpath={.items[0].metadata.name}";
    let words = ["-n", "liqo", "get", "pods", "-l", gateways, "-o", first];
    let gateway = stage.kubectl(shell, MILAN, &words)?;
    let words = ["kubectl", MILAN, "-n", "liqo", "delete", "pod", &gateway];
    let now = ["--grace-period=0", "--force"];
    stage.show(shell, stage.laboratory(&[&words[..], &now].concat()))?;

    let until = "until grep -q ended /tmp/requests; do sleep 0.2; done";
    let seconds = REQUESTS_TIMEOUT.as_secs();
    let wait = format!("timeout {seconds} sh -c '{until}'; cat /tmp/requests");
    let told = stage.kubectl(shell, ROME, &[&exec[..], &[&wait]].concat())?;
    let failed = told.lines().filter(|line| *line == "failed").count();

    Ok(Verdict::new(
        told.contains("ended") && failed <= FAILED_MAX,
        format!("{failed} of {REQUESTS} requests failed, without a pause between them"),
    ))
}

fn view(shell: &mut Shell, stage: &Stage) -> Result<Verdict> {
    for name in [ROME, MILAN] {
        let kubeconfig = stage.kubeconfig(shell, name)?;
        stage.show(shell, stage.liqoctl(&["info", "--kubeconfig", &kubeconfig]))?;
        let kinds = "configurations,gatewayservers,gatewayclients,connections";
        stage.show(
            shell,
            stage.laboratory(&["kubectl", name, "get", kinds, "-A"]),
        )?;
    }

    Ok(Verdict::new(true, "both know the other"))
}

/// Takes it all away, and tells whether anything is left.
///
/// # Errors
///
/// Returns an error if it was interrupted.
pub(super) fn clean_up(shell: &mut Shell, stage: &Stage, is_installed: bool) -> Result<Claim> {
    console::step("clean-up: nothing is left");
    let start = Instant::now();
    let verdict = if is_installed {
        uninstall(shell, stage)
    } else {
        Ok(Verdict::new(true, "the clusters are gone"))
    };
    shell.run(stage.laboratory(&["down", ROME, MILAN]))?;

    let verdict = verdict.unwrap_or_else(|error| Verdict::new(false, format!("{error:#}")));
    if verdict.pass {
        console::done(&verdict.measured, start.elapsed());
    } else {
        console::failed(&verdict.measured, start.elapsed());
    }
    Ok(Claim {
        name: "clean-up",
        pass: verdict.pass,
        measured: verdict.measured,
    })
}

fn uninstall(shell: &mut Shell, stage: &Stage) -> Result<Verdict> {
    let [rome, milan] = [ROME, MILAN].map(|name| stage.kubeconfig(shell, name));
    let (rome, milan) = (rome?, milan?);
    let words = ["network", "reset", "--kubeconfig", &rome];
    let remote = ["--remote-kubeconfig", &milan, "--wait", "--skip-confirm"];
    stage.show(shell, stage.liqoctl(&[&words[..], &remote].concat()))?;
    let mut left = Vec::new();
    for (name, kubeconfig) in [(ROME, &rome), (MILAN, &milan)] {
        let words = ["uninstall", "--purge", "--skip-confirm", "--kubeconfig"];
        stage.show(shell, stage.liqoctl(&[&words[..], &[kubeconfig]].concat()))?;
        let kinds = "crd,clusterroles,clusterrolebindings,namespaces";
        let objects = stage.kubectl(shell, name, &["get", kinds, "-o", "name"])?;
        left.extend(
            objects
                .lines()
                .filter(|it| it.contains("liqo"))
                .map(str::to_owned),
        );
        for node in ["control-plane", "worker"] {
            let node = format!("{name}-{node}");
            let links = stage.laboratory(&["exec", &node, "ip", "-o", "link"]);
            let links = shell.output(links)?;
            let links = String::from_utf8_lossy(&links.stdout).into_owned();
            left.extend(
                links
                    .lines()
                    .filter(|it| it.contains("liqo"))
                    .map(str::to_owned),
            );
        }
    }

    Ok(Verdict::new(
        left.is_empty(),
        if left.is_empty() {
            "no kind, role, namespace or device is left, and the clusters are gone".to_owned()
        } else {
            format!("left: {}", left.join(", "))
        },
    ))
}

/// A pod of the demo.
struct Pod {
    name: String,
    address: Ipv4Addr,
}

/// The first of a cluster, in the order of their addresses: the same in both, if can be.
fn pod(shell: &mut Shell, stage: &Stage, cluster: &str) -> Result<Pod> {
    let path = "jsonpath={range .items[*]}{.status.podIP} {.metadata.name}{\"\\n\"}{end}";
    let words = ["get", "pods", "-l", "app=web", "-o", path];
    let told = stage.kubectl(shell, cluster, &words)?;
    let pods = told.lines().filter_map(|line| line.split_once(' '));
    let pods = pods.map(|(address, name)| {
        let address = address.parse().context("a pod's address")?;
        let name = name.to_owned();
        Ok(Pod { name, address })
    });
    let pods = pods.collect::<Result<Vec<_>>>()?;

    pods.into_iter()
        .min_by_key(|pod| pod.address)
        .context("there is no pod")
}

/// How `here` sees an address of a pod of `there`.
fn seen(
    shell: &mut Shell,
    stage: &Stage,
    here: &str,
    there: &str,
    address: Ipv4Addr,
) -> Result<Ipv4Addr> {
    let tenant = format!("liqo-tenant-{there}");
    let path = "jsonpath={.status.remote.cidr.pod[0]}";
    let words = ["-n", &tenant, "get", "configuration", there, "-o", path];
    let network = stage.kubectl(shell, here, &words)?;
    let network: Ipv4Net = network
        .parse()
        .context("the remapped network of the pods")?;

    Ok(swap(network, address))
}

/// The address with another prefix.
fn swap(network: Ipv4Net, address: Ipv4Addr) -> Ipv4Addr {
    let host = u32::from(address) & u32::from(network.hostmask());

    Ipv4Addr::from(u32::from(network.network()) | host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_behind_the_prefix_stays() {
        let network = "10.0.0.0/16".parse().unwrap();

        let seen = swap(network, Ipv4Addr::new(10, 244, 1, 5));

        assert_eq!(seen, Ipv4Addr::new(10, 0, 1, 5));
    }
}
