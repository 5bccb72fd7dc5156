//! The samples that a consumer gets.

use super::fixture::{Agent, ROME, SOON, body, scrape_path, status};
use super::kubelet::{Kubelet, Reply};
use serde_json::json;
use std::sync::Arc;
use telemetry::http::Observed as _;
use tokio::sync::Notify;

/// Text of a kubelet that runs one pod in each of these namespaces.
fn cpu(pods: &[(&str, &str)], node_seconds: f64) -> String {
    let samples: String = pods
        .iter()
        .map(|(namespace, pod)| {
            format!(
                "container_cpu_usage_seconds_total{{container=\"c\",namespace=\"{namespace}\",pod=\"{pod}\"}} 1.5 1700\n"
            )
        })
        .collect();
    format!(
        "# HELP container_cpu_usage_seconds_total CPU time\n# TYPE container_cpu_usage_seconds_total counter\n{samples}\
         # HELP node_cpu_usage_seconds_total CPU time of the node\n# TYPE node_cpu_usage_seconds_total counter\n\
         node_cpu_usage_seconds_total {node_seconds} 1700\n# TYPE scrape_error gauge\nscrape_error 0\n"
    )
}

fn sample(namespace: &str, pod: &str) -> String {
    format!("{{container=\"c\",namespace=\"{namespace}\",pod=\"{pod}\"}} 1.5 1700")
}

async fn kubelet(agent: &Agent, text: String) -> Kubelet {
    Kubelet::start(&agent.cluster, &["127.0.0.1"], Reply::Text(text)).await
}

#[tokio::test]
async fn a_consumer_gets_the_samples_of_its_pods_on_all_nodes_below_one_description() {
    let agent = Agent::ready().await;
    let pods = [
        ("shop-rome", "web"),
        ("kube-system", "proxy"),
        ("shop-milan", "web"),
    ];
    let first = kubelet(&agent, cpu(&pods, 10.0)).await;
    let second = kubelet(&agent, cpu(&[("shop-rome", "db")], 20.25)).await;
    agent.node("n1", &first);
    agent.node("n2", &second);
    agent.namespace("milan", "shop-milan", "shop");
    agent.pod("milan", "shop-milan", "web", "n1");
    agent.pod("rome", "shop-rome", "web", "n1");
    agent.pod("rome", "shop-rome", "db", "n2");

    let path = scrape_path("rome", "metrics/resource");
    let is_complete = |it: &str| it.contains("pod=\"db\"") && it.contains("pod=\"web\"");
    let response = agent.until_response(&path, ROME, is_complete).await;

    assert_eq!(status(&response), 200);
    assert!(response.contains("content-type: text/plain; version=0.0.4"));
    assert_eq!(
        body(&response),
        "# HELP container_cpu_usage_seconds_total CPU time\n\
         # TYPE container_cpu_usage_seconds_total counter\n\
         container_cpu_usage_seconds_total{container=\"c\",namespace=\"shop\",pod=\"web\"} 1.5 1700\n\
         container_cpu_usage_seconds_total{container=\"c\",namespace=\"shop\",pod=\"db\"} 1.5 1700\n\
         # HELP node_cpu_usage_seconds_total CPU time of the node\n\
         # TYPE node_cpu_usage_seconds_total counter\n\
         node_cpu_usage_seconds_total 30.250000 1700\n"
    );
}

#[tokio::test]
async fn a_kubelet_is_asked_with_the_token_and_without_compression() {
    let agent = Agent::ready().await;
    let kubelet = kubelet(&agent, String::new()).await;
    agent.node("n1", &kubelet);
    agent.pod("rome", "shop-rome", "web", "n1");

    for (path, metrics) in [
        ("/metrics ", "metrics"),
        ("/metrics/cadvisor ", "metrics/cadvisor"),
        ("/metrics/probes ", "metrics/probes"),
        ("/metrics/resource ", "metrics/resource"),
    ] {
        let scrape = scrape_path("rome", metrics);
        let asked = || kubelet.heads().iter().any(|head| head.contains(path));
        agent.until_response(&scrape, ROME, |_| asked()).await;
    }

    for head in kubelet.heads() {
        let head = head.to_ascii_lowercase();
        assert!(
            head.contains("authorization: bearer secret-token\r\n"),
            "{head}"
        );
        assert!(
            head.contains("accept: text/plain;version=0.0.4\r\n"),
            "{head}"
        );
        assert!(!head.contains("accept-encoding"), "{head}");
    }
}

