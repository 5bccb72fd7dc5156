//! Tests of faults that the laboratory causes in components, pod networks and uplinks.

use crate::fixture::{Clusters, Suite, scratch, serial};
use crate::workloads::web;
use anyhow::{Context as _, Result, bail, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::fault::{self, Faults, Uplink};
use kubernetes_lab::node::{Node, control};
use kubernetes_lab::pki::{Pki, Subject};
use kubernetes_lab::wait::{self, Deadline, SOON};
use std::fs;
use std::process::Command;
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_killed_api_server_is_restarted,
        pods_outlive_their_kubelet_and_containerd,
        a_stopped_component_is_not_restarted_until_a_request,
        a_disconnected_pod_is_unreachable_and_others_are_not,
        a_delay_affects_only_the_selected_cluster,
        an_uplink_drops_the_configured_fraction_of_frames,
        a_cluster_behind_nat_reaches_others_and_is_unreachable,
        a_disconnected_cluster_can_be_reconnected,
        a_certificate_expires,
    );
}

async fn a_killed_api_server_is_restarted(clusters: &'static Clusters) -> Result<()> {
    let node = clusters.rome.node(0);
    let before = pid(&node, "kube-apiserver")?.context("it does not run")?;

    kill(&node, "kube-apiserver")?;

    wait::until(Deadline::after(SOON), "another API server", async || {
        let after = pid(&node, "kube-apiserver")?.context("it is not restarted")?;
        ensure!(after != before, "the process is the same");
        kubectl(&clusters.rome, &["get", "nodes"])?;
        Ok(())
    })
    .await
}

async fn pods_outlive_their_kubelet_and_containerd(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("outlive").await?;
    let pods = web(&namespace).await?;
    let node = clusters.rome.node(1);
    let names = ["kubelet", "containerd"];
    let mut before = Vec::new();
    for name in names {
        before.push(pid(&node, name)?);
        kill(&node, name)?;
    }
    wait::until(Deadline::after(SOON), "both to be restarted", async || {
        for (name, before) in names.iter().zip(&before) {
            let after = pid(&node, name)?;
            ensure!(
                after.is_some() && after != *before,
                "{name} is not restarted"
            );
        }
        Ok(())
    })
    .await?;

    for pod in &pods {
        wait::until(Deadline::after(SOON), "exec to work", async || {
            namespace.sh(pod, "true").await.map(drop)
        })
        .await?;
        let path = "{.status.containerStatuses[0].restartCount}";
        let restarts = namespace.get(&format!("pod/{pod}"), path).await?;
        ensure!(restarts == "0", "{pod} was restarted {restarts} times");
    }
    Ok(())
}

async fn a_stopped_component_is_not_restarted_until_a_request(
    clusters: &'static Clusters,
) -> Result<()> {
    let node = clusters.milan.node(1);
    let send = |request| control::send(node.name(), &request);

    let started = node.clone();
    cleanup::defer("a stopped kube-proxy", async move || {
        let request = control::Request::Start("kube-proxy".into());
        control::send(started.name(), &request).map(drop)
    });
    send(control::Request::Stop("kube-proxy".into()))?;
    wait::until(Deadline::after(SOON), "kube-proxy to end", async || {
        ensure!(pid(&node, "kube-proxy")?.is_none(), "it runs");
        Ok(())
    })
    .await?;
    send(control::Request::Start("kube-proxy".into()))?;

    wait::until(Deadline::after(SOON), "kube-proxy to run", async || {
        pid(&node, "kube-proxy")?
            .context("it does not run")
            .map(drop)
    })
    .await
}

async fn a_disconnected_pod_is_unreachable_and_others_are_not(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("pod-cut").await?;
    let [a, b] = web(&namespace).await?;
    let ip = async |pod: &str| {
        namespace
            .get(&format!("pod/{pod}"), "{.status.podIP}")
            .await
    };
    let (from, to) = (ip(&a).await?, ip(&b).await?);
    let node = clusters.rome.node(0);
    let get = |address: &str| {
        let url = format!("http://{address}:8080/healthz");
        node.exec("curl", &["-sS", "-m", "2", &url])
    };
    get(&to)?;

    fault::set_pod_network(&clusters.rome, namespace.name(), &b, false).await?;

    ensure!(get(&to).is_err(), "the disconnected pod responds");
    get(&from).context("another pod is disconnected, too")?;
    fault::set_pod_network(&clusters.rome, namespace.name(), &b, true).await?;
    get(&to).context("the pod is not reconnected")?;
    Ok(())
}

