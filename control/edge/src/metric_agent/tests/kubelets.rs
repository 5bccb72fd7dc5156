//! Kubelets that fail, and limits.

use super::fixture::{Agent, Authority, ROME, SOON, body, scrape_path, status};
use super::kubelet::{Kubelet, Reply};
use crate::metric_agent::*;
use serde_json::json;
use telemetry::http::Observed as _;
use tokio::net::TcpListener;

const NAMES: &[&str] = &["127.0.0.1"];

/// Text of a kubelet with one pod of `rome`, and with the total of the node.
fn text(pod: &str) -> String {
    format!("m{{namespace=\"shop-rome\",pod=\"{pod}\"}} 1\nnode_cpu_usage_seconds_total 5 1700\n")
}

/// Adds node `good` with a kubelet that reports pod `web`, and node `bad` at an address, with pod `db`.
async fn nodes(agent: &Agent, bad: std::net::SocketAddr) -> Kubelet {
    let good = Kubelet::start(&agent.cluster, NAMES, Reply::Text(text("web"))).await;
    agent.node("good", &good);
    agent.node_at("bad", bad);
    agent.pod("rome", "shop-rome", "db", "bad");
    agent.pod("rome", "shop-rome", "web", "good");
    good
}

/// Returns an agent that waits for kubelets only briefly.
async fn impatient(change: impl FnOnce(&mut Settings)) -> Agent {
    let agent = Agent::start(|settings| {
        settings.kubelets.timeout = Duration::from_millis(300);
        settings.kubelets.connect_timeout = Duration::from_millis(300);
        change(settings);
    })
    .await;
    agent.namespace("rome", "shop-rome", "shop");
    agent.until(|| agent.state.ready().is_ok()).await;
    agent
}

/// Checks that the samples of node `good` are there, and that the response and a metric report the failure of `bad`.
#[track_caller]
fn assert_reports_failure(agent: &Agent, response: &str, reason: &str) {
    assert_eq!(status(response), 200, "{response}");
    let comment =
        "# liqo-metric-agent: samples of 1 of 2 nodes: 1 kubelets have failed, 0 are not asked\n";
    assert!(body(response).starts_with(comment), "{response}");
    assert!(response.contains("pod=\"web\""), "{response}");
    assert!(!response.contains("pod=\"db\""), "{response}");
    // The sum of all nodes would jump.
    assert!(!response.contains("node_cpu"), "{response}");
    let metric =
        format!("kubelet_requests_total{{endpoint=\"/metrics/resource\",outcome=\"{reason}\"}}");
    assert!(agent.metrics().contains(&metric), "{}", agent.metrics());
}

async fn scrape_with(agent: &Agent, bad: std::net::SocketAddr) -> (Kubelet, String) {
    let good = nodes(agent, bad).await;
    let path = scrape_path("rome", "metrics/resource");
    let is_complete = |it: &str| it.contains("web") && it.contains("failed");
    let response = agent.until_response(&path, ROME, is_complete).await;
    (good, response)
}

#[tokio::test]
async fn a_dead_kubelet_hides_no_samples_of_other_nodes() {
    let agent = impatient(|_| {}).await;
    let dead = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let (_good, response) = scrape_with(&agent, dead).await;

    assert_reports_failure(&agent, &response, "unreachable");
}

#[tokio::test]
async fn each_kind_of_failure_is_reported_and_the_samples_before_it_are_dropped() {
    for (reply, reason) in [
        (Reply::Silence, "timeout"),
        (Reply::Stalled(text("db")), "timeout"),
        (Reply::Truncated(text("db")), "incomplete"),
        (Reply::Status("403 Forbidden"), "refused"),
        (Reply::Status("401 Unauthorized"), "refused"),
        (Reply::Status("307 Temporary Redirect"), "status"),
        (Reply::Endless(b"# no end of a line"), "timeout"),
        (Reply::Endless(b"not metrics\n"), "format"),
        (
            Reply::Endless(b"db{namespace=\"shop-rome\",pod=\"other\"} 1\n"),
            "timeout",
        ),
    ] {
        let agent = impatient(|_| {}).await;
        let bad = Kubelet::start(&agent.cluster, NAMES, reply).await;

        let (_good, response) = scrape_with(&agent, bad.address).await;

        assert_reports_failure(&agent, &response, reason);
    }
}

#[tokio::test]
async fn a_kubelet_that_is_only_tcp_is_reported() {
    let agent = impatient(|_| {}).await;
    // The kernel completes connections that the process does not accept.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();

    let (_good, response) = scrape_with(&agent, listener.local_addr().unwrap()).await;

    assert_reports_failure(&agent, &response, "timeout");
}

#[tokio::test]
async fn a_certificate_that_does_not_verify_gets_no_token() {
    let agent = impatient(|_| {}).await;
    let other = Authority::new("kubernetes");
    let impostor = Kubelet::start(&other, NAMES, Reply::Text(text("db"))).await;

    let (_good, response) = scrape_with(&agent, impostor.address).await;

    assert_reports_failure(&agent, &response, "tls");
    assert_eq!(impostor.heads(), Vec::<String>::new());
}