#[tokio::test]
async fn no_sample_of_another_pod_leaves_the_agent() {
    let agent = Agent::ready().await;
    let labelled = json!({"offloading.liqo.io/origin": "rome", "liqo.io/managed-by": "shadowpod"});
    let unmanaged = json!({"offloading.liqo.io/origin": "rome"});
    let other = json!({"offloading.liqo.io/origin": "milan", "liqo.io/managed-by": "shadowpod"});
    let text = cpu(
        &[
            ("shop-rome", "visible"),
            ("shop-rome", "unmanaged"),
            ("shop-rome", "of-milan"),
            ("shop-rome", "elsewhere"),
            ("shop-rome", "unknown"),
            ("default", "forged"),
            ("shop-milan", "stolen"),
            ("tenant-rome", "tenant"),
        ],
        1.0,
    );
    let kubelet = kubelet(&agent, text).await;
    agent.node("n1", &kubelet);
    agent.namespace("milan", "shop-milan", "shop");
    // A tenant namespace has no name in the consumer's cluster.
    agent.api_server.put(
        "/api/v1/namespaces/tenant-rome",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-rome",
            "labels": {"liqo.io/remote-cluster-id": "rome"}}}),
    );
    agent.labelled_pod(&unmanaged, "shop-rome", "unmanaged", "n1");
    agent.labelled_pod(&other, "shop-rome", "of-milan", "n1");
    agent.labelled_pod(&labelled, "shop-rome", "elsewhere", "n2");
    // Users of this cluster can set labels of their own pods.
    agent.labelled_pod(&labelled, "default", "forged", "n1");
    agent.labelled_pod(&labelled, "shop-milan", "stolen", "n1");
    agent.labelled_pod(&labelled, "tenant-rome", "tenant", "n1");
    // The last object: when it is visible, so are the others.
    agent.labelled_pod(&labelled, "shop-rome", "visible", "n1");

    let path = scrape_path("rome", "metrics/cadvisor");
    let response = agent
        .until_response(&path, ROME, |it| it.contains("visible"))
        .await;

    let samples: Vec<_> = body(&response)
        .lines()
        .filter(|it| it.contains('{'))
        .collect();
    let expected = format!(
        "container_cpu_usage_seconds_total{}",
        sample("shop", "visible")
    );
    assert_eq!(samples, [expected.as_str()]);
}

#[tokio::test]
async fn a_pod_that_is_gone_and_a_namespace_of_another_consumer_are_hidden_at_once() {
    let agent = Agent::ready().await;
    let text = cpu(&[("shop-rome", "web"), ("shop-rome", "db")], 1.0);
    let kubelet = kubelet(&agent, text).await;
    agent.node("n1", &kubelet);
    agent.pod("rome", "shop-rome", "web", "n1");
    agent.pod("rome", "shop-rome", "db", "n1");
    let path = scrape_path("rome", "metrics/cadvisor");
    let both = |it: &str| it.contains("web") && it.contains("db");
    agent.until_response(&path, ROME, both).await;

    agent
        .api_server
        .remove("/api/v1/namespaces/shop-rome/pods/db");
    agent
        .until_response(&path, ROME, |it| !it.contains("db"))
        .await;
    agent.namespace("milan", "shop-rome", "shop");
    let response = agent
        .until_response(&path, ROME, |it| !it.contains("web"))
        .await;

    assert_eq!((status(&response), body(&response)), (200, ""));
}

