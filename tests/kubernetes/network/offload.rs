//! Tests of offloaded pods, which run in the other cluster's containerd.

mod access;
mod both_sides;
mod cuts;
mod daemon_sets;
mod deletion;
mod direct;
mod home_api_server;
mod kills;
mod lost_consumer;
mod many;
mod names;
mod order;
mod outage;
mod outside;
mod reflected;
mod selector;
mod services;
mod shop;
mod standby;
mod tools;
mod upstream_test;
mod virtual_nodes;
mod workload;

use crate::fixture::{Peering, SOON, Suite, liqoctl, remapped, serial};
use crate::peering::{connected_again, peer, unpeer};
use crate::removal::kubectl;
use crate::{ROME, page};
use access::logs_commands_files_and_ports_of_offloaded_pods;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use order::Order;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        pods_of_an_offloaded_namespace_run_in_the_other_cluster,
        pods_of_both_clusters_share_services_configuration_and_tokens,
        logs_commands_files_and_ports_of_offloaded_pods,
        the_page_shows_the_output_of_its_commands
    );
    access::add(suite);
    kills::add(suite);
    lost_consumer::add(suite);
    cuts::add(suite);
    outage::add(suite);
    deletion::add(suite);
    many::add(suite);
    names::add(suite);
    virtual_nodes::add(suite);
    home_api_server::add(suite);
    standby::add(suite);
    daemon_sets::add(suite);
    selector::add(suite);
    services::add(suite);
    direct::add(suite);
    outside::add(suite);
    shop::add(suite);
    upstream_test::add(suite);
    tools::add(suite);
}

const PAGE: &str = include_str!("../../../docs/offloading.md");

/// ConfigMap, Secret and Service of the pods of [`HELLO_POD`].
const HELLO: &str = include_str!("manifests/hello.yaml");

/// A pod that replies by HTTP.
const HELLO_POD: &str = include_str!("manifests/hello-pod.yaml");

/// Where Kubernetes mounts the token of a pod's ServiceAccount.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A Deployment whose pods reply by HTTP. They may run on any node.
const WEB: &str = include_str!("manifests/offloaded.yaml");

/// Peers both clusters, and waits until the virtual node of rome is ready.
pub(crate) async fn peered(peering: &'static Peering) -> Result<[&'static Cluster; 2]> {
    let [rome, milan] = peering.clusters();
    connected_again(peering);
    peer([rome, milan], &["--cpu=4", "--memory=4Gi"])?;
    until_node_is_ready([rome, milan]).await?;

    Ok([rome, milan])
}

async fn pods_of_an_offloaded_namespace_run_in_the_other_cluster(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peered(peering).await?;

    // The namespace goes with the test, and its offloading with it.
    let shop = Namespace::create(rome, "shop").await?;
    let words = [
        "offload",
        "namespace",
        "shop",
        "--pod-offloading-strategy=Remote",
    ];
    liqoctl(rome, &words)?;
    shop.apply(WEB).await?;
    shop.rolled_out("deployment/web").await?;
    let mut objects = vec![("api/v1/configmaps", "kube-root-ca.crt.it-ro".to_owned())];
    for pod in shop.pods("app=web").await? {
        is_offloaded(&shop, milan, &pod).await?;
        objects.push(("apis/offloading.liqo.io/v1beta1/shadowpods", pod.clone()));
        objects.push(("api/v1/pods", pod));
    }

    let order = Order::watch(milan, "shop-it-rome", &objects).await?;
    liqoctl(rome, &["unoffload", "namespace", "shop", "--skip-confirm"])?;
    is_gone(milan, "shop-it-rome")?;
    order.check().await?;
    shop.kubectl(&["delete", "deployment", "web", "--wait"])
        .await?;
    unpeer([rome, milan], &[]).await
}

async fn pods_of_both_clusters_share_services_configuration_and_tokens(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peered(peering).await?;
    let hello = Namespace::create(rome, "hello").await?;
    let strategy = "--pod-offloading-strategy=LocalAndRemote";
    liqoctl(rome, &["offload", "namespace", "hello", strategy])?;
    hello.apply(HELLO).await?;
    for (name, operator) in [("here", "NotIn"), ("there", "In")] {
        let pod = HELLO_POD.replace("NAME", name);
        hello.apply(&pod.replace("OPERATOR", operator)).await?;
    }
    for pod in ["pod/here", "pod/there"] {
        hello.wait(pod, "Ready").await?;
    }
    is_offloaded(&hello, milan, "there").await?;

    // Commands run in the pods by the API servers of their clusters.
    let remote = Namespace::existing(milan, &format!("hello-{ROME}")).await?;
    for (namespace, pod) in [(&hello, "here"), (&remote, "there")] {
        for other in ["here", "there"] {
            until_replies(namespace, pod, other).await?;
        }
        let files = namespace
            .sh(pod, "cat /greeting/text /password/text")
            .await?;
        ensure!(files == "helloopen sesame", "{pod}: {files}");
    }

    is_client_of_home(&remote, "there", "system:serviceaccount:hello:default").await?;
    let root_ca = remote.sh("there", &format!("cat {ACCOUNT}/ca.crt")).await?;
    let expected = hello
        .get("configmap/kube-root-ca.crt", r"{.data.ca\.crt}")
        .await?;
    ensure!(root_ca.trim() == expected.trim(), "{root_ca}");
    let words = [
        "get",
        "events",
        "-o",
        "jsonpath={.items[?(@.reason==\"FailedMount\")].message}",
    ];
    let failures = remote.kubectl(&words).await?;
    ensure!(failures.is_empty(), "{failures}");

    liqoctl(rome, &["unoffload", "namespace", "hello", "--skip-confirm"])?;
    is_gone(milan, &format!("hello-{ROME}"))?;
    hello
        .kubectl(&["delete", "pods", "--all", "--wait"])
        .await?;
    unpeer([rome, milan], &[]).await
}

