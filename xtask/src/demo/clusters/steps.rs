//! The steps of the demo on Kubernetes in chronological order. Each step checks one claim.

mod peering;
mod pods;
mod removal;
mod shop;

pub(super) use removal::clean_up;

use super::tools::Tools;
use super::{MILAN, ROME};
use crate::demo::claims::Verdict;
use crate::shell::Shell;
use crate::{console, workspace};
use anyhow::{Context as _, Result};
use pods::{pod, seen};
use std::time::{Duration, Instant};

/// A step of the demo on Kubernetes, with the claim that it checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The identifier of the claim in the JSON output, which must not change.
    pub(super) name: &'static str,
    /// A description of the step for the console.
    pub(super) why: &'static str,
    /// Executes the step, and checks the claim.
    pub(super) run: fn(&mut Shell, &Tools) -> Result<Verdict>,
}

/// All steps except those of [`END`] and `clean-up`, which run last.
pub(super) const STEPS: &[Step] = &[
    Step {
        name: "clusters",
        why: "two clusters use the same pod CIDRs",
        run: clusters,
    },
    Step {
        name: "install",
        why: "`liqoctl` installs Liqo in both clusters",
        run: install,
    },
    Step {
        name: "connect",
        why: "one command connects the clusters in both directions",
        run: connect,
    },
    Step {
        name: "curl",
        why: "a pod in rome sends a request to a pod in milan, and one in milan to a pod in rome",
        run: curl,
    },
    Step {
        name: "failover",
        why: "a gateway is deleted while a pod sends requests",
        run: failover,
    },
    Step {
        name: "peer",
        why: "milan gives rome credentials and a virtual node",
        run: peering::peer,
    },
    Step {
        name: "offload",
        why: "a shop of ten services runs in both clusters",
        run: shop::offload,
    },
    Step {
        name: "front-end",
        why: "its front end opens in a browser",
        run: shop::front_end,
    },
    Step {
        name: "kills",
        why: "a gateway and the virtual kubelet are killed while customers buy",
        run: shop::kills,
    },
    Step {
        name: "view",
        why: "the state of the peering in both clusters",
        run: view,
    },
];

/// The end of offloading and peering. It is skipped if the clusters are kept.
pub(super) const END: &[Step] = &[
    Step {
        name: "unoffload",
        why: "one command ends the offloading",
        run: shop::unoffload,
    },
    Step {
        name: "unpeer",
        why: "one command ends the peering, and nothing of it is left",
        run: peering::unpeer,
    },
];

/// The manifest of web servers on both nodes. Each server replies with the name of its pod.
const WEB: &str = "tests/kubernetes/it/manifests/web.yaml";

/// The TCP port of the web servers.
const PORT: u16 = 8080;

/// Time limit to connect the clusters after the gateways have started.
const CONNECTED: Duration = Duration::from_secs(10);

/// Number of requests that a pod sends while a gateway is deleted.
const REQUESTS: usize = 100;

/// Maximum number of requests that may fail. A request fails after one second, and an outage after
/// the loss of a gateway lasts at most one second.
const FAILED_MAX: usize = 2;

/// Time limit for all requests together.
const REQUESTS_TIMEOUT: Duration = Duration::from_secs(60);

fn clusters(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    shell.run(tools.laboratory(&["up", ROME, MILAN]))?;
    let mut networks = Vec::new();
    for name in [ROME, MILAN] {
        for image in [
            "gateway",
            "route-agent",
            "controller-manager",
            "edge",
            "virtual-kubelet",
        ] {
            let archive = workspace::target().join(format!("images/liqo-{image}.tar"));
            let archive = archive.to_str().context("a path is not UTF-8")?;
            shell.run(tools.laboratory(&["load", name, archive]))?;
        }
        let path = "jsonpath={.items[*].spec.podCIDR}";
        let pod_cidrs = tools.kubectl(shell, name, &["get", "nodes", "-o", path])?;
        console::note(format_args!(
            "{name:<10} pod CIDRs of the nodes: {pod_cidrs}"
        ));
        networks.push(pod_cidrs);
    }

    Ok(Verdict::new(
        networks[0] == networks[1],
        format!("two nodes each, pods in {}", networks[0]),
    ))
}

fn install(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    let start = Instant::now();
    for name in [ROME, MILAN] {
        let kubeconfig = tools.kubeconfig(shell, name)?;
        let chart = workspace::root().join("charts/liqo");
        let chart = chart.to_str().context("a path is not UTF-8")?;
        let words = ["install", "--kubeconfig", &kubeconfig, "--cluster-id", name];
        let flags = ["--local-chart-path", chart, "--set", "tag=dev"];
        tools.show(shell, tools.liqoctl(&[&words[..], &flags].concat()))?;
    }

    Ok(Verdict::new(
        true,
        format!("installed after {}", console::seconds(start.elapsed())),
    ))
}