#[tokio::test]
async fn hostile_lines_of_a_kubelet_are_dropped() {
    let agent = Agent::ready().await;
    let lines = [
        "m{namespace=\"shop-rome\",pod=\"web\",namespace=\"kube-system\"} 1".to_owned(),
        "m{pod=\"x\\\",namespace=\\\"shop-rome\\\",pod=\\\"web\",namespace=\"other\"} 1".to_owned(),
        "m{namespace=\"shop-rome\",pod=\"web\"".to_owned(),
        "m{namespace=\"shop-rome\",pod=\"web\"} one".to_owned(),
        "m{namespace=\"shop-rome\",pod=\"web\"} 1 2 3".to_owned(),
        "{\"m\",namespace=\"shop-rome\",pod=\"web\"} 1".to_owned(),
        "# TYPE m evil".to_owned(),
        "# TYPE".to_owned(),
        "\u{0}\u{1b}[2J".to_owned(),
        format!(
            "m{{namespace=\"shop-rome\",pod=\"web\",long=\"{}\"}} 1",
            "x".repeat(100_000)
        ),
        "good{namespace=\"shop-rome\",pod=\"web\"} NaN".to_owned(),
    ];
    let kubelet = kubelet(&agent, lines.join("\n")).await;
    agent.node("n1", &kubelet);
    agent.pod("rome", "shop-rome", "web", "n1");

    let path = scrape_path("rome", "metrics");
    let response = agent
        .until_response(&path, ROME, |it| it.contains("good"))
        .await;

    assert_eq!(
        body(&response),
        "good{namespace=\"shop\",pod=\"web\"} NaN\n"
    );
    assert!(
        agent
            .metrics()
            .contains("lines_total{fate=\"malformed\"} 9"),
        "{}",
        agent.metrics()
    );
}

#[tokio::test]
async fn a_second_scrape_gets_a_connection_of_its_own_while_one_is_slow() {
    let agent = Agent::ready().await;
    let slow = Kubelet::start(&agent.cluster, &["127.0.0.1"], Reply::Silence).await;
    agent.node("n1", &slow);
    agent.pod("rome", "shop-rome", "web", "n1");
    let scrape = scrape_path("rome", "metrics");
    let identity = agent.proxies.client("front-proxy-client");
    let request = super::fixture::get(&scrape, ROME);
    let sent = agent.send(Some(identity), &request);
    let mut sent = std::pin::pin!(sent);
    tokio::select! {
        _ = &mut sent => panic!("the kubelet does not respond"),
        () = agent.until(|| !slow.heads().is_empty()) => {}
    }

    let discovery = agent.get("/apis/metrics.liqo.io/v1beta1", ROME);
    let discovery = tokio::time::timeout(SOON, discovery).await.unwrap();

    assert_eq!(status(&discovery), 200);
}

#[tokio::test]
async fn a_scrape_in_progress_ends_before_the_agent_stops() {
    let agent = Agent::ready().await;
    let notify = Arc::new(Notify::new());
    let text = "m{namespace=\"shop-rome\",pod=\"web\"} 1\n".to_owned();
    let reply = Reply::Later(Arc::clone(&notify), text);
    let kubelet = Kubelet::start(&agent.cluster, &["127.0.0.1"], reply).await;
    agent.node("n1", &kubelet);
    agent.pod("rome", "shop-rome", "web", "n1");
    let path = scrape_path("rome", "metrics");
    // The pod may not be in the cache yet.
    notify.notify_one();
    agent
        .until_response(&path, ROME, |it| it.contains("web"))
        .await;
    let asked = kubelet.heads().len();
    let scrape = agent.get(&path, ROME);
    let mut scrape = std::pin::pin!(scrape);
    tokio::select! {
        response = &mut scrape => panic!("the kubelet does not respond yet: {response}"),
        () = agent.until(|| kubelet.heads().len() > asked) => {}
    }

    agent.stop();
    agent.until(|| agent.state.ready().is_err()).await;
    agent.until_closed().await;
    notify.notify_one();
    let response = tokio::time::timeout(SOON, scrape).await.unwrap();

    assert_eq!(status(&response), 200, "{response}");
    assert!(response.contains("pod=\"web\""), "{response}");
}