#[tokio::test]
async fn a_certificate_for_another_address_gets_no_token_and_one_for_the_name_does() {
    let agent = impatient(|_| {}).await;
    let other = Kubelet::start(
        &agent.cluster,
        &["192.0.2.1", "other"],
        Reply::Text(text("db")),
    )
    .await;
    let (_good, response) = scrape_with(&agent, other.address).await;
    assert_reports_failure(&agent, &response, "tls");
    assert_eq!(other.heads(), Vec::<String>::new());

    let named = Kubelet::start(&agent.cluster, &["bad"], Reply::Text(text("db"))).await;
    agent.node("bad", &named);
    let path = scrape_path("rome", "metrics");
    let is_complete = |it: &str| it.contains("pod=\"db\"");
    agent.until_response(&path, ROME, is_complete).await;
}

#[tokio::test]
async fn self_signed_certificates_of_kubelets_are_a_setting() {
    let agent = impatient(|it| it.kubelets.certificates = KubeletCertificates::Any).await;
    let other = Authority::new("self-signed");
    let kubelet = Kubelet::start(&other, &["anything"], Reply::Text(text("web"))).await;
    agent.node("n1", &kubelet);
    agent.pod("rome", "shop-rome", "web", "n1");

    let path = scrape_path("rome", "metrics");
    let is_complete = |it: &str| it.contains("pod=\"web\"");
    agent.until_response(&path, ROME, is_complete).await;
}

#[tokio::test]
async fn only_ready_nodes_with_a_kubelet_are_asked_and_never_virtual_ones() {
    let agent = impatient(|_| {}).await;
    let started = || Kubelet::start(&agent.cluster, NAMES, Reply::Text(text("x")));
    let [is_virtual, not_ready] = [started().await, started().await];
    let good = Kubelet::start(&agent.cluster, NAMES, Reply::Text(text("web"))).await;
    let endpoint = |it: &Kubelet| json!({"kubeletEndpoint": {"Port": it.address.port()}});
    let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
    let address = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
    agent.node_with(
        json!({"name": "virtual", "labels": {"liqo.io/type": "virtual-node"}}),
        json!({"conditions": ready("True"), "addresses": address, "daemonEndpoints": endpoint(&is_virtual)}),
    );
    agent.node_with(
        json!({"name": "not-ready"}),
        json!({"conditions": ready("Unknown"), "addresses": address, "daemonEndpoints": endpoint(&not_ready)}),
    );
    agent.node_with(
        json!({"name": "no-port"}),
        json!({"conditions": ready("True"), "addresses": address}),
    );
    agent.node_with(
        json!({"name": "no-address"}),
        json!({"conditions": ready("True"), "daemonEndpoints": endpoint(&not_ready),
            "addresses": [{"type": "ExternalIP", "address": "127.0.0.1"}]}),
    );
    agent.node_with(
        json!({"name": "wrong-port"}),
        json!({"conditions": ready("True"), "addresses": address,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 70000}}}),
    );
    agent.node("good", &good);
    for node in ["virtual", "not-ready", "no-port", "good"] {
        agent.pod("rome", "shop-rome", &format!("on-{node}"), node);
    }
    agent.pod("rome", "shop-rome", "web", "good");

    let path = scrape_path("rome", "metrics/resource");
    let comment = "samples of 1 of 5 nodes: 0 kubelets have failed, 4 are not asked";
    let is_complete = |it: &str| it.contains("pod=\"web\"") && it.contains(comment);
    let response = agent.until_response(&path, ROME, is_complete).await;

    // The total is that of all nodes that are asked.
    assert!(
        response.contains("node_cpu_usage_seconds_total 5.000000 1700"),
        "{response}"
    );
    assert_eq!((is_virtual.heads().len(), not_ready.heads().len()), (0, 0));
    let metrics = agent.metrics();
    assert!(
        metrics.contains("skipped_kubelets_total{reason=\"not_ready\"}"),
        "{metrics}"
    );
    assert!(
        metrics.contains("skipped_kubelets_total{reason=\"no_endpoint\"}"),
        "{metrics}"
    );
}

#[tokio::test]
async fn nodes_without_pods_of_the_consumer_are_asked_for_totals_only() {
    let agent = impatient(|_| {}).await;
    let idle = Kubelet::start(&agent.cluster, NAMES, Reply::Text(text("x"))).await;
    let good = Kubelet::start(&agent.cluster, NAMES, Reply::Text(text("web"))).await;
    agent.node("idle", &idle);
    agent.node("good", &good);
    agent.pod("rome", "shop-rome", "web", "good");
    let is_complete = |it: &str| it.contains("pod=\"web\"");
    for metrics in ["metrics", "metrics/cadvisor", "metrics/probes"] {
        let path = scrape_path("rome", metrics);
        agent.until_response(&path, ROME, is_complete).await;
    }
    assert_eq!(idle.heads(), Vec::<String>::new());

    let response = agent
        .get(&scrape_path("rome", "metrics/resource"), ROME)
        .await;

    assert!(
        response.contains("node_cpu_usage_seconds_total 10.000000 1700"),
        "{response}"
    );
    assert_eq!(idle.heads().len(), 1);
}