fn connect(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    let start = Instant::now();
    let [rome, milan] = [ROME, MILAN].map(|name| tools.kubeconfig(shell, name));
    let (rome, milan) = (rome?, milan?);
    let words = ["network", "connect", "--kubeconfig", &rome];
    let remote = ["--remote-kubeconfig", &milan, "--wait"];
    let how = ["--gw-server-service-type", "NodePort"];
    tools.show(shell, tools.liqoctl(&[&words[..], &remote, &how].concat()))?;

    let took = start.elapsed();
    Ok(Verdict::new(
        took <= CONNECTED,
        format!("connected after {}", console::seconds(took)),
    ))
}

fn curl(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    for name in [ROME, MILAN] {
        let manifest = workspace::root().join(WEB);
        let manifest = manifest.to_str().context("a path is not UTF-8")?;
        tools.kubectl(shell, name, &["apply", "-f", manifest])?;
    }
    for name in [ROME, MILAN] {
        let words = ["rollout", "status", "deployment/web", "--timeout=60s"];
        tools.kubectl(shell, name, &words)?;
    }

    let mut all_replied = true;
    for (here, there) in [(ROME, MILAN), (MILAN, ROME)] {
        let client = pod(shell, tools, here)?;
        let server = pod(shell, tools, there)?;
        let seen = seen(shell, tools, here, there, server.address)?;
        console::note(format_args!(
            "{here}: pod {} sends a request to pod {} in {there}, remapped to {seen}",
            client.address, server.address
        ));
        let url = format!("http://{seen}:{PORT}/");
        let words = ["kubectl", here, "exec", &client.name, "--", "curl", "-s"];
        let command = tools.laboratory(&[&words[..], &["--max-time", "5", &url]].concat());
        let reply = tools.show(shell, command)?;
        all_replied &= reply.contains(&server.name);
    }

    Ok(Verdict::new(
        all_replied,
        if all_replied {
            "the remote pods replied in both directions"
        } else {
            "the reply came from another pod than the destination"
        },
    ))
}

fn failover(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    let client = pod(shell, tools, ROME)?;
    let server = pod(shell, tools, MILAN)?;
    let seen = seen(shell, tools, ROME, MILAN, server.address)?;
    let one = format!("curl -s --max-time 1 -o /dev/null http://{seen}:{PORT}/ || echo failed");
    let all = format!("for i in $(seq {REQUESTS}); do {one}; sleep 0.05; done; echo ended");
    let detached = format!("({all}) >/tmp/requests 2>&1 &");
    let exec = ["exec", &client.name, "--", "sh", "-c"];
    tools.kubectl(shell, ROME, &[&exec[..], &[&detached]].concat())?;

    let gateways = "networking.liqo.io/component=gateway";
    let first = "jsonpath={.items[0].metadata.name}";
    let words = ["-n", "liqo", "get", "pods", "-l", gateways, "-o", first];
    let gateway = tools.kubectl(shell, MILAN, &words)?;
    let words = ["kubectl", MILAN, "-n", "liqo", "delete", "pod", &gateway];
    let now = ["--grace-period=0", "--force"];
    tools.show(shell, tools.laboratory(&[&words[..], &now].concat()))?;

    let until = "until grep -q ended /tmp/requests; do sleep 0.2; done";
    let seconds = REQUESTS_TIMEOUT.as_secs();
    let wait = format!("timeout {seconds} sh -c '{until}'; cat /tmp/requests");
    let results = tools.kubectl(shell, ROME, &[&exec[..], &[&wait]].concat())?;
    let failed = results.lines().filter(|line| *line == "failed").count();

    Ok(Verdict::new(
        results.contains("ended") && failed <= FAILED_MAX,
        format!("{failed} of {REQUESTS} requests failed"),
    ))
}

fn view(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    for name in [ROME, MILAN] {
        let kubeconfig = tools.kubeconfig(shell, name)?;
        tools.show(shell, tools.liqoctl(&["info", "--kubeconfig", &kubeconfig]))?;
        let kinds = "configurations,connections,resourceslices.authentication.liqo.io,virtualnodes";
        tools.show(
            shell,
            tools.laboratory(&["kubectl", name, "get", kinds, "-A"]),
        )?;
    }

    Ok(Verdict::new(true, "each cluster lists the other"))
}
