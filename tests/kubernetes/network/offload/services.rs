//! Services of a consumer, reached from pods of both clusters.

use super::{is_gone, peered};
use crate::ROME;
use crate::fixture::{Peering, SOON, Suite, liqoctl, serial};
use crate::peering::unpeer;
use anyhow::{Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use std::collections::BTreeSet;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        services_of_all_types_reach_pods_in_both_clusters,
        a_service_alone_is_reached_from_the_other_cluster,
    );
}

const SERVICES: &str = include_str!("../manifests/services.yaml");

const POD: &str = include_str!("../manifests/services-pod.yaml");

/// Requests of which a Service without affinity sends some to each of two pods, but for once in half a million.
const REQUESTS: usize = 20;

/// A pod in each cluster, and the operator by which its node is selected.
const PODS: [(&str, &str); 2] = [("here", "NotIn"), ("there", "In")];

async fn services_of_all_types_reach_pods_in_both_clusters(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peered(peering).await?;
    let home = Namespace::create(rome, "services").await?;
    let strategy = "--pod-offloading-strategy=LocalAndRemote";
    liqoctl(rome, &["offload", "namespace", "services", strategy])?;
    home.apply(SERVICES).await?;
    for (name, operator) in PODS {
        let pod = POD.replace("NAME", name).replace("OPERATOR", operator);
        home.apply(&pod).await?;
        home.wait(&format!("pod/{name}"), "Ready").await?;
    }

    let remote = Namespace::existing(milan, &format!("services-{ROME}")).await?;
    let both = BTreeSet::from(["here", "there"]);
    for (namespace, client) in [(&home, "here"), (&remote, "there")] {
        until_all_reply(namespace, client, "all", &both).await?;
        for name in ["here", "there"] {
            let host = format!("{name}.each:8080");
            let replying = replies(namespace, client, &host, 1).await?;
            ensure!(
                replying == [name.to_owned()].into(),
                "{client}, {host}: {replying:?}"
            );
        }
        let replying = replies(namespace, client, "same", REQUESTS).await?;
        ensure!(replying.len() == 1, "{client}, same: {replying:?}");
        let replying = replies(namespace, client, "near", REQUESTS).await?;
        ensure!(
            replying == [client.to_owned()].into(),
            "{client}, near: {replying:?}"
        );
    }

    liqoctl(
        rome,
        &["unoffload", "namespace", "services", "--skip-confirm"],
    )?;
    is_gone(milan, &format!("services-{ROME}"))?;
    home.kubectl(&["delete", "pods", "--all", "--wait"]).await?;
    unpeer([rome, milan], &[]).await
}

/// All pods stay in the consumer; the clients are pods that the provider's users create in the remote namespace.
async fn a_service_alone_is_reached_from_the_other_cluster(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peered(peering).await?;
    let home = Namespace::create(rome, "alone").await?;
    let strategy = "--pod-offloading-strategy=Local";
    liqoctl(rome, &["offload", "namespace", "alone", strategy])?;
    home.apply(SERVICES).await?;
    let pod = POD.replace("NAME", "here").replace("OPERATOR", "NotIn");
    home.apply(&pod).await?;
    home.wait("pod/here", "Ready").await?;
    let remote = Namespace::existing(milan, &format!("alone-{ROME}")).await?;
    let client = POD.replace("NAME", "client").replace("OPERATOR", "NotIn");
    // It serves no requests of its own.
    remote
        .apply(&client.replace("app: services", "app: client"))
        .await?;
    remote.wait("pod/client", "Ready").await?;

    for service in ["all", "each:8080", "same"] {
        until_all_reply(&remote, "client", service, &["here"].into()).await?;
    }

    remote
        .kubectl(&["delete", "pod", "client", "--wait"])
        .await?;
    liqoctl(rome, &["unoffload", "namespace", "alone", "--skip-confirm"])?;
    is_gone(milan, &format!("alone-{ROME}"))?;
    unpeer([rome, milan], &[]).await
}

/// Waits until all of these pods have replied to requests of a pod, and no other.
async fn until_all_reply(
    namespace: &Namespace,
    client: &str,
    service: &str,
    expected: &BTreeSet<&str>,
) -> Result<()> {
    let what = format!("replies of {service} to {client}");
    until(Deadline::after(SOON), &what, async || {
        let replying = replies(namespace, client, service, REQUESTS).await?;
        let replying: BTreeSet<&str> = replying.iter().map(String::as_str).collect();
        ensure!(replying == *expected, "{replying:?}");
        Ok(())
    })
    .await
}

/// Returns the pods that reply to requests of a pod.
async fn replies(
    namespace: &Namespace,
    client: &str,
    host: &str,
    requests: usize,
) -> Result<BTreeSet<String>> {
    let command = format!(
        "for i in $(seq {requests}); do curl -sSf -m 5 http://{host}/ | sed -n 's/.* pod=\\([^ ]*\\) .*/\\1/p'; done"
    );
    let output = namespace.sh(client, &command).await?;

    Ok(output.lines().map(str::to_owned).collect())
}