async fn a_delay_affects_only_the_selected_cluster(clusters: &'static Clusters) -> Result<()> {
    const DELAY: Duration = Duration::from_millis(60);
    let faults = Faults {
        delay: DELAY,
        ..Faults::default()
    };

    let towards = vec![clusters.rome.number];
    with_uplink(
        &clusters.milan,
        &Uplink::Relay { faults, towards },
        async || {
            let node = clusters.milan.node(1);
            let [to_rome, to_machine] = [address(&clusters.rome, 1)?, machine()?];
            ensure!(
                round_trip(&node, &to_rome)? >= DELAY * 2,
                "rome is not delayed"
            );
            ensure!(
                round_trip(&node, &to_machine)? < DELAY,
                "the machine is delayed, too"
            );
            Ok(())
        },
    )
    .await
}

async fn an_uplink_drops_the_configured_fraction_of_frames(
    clusters: &'static Clusters,
) -> Result<()> {
    let faults = Faults {
        loss: 0.3,
        ..Faults::default()
    };

    let towards = Vec::new();
    with_uplink(
        &clusters.milan,
        &Uplink::Relay { faults, towards },
        async || {
            let to = address(&clusters.rome, 1)?;
            let mut ping = clusters.milan.node(1).command("ping")?;
            let output = ping
                .args(["-c", "60", "-i", "0.02", "-W", "1", "-q", &to])
                .output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let received: u32 = text
                .split(" received")
                .next()
                .and_then(|text| text.rsplit([' ', ',']).next()?.parse().ok())
                .with_context(|| format!("no count in {text}"))?;
            // The uplink drops 30 % of the frames in each direction, so 29 of 60 replies arrive on
            // average. Fewer than 8 or more than 50 arrive in one of 10^8 runs.
            ensure!(
                (8..=50).contains(&received),
                "{received} of 60 were received"
            );
            Ok(())
        },
    )
    .await
}

async fn a_cluster_behind_nat_reaches_others_and_is_unreachable(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("nat").await?;
    web(&namespace).await?;
    let port = namespace
        .get("service/web", "{.spec.ports[0].nodePort}")
        .await?;
    let outside = format!("http://{}:{port}/", address(&clusters.rome, 1)?);
    let udp_timeout = Duration::from_secs(5);
    wait::until(
        Deadline::after(SOON),
        "a response of the node port",
        async || run("curl", &["-sS", "-m", "2", &outside]).map(drop),
    )
    .await?;

    with_uplink(&clusters.milan, &Uplink::Nat { udp_timeout }, async || {
        let node = clusters.milan.node(1);
        node.exec("curl", &["-sS", "-m", "5", &outside])?;
        // kube-proxy masquerades traffic to a node port, so the pod does not see the address of the
        // router. Only the conntrack table of the router shows the translation.
        let router = format!("liqo-lab-nat-{}", clusters.milan.number);
        let flows = run(
            "ip",
            &["netns", "exec", &router, "conntrack", "-L", "-p", "tcp"],
        )?;
        let translated = format!("dst={}", nat_address(&clusters.milan)?);
        ensure!(flows.contains(&translated), "{flows} has no {translated}");

        let inside = format!("https://{}:10250/", address(&clusters.milan, 1)?);
        let back = clusters
            .rome
            .node(1)
            .exec("curl", &["-k", "-sS", "-m", "2", &inside]);
        ensure!(back.is_err(), "milan is reachable from rome");
        kubectl(&clusters.milan, &["get", "nodes"]).context("the machine does not reach milan")?;
        Ok(())
    })
    .await?;
    Ok(())
}

async fn a_disconnected_cluster_can_be_reconnected(clusters: &'static Clusters) -> Result<()> {
    let to = address(&clusters.rome, 0)?;
    let node = clusters.milan.node(0);

    with_uplink(&clusters.milan, &Uplink::Down, async || {
        ensure!(round_trip(&node, &to).is_err(), "milan is not disconnected");
        Ok(())
    })
    .await?;

    wait::until(
        Deadline::after(SOON),
        "milan to be reconnected",
        async || round_trip(&node, &to).map(drop),
    )
    .await
}

