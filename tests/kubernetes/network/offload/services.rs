//! Services of a consumer, reached from pods of both clusters.

use super::{is_gone, peered, until_node_is_ready};
use crate::fixture::{Peering, SOON, Suite, install, install_with, liqoctl, serial};
use crate::peering::{connected_again, peer, unpeer};
use crate::removal::kubectl;
use crate::three::naples;
use crate::{NAPLES, ROME};
use anyhow::{Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::image::laboratory::ingress_image;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::spec::{KubeProxy, Spec};
use kubernetes_lab::wait::{Deadline, until};
use std::collections::BTreeSet;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        services_of_all_types_reach_pods_in_both_clusters,
        services_reach_pods_across_the_modes_of_kube_proxy,
        a_service_alone_is_reached_from_the_other_cluster,
        an_ingress_is_served_by_the_controllers_of_both_clusters,
    );
}

const SERVICES: &str = include_str!("../manifests/services.yaml");

const POD: &str = include_str!("../manifests/services-pod.yaml");

/// Requests of which a Service without affinity sends some to each of two pods, but for once in half a million.
const REQUESTS: usize = 20;

/// Ingress controllers of the clusters, and their classes.
const CONTROLLER: &str = include_str!("../manifests/ingress-controller.yaml");

const INGRESS: &str = include_str!("../manifests/ingress.yaml");

const CLASSES: [&str; 2] = ["laboratory", "of-the-provider"];

/// Chart value with the class that the provider offers.
const OFFERED: &str = "offloading.reflection.ingress.ingressClasses[0].name";

/// A pod in each cluster, and the operator by which its node is selected.
const PODS: [(&str, &str); 2] = [("here", "NotIn"), ("there", "In")];

async fn services_of_all_types_reach_pods_in_both_clusters(
    peering: &'static Peering,
) -> Result<()> {
    reach_pods_in_both(peered(peering).await?).await
}

/// `kube-proxy` forwards by nftables in the consumer, and by iptables in the provider.
async fn services_reach_pods_across_the_modes_of_kube_proxy(
    peering: &'static Peering,
) -> Result<()> {
    connected_again(peering);
    let mut spec = Spec::new(NAPLES);
    spec.kube_proxy = KubeProxy::Iptables;
    let naples = naples(peering, spec).await?;
    ensure!(peering.rome.spec.kube_proxy == KubeProxy::Nftables);
    let pair = [&peering.rome, &naples];
    peer(pair, &["--cpu=4", "--memory=4Gi"])?;
    until_node_is_ready(pair).await?;

    reach_pods_in_both(pair).await
}

/// Offloads a namespace with a pod in each cluster. Returns it, and its namespace at the provider.
async fn offloaded([rome, provider]: [&Cluster; 2], name: &str) -> Result<[Namespace; 2]> {
    let home = Namespace::create(rome, name).await?;
    let strategy = "--pod-offloading-strategy=LocalAndRemote";
    liqoctl(rome, &["offload", "namespace", name, strategy])?;
    home.apply(SERVICES).await?;
    for (name, operator) in PODS {
        let pod = POD.replace("NAME", name).replace("OPERATOR", operator);
        home.apply(&pod).await?;
        home.wait(&format!("pod/{name}"), "Ready").await?;
    }
    let remote = Namespace::existing(provider, &format!("{name}-{ROME}")).await?;

    Ok([home, remote])
}

/// Ends the offloading of a namespace, and the peering.
async fn withdraw(clusters: [&Cluster; 2], home: &Namespace) -> Result<()> {
    let [rome, provider] = clusters;
    let name = home.name();
    liqoctl(rome, &["unoffload", "namespace", name, "--skip-confirm"])?;
    is_gone(provider, &format!("{name}-{ROME}"))?;
    home.kubectl(&["delete", "pods", "--all", "--wait"]).await?;
    unpeer(clusters, &[]).await
}

async fn reach_pods_in_both(clusters: [&Cluster; 2]) -> Result<()> {
    let [home, remote] = offloaded(clusters, "services").await?;
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

    withdraw(clusters, &home).await
}

