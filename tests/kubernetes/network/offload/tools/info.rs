//! `liqoctl info pod` of a pod that runs, and of pods that cannot run for different reasons.

use super::{CONTAINER, Offloaded, pod};
use crate::fixture::{Peering, SOON, Suite, liqoctl, liqoctl_command, serial};
use crate::offload::until_node_is_ready;
use crate::peering::{connected_again, peer};
use crate::removal::kubectl;
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        liqoctl_info_pod_follows_a_pod_to_its_first_broken_link,
    );
}

/// The links of a pod that runs, in their order.
const LINKS: [&str; 9] = [
    "pod",
    "scheduling",
    "virtualNode",
    "provider",
    "namespace",
    "tokens",
    "shadowPod",
    "remotePod",
    "network",
];

async fn liqoctl_info_pod_follows_a_pod_to_its_first_broken_link(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peering.clusters();
    connected_again(peering);
    // The virtual node is larger than each node of the provider.
    let path = "jsonpath={.items[*].status.allocatable.cpu}";
    let cpus = kubectl(milan, &["get", "nodes", "-o", path])?;
    let cpus = cpus.split_whitespace().map(str::parse::<u64>);
    let largest = cpus.collect::<Result<Vec<_>, _>>()?.into_iter().max();
    let largest = largest.context("no nodes")?;
    let slice = format!("--cpu={}", largest + 2);
    peer([rome, milan], &[&slice, "--memory=4Gi"])?;
    until_node_is_ready([rome, milan]).await?;
    let offloaded = Offloaded::namespace([rome, milan], "info").await?;

    let whole = pod("whole", &["sleep", "infinity"]);
    offloaded.home.apply(&whole.to_string()).await?;
    offloaded.home.wait("pod/whole", "Ready").await?;
    for case in cases(largest + 1) {
        offloaded.home.apply(&case.pod.to_string()).await?;
    }
    // The first pods of a virtual node may run before the Deployment of its virtual kubelet counts as available.
    until(Deadline::after(SOON), "the whole chain", async || {
        liqoctl(rome, &["info", "pod", "info/whole"]).map(drop)
    })
    .await?;
    is_whole(&offloaded).await?;
    for case in cases(largest + 1) {
        is_broken(&offloaded, &case).await?;
    }

    offloaded.end().await
}

/// A pod that does not run.
struct Case {
    pod: Value,
    /// The first broken link.
    link: &'static str,
    /// Its title, in which the namespace is that of the link's cluster.
    title: String,
    /// A part of the reason.
    reason: &'static str,
}

/// Returns one case for each cause. `cpu` is more than a node of the provider has.
fn cases(cpu: u64) -> [Case; 4] {
    let case = |name: &str, link, title: &str, reason| Case {
        pod: pod(name, &["sleep", "infinity"]),
        link,
        title: title.replace("NAME", name),
        reason,
    };
    let remote = format!("info-{ROME}/NAME");
    let remote_pod = format!("Remote pod {remote}");
    let mut no_image = case("no-image", "remotePod", &remote_pod, "ImagePull");
    no_image.pod["spec"]["containers"][0]["image"] = "localhost/absent:latest".into();
    let mut too_large = case("too-large", "remotePod", &remote_pod, "Insufficient cpu");
    too_large.pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    let mut no_node = case("no-node", "scheduling", "Scheduling", "affinity/selector");
    no_node.pod["spec"]["nodeSelector"] = json!({"absent": "true"});
    let shadow_pod = format!("ShadowPod {remote}");
    let mut host_path = case("host-path", "shadowPod", &shadow_pod, "hostPath");
    host_path.pod["spec"]["volumes"] = json!([{"name": "host", "hostPath": {"path": "/etc"}}]);

    [no_image, too_large, no_node, host_path]
}

async fn is_whole(offloaded: &Offloaded) -> Result<()> {
    let report = liqoctl(offloaded.rome, &["info", "pod", "info/whole", "-o", "json"])?;
    let report: Value = serde_json::from_str(&report)?;
    let chain = report["chain"].as_array().context("no chain")?;
    let names: Vec<_> = chain.iter().map(|it| it["link"].as_str()).collect();
    ensure!(names == LINKS.map(Some), "{names:?}");
    let is_whole = chain.iter().all(|it| it["state"] == "Whole");
    ensure!(report["whole"] == true && is_whole, "{report:#}");

    let link = |name: &str| {
        let mut links = chain.iter().filter(|it| it["link"] == name);
        links.next().context(name.to_owned())
    };
    ensure!(
        link("scheduling")?["details"]["node"] == MILAN,
        "{report:#}"
    );
    let (shadow, remote) = (link("shadowPod")?, link("remotePod")?);
    ensure!(
        shadow["title"] == format!("ShadowPod info-{ROME}/whole"),
        "{shadow}"
    );
    ensure!(
        remote["title"] == format!("Remote pod info-{ROME}/whole"),
        "{remote}"
    );
    let node = offloaded
        .remote
        .get("pod/whole", "{.spec.nodeName}")
        .await?;
    ensure!(
        !node.is_empty() && remote["details"]["node"] == node,
        "{remote}"
    );
    let containers = format!("{CONTAINER} running");
    ensure!(remote["details"]["containers"] == containers, "{remote}");

    let shown = liqoctl(offloaded.rome, &["info", "pod", "info/whole"])?;
    ensure!(
        shown.contains("Remote pod") && !shown.contains('✖'),
        "{shown}"
    );

    Ok(())
}

/// Waits until `liqoctl` reports the first broken link of a pod, and fails because of it.
async fn is_broken(offloaded: &Offloaded, case: &Case) -> Result<()> {
    let name = case.pod["metadata"]["name"].as_str().context("no name")?;
    let pod = format!("info/{name}");
    until(
        Deadline::after(SOON),
        &format!("the report of {pod}"),
        async || {
            let mut command = liqoctl_command(offloaded.rome)?;
            let output = command.args(["info", "pod", &pod, "-o", "json"]).output()?;
            ensure!(output.status.code() == Some(1), "{output:?}");
            let report: Value = serde_json::from_slice(&output.stdout)?;
            let end = &report["end"];
            ensure!(end["link"] == case.link, "{end}");
            ensure!(end["title"] == case.title, "{end}");
            let reason = end["reason"].as_str().unwrap_or_default();
            ensure!(reason.contains(case.reason), "{end}");
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(error.contains(&case.title), "{error}");
            Ok(())
        },
    )
    .await
}
