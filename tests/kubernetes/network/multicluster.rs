//! Services that clusters export to each other, by their names in `clusterset.local`.

use crate::fixture::{Peering, SOON, Suite, install, install_with, serial};
use crate::offload::peered;
use crate::peering::unpeer;
use crate::removal::kubectl;
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        exported_services_are_resolved_and_reached_from_all_clusters
    );
}

const SERVICES: &str = include_str!("manifests/services.yaml");

const POD: &str = include_str!("manifests/services-pod.yaml");

const DNS: &str = include_str!("manifests/clusterset-dns.yaml");

/// Plugin of CoreDNS, as the laboratory configures it and with the zone of imported Services.
const ZONES: [&str; 2] = [
    "kubernetes cluster.local in-addr.arpa ip6.arpa {",
    "kubernetes cluster.local clusterset.local in-addr.arpa ip6.arpa {\n        multicluster clusterset.local",
];

/// Imported Services of the namespace `clusterset`.
const ZONE: &str = "clusterset.svc.clusterset.local";

/// Requests of which a Service without affinity sends some to each of two pods, but for once in half a million.
const REQUESTS: usize = 20;

/// The pod of each cluster.
const PODS: [(&str, &str); 2] = [(ROME, "in-rome"), (MILAN, "in-milan")];

async fn exported_services_are_resolved_and_reached_from_all_clusters(
    peering: &'static Peering,
) -> Result<()> {
    let clusters = peered(peering).await?;
    // A consumer asks a provider that refuses its watch again after 60 to 100 s.
    for cluster in clusters.into_iter().rev() {
        install_with(cluster, &["--set=multiCluster.enabled=true"])?;
        serve_clusterset(cluster, ZONES)?;
    }
    let mut shops = Vec::new();
    for (cluster, (_, pod)) in clusters.into_iter().zip(PODS) {
        shops.push(shop(cluster, pod).await?);
    }
    let [of_rome, of_milan] = shops.as_slice() else {
        anyhow::bail!("not two namespaces");
    };

    for (namespace, client) in [(of_rome, "in-rome"), (of_milan, "in-milan")] {
        until_unknown(namespace, client, "all").await?;
    }

    // The provider exports, which the consumer reads there.
    for service in ["all", "each", "ports"] {
        export(of_milan, service).await?;
    }
    for (namespace, client) in [(of_rome, "in-rome"), (of_milan, "in-milan")] {
        until_all_reply(namespace, client, "all", &["in-milan"]).await?;
        let host = format!("in-milan.{MILAN}.each");
        until_all_reply(namespace, client, &format!("{host}:8080"), &["in-milan"]).await?;
    }
    // The consumer exports, too. Of ports with one name, that of the older export counts.
    for service in ["all", "each", "ports"] {
        export(of_rome, service).await?;
    }
    for (namespace, client) in [(of_rome, "in-rome"), (of_milan, "in-milan")] {
        until_all_reply(namespace, client, "all", &["in-milan", "in-rome"]).await?;
        until_all_reply(namespace, client, "ports:80", &["in-milan"]).await?;
        until_all_reply(namespace, client, "ports:4242", &["in-rome"]).await?;
        until_both_are_resolved(namespace, client, "each").await?;
        let all = format!("80 all.{ZONE}");
        until_records(namespace, client, "all", &[&all]).await?;
        let each = PODS.map(|(cluster, pod)| format!("8080 {pod}.{cluster}.each.{ZONE}"));
        let each = each.each_ref().map(String::as_str);
        until_records(namespace, client, "each", &each).await?;
        for (cluster, pod) in PODS {
            let host = format!("{pod}.{cluster}.each:8080");
            until_all_reply(namespace, client, &host, &[pod]).await?;
        }
    }

    // What ends at one cluster ends at both.
    for namespace in [of_rome, of_milan] {
        namespace
            .kubectl(&["delete", "serviceexports", "--all", "--wait"])
            .await?;
    }
    for (namespace, client) in [(of_rome, "in-rome"), (of_milan, "in-milan")] {
        until_unknown(namespace, client, "all").await?;
    }
    for cluster in clusters {
        is_empty(cluster).await?;
        serve_clusterset(cluster, [ZONES[1], ZONES[0]])?;
        install(cluster)?;
        // Helm keeps the two kinds, with the objects of users.
        let kinds =
            ["serviceexports", "serviceimports"].map(|it| format!("{it}.multicluster.x-k8s.io"));
        kubectl(cluster, &["delete", "crd", &kinds[0], &kinds[1]])?;
        let rights = ["clusterrole,clusterrolebinding", "coredns-multi-cluster"];
        kubectl(cluster, &[&["delete"], &rights[..]].concat())?;
    }
    unpeer(clusters, &[]).await
}

/// Creates the namespace of the Services with a pod, which imports Services.
async fn shop(cluster: &Cluster, pod: &str) -> Result<Namespace> {
    let namespace = Namespace::create(cluster, "clusterset").await?;
    let label = "multicluster.liqo.io/import=true";
    kubectl(cluster, &["label", "namespace", "clusterset", label])?;
    namespace.apply(SERVICES).await?;
    let ports = match pod {
        "in-milan" => json!([port("http", 80)]),
        _ => json!([port("http", 81), port("other", 4242)]),
    };
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "ports"},
        "spec": {"selector": {"app": "services"}, "ports": ports},
    });
    namespace.apply(&service.to_string()).await?;
    let manifest = POD.replace("NAME", pod).replace("OPERATOR", "NotIn");
    namespace.apply(&manifest).await?;
    namespace.wait(&format!("pod/{pod}"), "Ready").await?;

    Ok(namespace)
}