/// A client of each cluster is served by the controller of its cluster, whose Service has endpoints in both.
async fn an_ingress_is_served_by_the_controllers_of_both_clusters(
    peering: &'static Peering,
) -> Result<()> {
    install_with(
        &peering.milan,
        &[&format!("--set={OFFERED}={}", CLASSES[1])],
    )?;
    let clusters = peered(peering).await?;
    let [rome, milan] = clusters;
    let images = rome.folder().join("images-of-tests");
    let image = ingress_image(rome.artifacts().folder(), &images)?;
    let mut controllers = Vec::new();
    for (cluster, class) in clusters.into_iter().zip(CLASSES) {
        cluster.load(&image.archive)?;
        let namespace = Namespace::create(cluster, "ingress").await?;
        let manifest = CONTROLLER.replace("CLASS", class);
        let manifest = manifest.replace("CLUSTER", cluster.name());
        namespace.apply(&manifest).await?;
        namespace
            .rolled_out("deployment/ingress-controller")
            .await?;
        controllers.push(namespace);
    }
    let namespaces = offloaded(clusters, "site").await?;
    let [home, remote] = &namespaces;
    let clients = [(home, "here", rome), (remote, "there", milan)];
    let ingress = |host: &str| INGRESS.replace("CLASS", CLASSES[0]).replace("HOST", host);

    home.apply(&ingress("a.example")).await?;
    for (namespace, client, cluster) in clients {
        until_served(namespace, client, cluster, "a.example").await?;
    }
    let class = remote
        .get("ingress/web", "{.spec.ingressClassName}")
        .await?;
    ensure!(class == CLASSES[1], "{class}");
    home.apply(&ingress("b.example")).await?;
    for (namespace, client, cluster) in clients {
        until_served(namespace, client, cluster, "b.example").await?;
        until_unknown(namespace, client, "a.example").await?;
    }
    home.kubectl(&["delete", "ingress", "web"]).await?;
    for (namespace, client, _) in clients {
        until_unknown(namespace, client, "b.example").await?;
    }

    for (cluster, class) in clusters.into_iter().zip(CLASSES) {
        kubectl(cluster, &["delete", "ingressclass", class])?;
        for kind in ["clusterrolebinding", "clusterrole"] {
            kubectl(cluster, &["delete", kind, "ingress-controller"])?;
        }
    }
    withdraw(clusters, home).await?;
    install(milan)
}

/// Waits until the controller of a cluster forwards the requests of a pod to the pods of both clusters.
async fn until_served(
    namespace: &Namespace,
    client: &str,
    cluster: &Cluster,
    host: &str,
) -> Result<()> {
    let what = format!("responses of {host} to {client}");
    let header = format!("X-Controller: {}", cluster.name());
    until(Deadline::after(SOON), &what, async || {
        let mut replying = BTreeSet::new();
        for _ in 0..REQUESTS {
            let response = request(namespace, client, host).await?;
            let is_ok = response.starts_with("HTTP/1.1 200 ") && response.contains(&header);
            ensure!(is_ok, "{response}");
            for (pod, _) in PODS {
                if response.contains(&format!(" pod={pod} ")) {
                    replying.insert(pod);
                }
            }
        }
        ensure!(replying.len() == PODS.len(), "{replying:?}");
        Ok(())
    })
    .await
}

/// Waits until the controller has no rule for a host.
async fn until_unknown(namespace: &Namespace, client: &str, host: &str) -> Result<()> {
    until(Deadline::after(SOON), host, async || {
        let response = request(namespace, client, host).await?;
        ensure!(response.starts_with("HTTP/1.1 404 "), "{response}");
        Ok(())
    })
    .await
}

/// Returns the response to a request of a pod to the Ingress controller of its cluster.
async fn request(namespace: &Namespace, client: &str, host: &str) -> Result<String> {
    let command = format!("curl -sS -i -m 5 -H 'Host: {host}' http://controller.ingress/");

    namespace.sh(client, &command).await
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