#[tokio::test]
async fn a_scrape_without_any_kubelet_that_responds_is_an_error() {
    let agent = impatient(|_| {}).await;
    let bad = Kubelet::start(&agent.cluster, NAMES, Reply::Status("500 Oops")).await;
    agent.node("bad", &bad);
    agent.pod("rome", "shop-rome", "db", "bad");

    let path = scrape_path("rome", "metrics");
    let response = agent
        .until_response(&path, ROME, |it| status(it) != 200)
        .await;

    assert_eq!(status(&response), 503, "{response}");
    assert!(
        response.contains("none of 1 kubelets has responded"),
        "{response}"
    );
}

#[tokio::test]
async fn samples_beyond_the_memory_limit_are_an_error_and_the_memory_is_free_again() {
    let agent = impatient(|settings| {
        settings.limits.memory_per_scrape = 10_000;
        settings.kubelets.timeout = SOON;
    })
    .await;
    let big = "m{namespace=\"shop-rome\",pod=\"web\"} 1\n".repeat(1000);
    let kubelet = Kubelet::start(&agent.cluster, NAMES, Reply::Text(big)).await;
    agent.node("n1", &kubelet);
    agent.pod("rome", "shop-rome", "web", "n1");
    let path = scrape_path("rome", "metrics");
    let response = agent
        .until_response(&path, ROME, |it| status(it) != 200)
        .await;
    assert_eq!(status(&response), 503, "{response}");
    assert!(response.contains("exceed 10000 bytes"), "{response}");

    let small = Kubelet::start(&agent.cluster, NAMES, Reply::Text(text("web"))).await;
    agent.node("n1", &small);
    let is_complete = |it: &str| it.contains("pod=\"web\"");
    agent.until_response(&path, ROME, is_complete).await;
}

#[tokio::test]
async fn a_consumer_with_many_scrapes_leaves_room_for_others() {
    let agent = impatient(|settings| {
        settings.limits.scrapes_per_consumer = 1;
        settings.kubelets.timeout = SOON;
        settings.kubelets.connect_timeout = SOON;
    })
    .await;
    let slow = Kubelet::start(&agent.cluster, NAMES, Reply::Silence).await;
    agent.node("n1", &slow);
    agent.namespace("milan", "shop-milan", "shop");
    agent.pod("rome", "shop-rome", "web", "n1");
    let path = scrape_path("rome", "metrics");
    let first = agent.get(&path, ROME);
    let mut first = std::pin::pin!(first);
    tokio::select! {
        response = &mut first => panic!("the kubelet does not respond: {response}"),
        () = agent.until(|| !slow.heads().is_empty()) => {}
    }

    let second = agent.get(&path, ROME).await;
    let milan = [("X-Remote-User", "x"), ("X-Remote-Group", "milan")];
    let other = agent.get(&scrape_path("milan", "metrics"), &milan).await;

    assert_eq!(status(&second), 429, "{second}");
    assert!(second.contains("retry-after: 1"), "{second}");
    assert_eq!(status(&other), 200, "{other}");
}

#[tokio::test]
async fn a_response_that_takes_too_long_ends_the_connection() {
    let agent = impatient(|settings| {
        settings.kubelets.timeout = SOON;
        settings.kubelets.connect_timeout = SOON;
        settings.timeouts.response = Some(Duration::from_millis(200));
    })
    .await;
    let slow = Kubelet::start(&agent.cluster, NAMES, Reply::Silence).await;
    agent.node("n1", &slow);
    agent.pod("rome", "shop-rome", "web", "n1");

    let path = scrape_path("rome", "metrics");
    agent.until_response(&path, ROME, str::is_empty).await;

    assert!(
        agent.metrics().contains("reason=\"response_timeout\""),
        "{}",
        agent.metrics()
    );
}

#[tokio::test]
async fn a_client_that_sends_nothing_is_disconnected() {
    use tokio::io::AsyncReadExt as _;

    let agent = impatient(|settings| settings.timeouts.start = Duration::from_millis(200)).await;
    let identity = agent.proxies.client("front-proxy-client");

    let mut open = agent.connect(Some(identity)).await;
    let read = tokio::time::timeout(SOON, open.read(&mut [0; 1])).await;

    // The connection ends without a notice of TLS.
    assert!(!matches!(read.unwrap(), Ok(1)));
    let refused = "reason=\"request_timeout\"";
    agent.until(|| agent.metrics().contains(refused)).await;
}

#[tokio::test]
async fn a_missing_token_is_an_error_that_names_the_file() {
    let agent = impatient(|it| it.kubelets.token = "/nonexistent/token".into()).await;

    let response = agent.get(&scrape_path("rome", "metrics"), ROME).await;

    assert_eq!(status(&response), 503, "{response}");
    assert!(response.contains("cannot ask kubelets"), "{response}");
}