async fn the_page_shows_the_output_of_its_commands(peering: &'static Peering) -> Result<()> {
    let clusters = peered(peering).await?;
    page::compare(peering, "offloading.md", PAGE).await?;
    unpeer(clusters, &[]).await
}

/// Waits until the API server that a pod finds by its environment knows it as `user`, by token and root CA of the pod's cluster.
async fn is_client_of_home(namespace: &Namespace, pod: &str, user: &str) -> Result<()> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = format!(
        "curl -sS -m 5 --cacert {ACCOUNT}/ca.crt -H \"Authorization: Bearer $(cat {ACCOUNT}/token)\" \
         -H 'Content-Type: application/json' -d '{review}' \
         https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/apis/authentication.k8s.io/v1/selfsubjectreviews"
    );
    let what = format!("{pod} to be a client of the API server of its cluster");
    until(Deadline::after(SOON), &what, async || {
        let reply = namespace.sh(pod, &request).await?;
        ensure!(
            reply.contains(&format!("\"username\": \"{user}\"")),
            "{reply}"
        );
        Ok(())
    })
    .await
}

/// Waits until the Service replies to a pod by another one.
async fn until_replies(namespace: &Namespace, pod: &str, other: &str) -> Result<()> {
    let what = format!("{other} to reply to {pod}");
    until(Deadline::after(SOON), &what, async || {
        let reply = namespace.sh(pod, "curl -sS -m 2 http://hello/").await?;
        ensure!(reply.contains(other), "{reply}");
        Ok(())
    })
    .await
}

/// Checks that no namespace has this name.
fn is_gone(cluster: &Cluster, namespace: &str) -> Result<()> {
    let words = [
        "get",
        "namespace",
        namespace,
        "--ignore-not-found",
        "-o",
        "name",
    ];
    let left = kubectl(cluster, &words)?;
    ensure!(left.is_empty(), "{left}");

    Ok(())
}

/// Waits until the virtual node of the provider is ready.
async fn until_node_is_ready([consumer, provider]: [&Cluster; 2]) -> Result<()> {
    until(
        Deadline::after(SOON),
        "the virtual node to be ready",
        async || {
            let node = kubectl(consumer, &["get", "node", provider.name(), "-o", "json"])?;
            let node: Value = serde_json::from_str(&node)?;
            let conditions = node["status"]["conditions"]
                .as_array()
                .context("no conditions")?;
            for condition in conditions {
                let expected = if condition["type"] == "Ready" {
                    "True"
                } else {
                    "False"
                };
                ensure!(condition["status"] == expected, "{condition}");
            }
            Ok(())
        },
    )
    .await
}

/// Checks that a pod of the consumer is the pod of the same name at the provider, with the address by which the consumer
/// reaches that.
async fn is_offloaded(namespace: &Namespace, provider: &Cluster, name: &str) -> Result<()> {
    let consumer = namespace.cluster();
    let pod = kubectl(
        consumer,
        &["get", "pod", name, "-n", namespace.name(), "-o", "json"],
    )?;
    let pod: Value = serde_json::from_str(&pod)?;
    let remote = format!("{}-{}", namespace.name(), consumer.name());
    let counterpart = kubectl(provider, &["get", "pod", name, "-n", &remote, "-o", "json"])?;
    let counterpart: Value = serde_json::from_str(&counterpart)?;
    ensure!(
        pod["spec"]["nodeName"] == provider.name(),
        "{}",
        pod["spec"]["nodeName"]
    );
    for field in ["phase", "startTime"] {
        ensure!(
            pod["status"][field] == counterpart["status"][field],
            "{field}: {pod:#}"
        );
    }
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    ensure!(
        id(&pod).is_string() && id(&pod) == id(&counterpart),
        "{pod:#}"
    );
    let address = |pod: &Value| -> Result<Ipv4Addr> {
        let text = pod["status"]["podIP"].as_str().context("no address")?;
        Ok(text.parse()?)
    };
    let expected = remapped(consumer, provider.name(), address(&counterpart)?).await?;
    ensure!(
        address(&pod)? == expected,
        "{} instead of {expected}",
        address(&pod)?
    );

    Ok(())
}