/// Returns a port of a Service to the pod's port.
fn port(name: &str, port: u16) -> Value {
    json!({"name": name, "port": port, "targetPort": 8080})
}

async fn export(namespace: &Namespace, service: &str) -> Result<()> {
    let manifest = format!(
        "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata:\n  name: {service}\n"
    );
    namespace.apply(&manifest).await
}

/// Has CoreDNS serve the zone of imported Services, or no longer.
fn serve_clusterset(cluster: &Cluster, [old, new]: [&str; 2]) -> Result<()> {
    let file = cluster.folder().join("coredns.yaml");
    let words = [
        "get",
        "configmap",
        "coredns",
        "-n",
        "kube-system",
        "-o",
        "json",
    ];
    let mut config: Value = serde_json::from_str(&kubectl(cluster, &words)?)?;
    let corefile = config["data"]["Corefile"].as_str().context("no Corefile")?;
    ensure!(corefile.contains(old), "{corefile}");
    config["data"]["Corefile"] = corefile.replace(old, new).into();
    std::fs::write(&file, config.to_string())?;
    kubectl(cluster, &["replace", "-f", &file.display().to_string()])?;
    std::fs::write(&file, DNS)?;
    kubectl(cluster, &["apply", "-f", &file.display().to_string()])?;
    let deployment = ["deployment/coredns", "-n", "kube-system"];
    kubectl(
        cluster,
        &[&["rollout", "restart"], &deployment[..]].concat(),
    )?;
    kubectl(cluster, &[&["rollout", "status"], &deployment[..]].concat())?;

    Ok(())
}

/// Waits until all of these pods have replied to requests of a pod to an imported Service, and no other.
async fn until_all_reply(
    namespace: &Namespace,
    client: &str,
    service: &str,
    expected: &[&str],
) -> Result<()> {
    let (host, port) = service.split_once(':').unwrap_or((service, "80"));
    let url = format!("http://{host}.{ZONE}:{port}/");
    let what = format!("replies of {url} to {client}");
    let command = format!(
        "for i in $(seq {REQUESTS}); do curl -sSf -m 5 {url} | sed -n 's/.* pod=\\([^ ]*\\) .*/\\1/p'; done"
    );
    until(Deadline::after(SOON), &what, async || {
        let output = namespace.sh(client, &command).await?;
        let replying: BTreeSet<&str> = output.lines().collect();
        ensure!(replying == expected.iter().copied().collect(), "{output}");
        Ok(())
    })
    .await
}

/// Waits until the name of a headless Service leads to the pods of both clusters. Clients of `getaddrinfo` sort them by their prefix.
async fn until_both_are_resolved(namespace: &Namespace, client: &str, service: &str) -> Result<()> {
    let name = format!("{service}.{ZONE}.");
    until(Deadline::after(SOON), &name, async || {
        let command = format!("nslookup -type=A {name}");
        let output = namespace.sh(client, &command).await?;
        // The line of the name server has a tab.
        let addresses = output.lines().filter_map(|it| it.strip_prefix("Address: "));
        let addresses: BTreeSet<_> = addresses.collect();
        ensure!(addresses.len() == 2, "{output}");
        Ok(())
    })
    .await
}

/// Waits until the SRV records of a Service are these: port and name.
async fn until_records(
    namespace: &Namespace,
    client: &str,
    service: &str,
    expected: &[&str],
) -> Result<()> {
    let what = format!("the SRV records of {service}");
    let command = format!("nslookup -type=SRV {service}.{ZONE}.");
    until(Deadline::after(SOON), &what, async || {
        let output = namespace.sh(client, &command).await?;
        // NAME service = PRIORITY WEIGHT PORT TARGET
        let records = output.lines().filter_map(|it| it.split_once("service = "));
        let records = records.filter_map(|(_, it)| it.trim_end_matches('.').splitn(3, ' ').nth(2));
        let records: BTreeSet<_> = records.collect();
        ensure!(records == expected.iter().copied().collect(), "{output}");
        Ok(())
    })
    .await
}

/// Waits until the name of a Service, which no cluster exports, does not exist.
async fn until_unknown(namespace: &Namespace, client: &str, service: &str) -> Result<()> {
    let what = format!("the absence of {service}.{ZONE}");
    let command = format!("nslookup {service}.{ZONE}. || true");
    until(Deadline::after(SOON), &what, async || {
        let output = namespace.sh(client, &command).await?;
        ensure!(output.contains("NXDOMAIN"), "{output}");
        Ok(())
    })
    .await
}

/// Waits until nothing of an imported Service remains.
async fn is_empty(cluster: &Cluster) -> Result<()> {
    until(
        Deadline::after(SOON),
        "the end of the imports",
        async || {
            for kinds in [
                "serviceimports,exportedservices.networking.liqo.io",
                "services,endpointslices -l liqo.io/managed-by=serviceimport",
            ] {
                let words = kinds.split(' ');
                let words: Vec<_> = ["get", "-A", "-o", "name"]
                    .into_iter()
                    .chain(words)
                    .collect();
                let left = kubectl(cluster, &words)?;
                ensure!(left.is_empty(), "{left}");
            }
            Ok(())
        },
    )
    .await
}