async fn a_certificate_expires(clusters: &'static Clusters) -> Result<()> {
    const LIFETIME: Duration = Duration::from_secs(4);
    let folder = scratch("expiry")?.join("pki");
    run(
        "cp",
        &[
            "-r",
            &path(clusters.rome.folder().join("pki"))?,
            &path(folder.clone())?,
        ],
    )?;
    let subject = Subject {
        user: "brief",
        group: Some("system:masters"),
    };
    let pki = Pki::new(&folder, LIFETIME);
    pki.client("ca", "brief", subject)?;
    let server = format!("https://{}:6443", address(&clusters.rome, 0)?);
    let config = pki.kubeconfig("it-rome", &server, "brief")?;
    fs::write(folder.join("config"), config)?;
    let get = || {
        let mut kubectl = clusters.rome.kubectl();
        kubectl
            .env("KUBECONFIG", folder.join("config"))
            .args(["get", "namespaces"]);
        let output = kubectl.output()?;
        if output.status.success() {
            return Ok(());
        }
        bail!("{}", String::from_utf8_lossy(&output.stderr))
    };

    get().context("the new certificate is refused")?;

    wait::until(
        Deadline::after(SOON),
        "the certificate to expire",
        async || match get() {
            Ok(()) => bail!("the certificate is accepted"),
            Err(_) => Ok(()),
        },
    )
    .await?;
    kubectl(&clusters.rome, &["get", "namespaces"]).map(drop)
}

/// Runs `body` while `cluster` has the uplink `uplink`.
async fn with_uplink(
    cluster: &Cluster,
    uplink: &Uplink,
    body: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let shared = cluster.clone();
    let plain = cleanup::defer(format!("uplink of {}", cluster.name()), async move || {
        fault::set_uplink(&shared, &Uplink::Plain)
    });
    fault::set_uplink(cluster, uplink)?;
    body().await?;
    plain.run().await
}

/// Returns the shortest of five round-trip times, since the first one includes ARP.
fn round_trip(node: &Node, to: &str) -> Result<Duration> {
    let text = node.exec("ping", &["-c", "5", "-i", "0.2", "-W", "1", "-q", to])?;
    let fastest = text
        .split("rtt min/avg/max/mdev = ")
        .nth(1)
        .and_then(|rest| rest.split('/').next()?.parse::<f64>().ok())
        .with_context(|| format!("no time in {text}"))?;

    Ok(Duration::from_secs_f64(fastest / 1000.0))
}

fn pid(node: &Node, component: &str) -> Result<Option<i32>> {
    let states = control::send(node.name(), &control::Request::Status)?;
    let state = states.into_iter().find(|state| state.name == component);

    Ok(state.with_context(|| format!("no {component}"))?.pid)
}

fn kill(node: &Node, component: &str) -> Result<()> {
    let request = control::Request::Signal(component.to_owned(), nix::libc::SIGKILL);
    control::send(node.name(), &request).map(drop)
}

fn address(cluster: &Cluster, node: usize) -> Result<String> {
    let specs = cluster.node_specs()?;
    let spec = specs.get(node).context("there is no such node")?;

    Ok(spec.ip.to_string())
}

fn machine() -> Result<String> {
    let underlay =
        kubernetes_lab::underlay::Underlay::existing()?.context("the underlay is missing")?;
    Ok(underlay.machine().to_string())
}

fn nat_address(cluster: &Cluster) -> Result<String> {
    let underlay =
        kubernetes_lab::underlay::Underlay::existing()?.context("the underlay is missing")?;
    let [a, b, ..] = underlay.net().addr().octets();

    Ok(format!("{a}.{b}.254.{}", cluster.number))
}

fn kubectl(cluster: &Cluster, args: &[&str]) -> Result<String> {
    let output = cluster
        .kubectl()
        .arg("--request-timeout=5s")
        .args(args)
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    Ok(String::from_utf8(output.stdout)?)
}

fn run(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    Ok(String::from_utf8(output.stdout)?)
}

fn path(path: std::path::PathBuf) -> Result<String> {
    path.into_os_string()
        .into_string()
        .ok()
        .context("a path is UTF-8")
}
