//! A shop of ten services, half of which run in the other cluster.

use crate::console;
use crate::demo::claims::Verdict;
use crate::demo::clusters::tools::Tools;
use crate::demo::clusters::{MILAN, ROME};
use crate::shell::Shell;
use crate::workspace;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::process::Command;
use std::time::Instant;

/// The namespace of the shop.
const SHOP: &str = "shop";

const MANIFESTS: &str = "tests/kubernetes/manifests";

/// Requests of the load generator that may fail while a gateway and the virtual kubelet are killed. A request takes at most
/// some seconds, and an outage after the loss of a gateway at most one.
const FAILED_MAX: usize = 5;

/// Offloads a namespace, and deploys the shop over both clusters.
pub(super) fn offload(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    let start = Instant::now();
    let kubeconfig = tools.kubeconfig(shell, ROME)?;
    tools.kubectl(shell, ROME, &["create", "namespace", SHOP])?;
    let words = ["offload", "namespace", SHOP, "--kubeconfig", &kubeconfig];
    tools.show(shell, tools.liqoctl(&words))?;
    apply(shell, tools, "shop.yaml")?;
    let all = ["deployments", "--all", "--for=condition=Available"];
    let wait = ["-n", SHOP, "wait", "--timeout=120s"];
    tools.kubectl(shell, ROME, &[&wait[..], &all].concat())?;
    let took = start.elapsed();

    let columns =
        "custom-columns=POD:.metadata.labels.app,NODE:.spec.nodeName,ADDRESS:.status.podIP";
    let words = ["kubectl", ROME, "-n", SHOP, "get", "pods", "-o", columns];
    let pods = tools.show(shell, tools.laboratory(&words))?;
    let count = |is_remote: bool| {
        let rows = pods.lines().skip(1);
        rows.filter(|row| row.split_whitespace().any(|it| it == MILAN) == is_remote)
            .count()
    };
    let (local, remote) = (count(false), count(true));

    Ok(Verdict::new(
        local > 0 && remote > 0,
        format!(
            "{local} services run in rome and {remote} in milan after {}",
            console::seconds(took)
        ),
    ))
}

/// Opens the shop's front end from this machine.
pub(super) fn front_end(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    let expose = ["-n", SHOP, "expose", "deployment", "frontend"];
    let service = ["--name=frontend-external", "--type=NodePort", "--port=8080"];
    tools.kubectl(shell, ROME, &[&expose[..], &service].concat())?;
    let path = "jsonpath={.spec.ports[0].nodePort}";
    let port = [
        "-n",
        SHOP,
        "get",
        "service",
        "frontend-external",
        "-o",
        path,
    ];
    let port = tools.kubectl(shell, ROME, &port)?;
    let path = "jsonpath={.items[0].status.addresses[?(@.type==\"InternalIP\")].address}";
    // The address of a virtual node is that of its virtual kubelet.
    let real = [
        "get",
        "nodes",
        "-l",
        "liqo.io/type!=virtual-node",
        "-o",
        path,
    ];
    let address = tools.kubectl(shell, ROME, &real)?;
    let url = format!("http://{address}:{port}/");
    let get = |path: &str| {
        let mut curl = Command::new("curl");
        // The node's kube-proxy follows the new Service.
        curl.args(["-fsS", "--max-time", "10", "--retry", "20"]);
        curl.args(["--retry-delay", "1", "--retry-connrefused"]);
        curl.arg(format!("{url}{path}"));
        curl
    };
    let page = shell.output(get(""))?;
    let places = shell.output(get("api/where"))?;
    let places = serde_json::from_slice(&places.stdout).unwrap_or(Value::Null);
    let is_complete = page.status.success() && places.to_string().contains(MILAN);
    let shown = if is_complete {
        "shows the products, and where each service runs".to_owned()
    } else {
        format!(
            "does not show where each service runs: {}, {places}",
            String::from_utf8_lossy(&page.stderr).trim()
        )
    };

    Ok(Verdict::new(is_complete, format!("{url} {shown}")))
}

/// Kills a gateway and the virtual kubelet while customers buy.
pub(super) fn kills(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    apply(shell, tools, "shop-load.yaml")?;
    let wait = ["-n", SHOP, "wait", "--timeout=60s"];
    for (object, condition) in [
        ("job/loadgenerator", "--for=jsonpath={.status.active}=1"),
        ("--selector=app=loadgenerator", "--for=condition=Ready"),
    ] {
        let pods = object.starts_with("--").then_some("pods");
        let words = [&wait[..], &Vec::from_iter(pods), &[object, condition]].concat();
        tools.kubectl(shell, ROME, &words)?;
    }
    for (cluster, namespace, label) in [
        (MILAN, "liqo", "networking.liqo.io/component=gateway"),
        (
            ROME,
            &tenant(),
            "offloading.liqo.io/component=virtual-kubelet",
        ),
    ] {
        let first = "jsonpath={.items[0].metadata.name}";
        let pod = ["-n", namespace, "get", "pods", "-l", label, "-o", first];
        let pod = tools.kubectl(shell, cluster, &pod)?;
        let words = ["kubectl", cluster, "-n", namespace, "delete", "pod", &pod];
        let now = ["--grace-period=0", "--force"];
        tools.show(shell, tools.laboratory(&[&words[..], &now].concat()))?;
    }
    let log = ["-n", SHOP, "logs", "--follow", "job/loadgenerator"];
    let log = tools.kubectl(shell, ROME, &log)?;
    let count = |name: &str| {
        let words = log.split_whitespace();
        let mut values = words.filter_map(|it| it.strip_prefix(name)?.parse::<usize>().ok());
        values
            .next()
            .with_context(|| format!("no {name} in: {log}"))
    };
    let (requests, failed) = (count("requests=")?, count("failed=")?);

    Ok(Verdict::new(
        requests > 0 && failed <= FAILED_MAX,
        format!("{failed} of {requests} requests failed"),
    ))
}

/// Ends the offloading, and checks that the namespace of the other cluster is gone.
pub(super) fn unoffload(shell: &mut Shell, tools: &Tools) -> Result<Verdict> {
    let kubeconfig = tools.kubeconfig(shell, ROME)?;
    let words = ["unoffload", "namespace", SHOP, "--skip-confirm"];
    let words = [&words[..], &["--kubeconfig", &kubeconfig]].concat();
    tools.show(shell, tools.liqoctl(&words))?;
    let remote = format!("{SHOP}-{ROME}");
    let left = [
        "get",
        "namespace",
        &remote,
        "--ignore-not-found",
        "-o",
        "name",
    ];
    let left = tools.kubectl(shell, MILAN, &left)?;
    tools.kubectl(shell, ROME, &["delete", "namespace", SHOP, "--wait"])?;

    Ok(Verdict::new(
        left.is_empty(),
        match left.is_empty() {
            true => "the namespace in milan is gone".to_owned(),
            false => format!("left: {left}"),
        },
    ))
}

fn apply(shell: &mut Shell, tools: &Tools, manifest: &str) -> Result<()> {
    let path = workspace::root().join(MANIFESTS).join(manifest);
    let path = path.to_str().context("a path is not UTF-8")?;
    tools.kubectl(shell, ROME, &["-n", SHOP, "apply", "-f", path])?;

    Ok(())
}

fn tenant() -> String {
    format!("liqo-tenant-{MILAN}")
}
