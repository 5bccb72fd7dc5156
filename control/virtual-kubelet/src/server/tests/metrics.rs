//! Metrics that the provider has collected.

use super::fake::{json, reply};
use super::fixture::{Running, nothing};
use serde_json::{Value, json as object};

const USAGE: &str = "\
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container=\"web\",namespace=\"shop\",pod=\"web\"} 1.5 1764230400000
container_cpu_usage_seconds_total{container=\"dns\",namespace=\"kube-system\",pod=\"dns\"} 9 1764230400000
pod_memory_working_set_bytes{namespace=\"shop\",pod=\"web\"} 512 1764230400000
node_cpu_usage_seconds_total 4.5 1764230400000
";

#[tokio::test]
async fn metrics_are_those_of_the_provider_for_this_cluster_and_the_pods_of_this_node() {
    let server = Running::start(|_| reply(200, USAGE)).await;
    for path in [
        "metrics",
        "metrics/cadvisor",
        "metrics/resource",
        "metrics/probes",
    ] {
        let (status, head, body) = server.get(&format!("/{path}")).await;
        assert_eq!(status, 200, "{body}");
        assert!(
            head.contains("content-type: text/plain; version=0.0.4"),
            "{head}"
        );
        assert!(body.contains("pod=\"web\"} 1.5 1764230400000\n"), "{body}");
        assert!(!body.contains("kube-system"), "{body}");
        let forwarded = server.forwarded().pop();
        let expected = format!("GET /apis/metrics.liqo.io/v1beta1/scrape/rome/{path}");
        assert_eq!(forwarded, Some(expected));
    }
    assert_eq!(server.metrics.drops(), 4);
    assert_eq!(server.reviews(), ["apiserver: get metrics"]);
}

#[tokio::test]
async fn the_summary_has_the_usage_of_the_pods_of_this_node() {
    let server = Running::start(|_| reply(200, USAGE)).await;

    let (status, head, body) = server.get("/stats/summary").await;

    assert_eq!(status, 200, "{body}");
    assert!(head.contains("application/json"), "{head}");
    let summary: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        summary["node"]["cpu"]["usageCoreNanoSeconds"],
        4_500_000_000_u64
    );
    assert_eq!(summary["pods"].as_array().unwrap().len(), 1);
    let pod = &summary["pods"][0];
    assert_eq!(
        pod["podRef"],
        object!({"namespace": "shop", "name": "web", "uid": "uid-web"})
    );
    assert_eq!(pod["memory"]["workingSetBytes"], 512);
    assert_eq!(
        pod["containers"][0]["cpu"]["usageCoreNanoSeconds"],
        1_500_000_000_u64
    );
    assert_eq!(server.reviews(), ["apiserver: get stats"]);
}

#[tokio::test]
async fn a_provider_without_metrics_or_with_too_many_is_an_error() {
    let server = Running::start(|request| match request.target.ends_with("cadvisor") {
        true => reply(200, vec![b'#'; 17 << 20]),
        false => json(404, &object!({"kind": "Status", "message": "the server could not find the requested resource"})),
    })
    .await;

    let (status, _, body) = server.get("/metrics").await;
    assert_eq!(
        (status, &*body),
        (404, "the server could not find the requested resource\n")
    );
    let (status, _, body) = server.get("/metrics/cadvisor").await;
    assert_eq!(status, 502);
    assert!(body.contains("more than 16777216 bytes"), "{body}");
}

#[tokio::test]
async fn other_paths_of_metrics_are_not_found() {
    let server = Running::start(nothing).await;
    for path in [
        "/metrics/unknown",
        "/stats",
        "/stats/container",
        "/metrics/../exec",
    ] {
        assert_eq!(server.get(path).await.0, 404, "{path}");
    }
    assert_eq!(server.forwarded(), Vec::<String>::new());
}
