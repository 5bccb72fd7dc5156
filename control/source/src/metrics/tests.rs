use super::*;
use crate::{Scope, Watch};
use fake_apiserver::{ApiServer, Front, Reply};
use kube::Config;
use prometheus_client::encoding::text::encode;
use serde_json::json;
use std::time::Duration;

/// Maximum time until a watch that was refused is repeated.
const DEADLINE: Duration = Duration::from_secs(60);

/// Interval at which the metrics are read.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

#[tokio::test]
async fn a_missing_right_and_an_object_that_cannot_be_decoded_are_reported() {
    let server = ApiServer::start();
    server.put(
        "/apis/ipam.liqo.io/v1alpha1/namespaces/liqo/networks/broken",
        json!({"metadata": {"name": "broken", "namespace": "liqo"}, "spec": {"cidr": 7}}),
    );
    let front = Front::start(&server, |head| {
        if head.target.starts_with("/api/v1/nodes") {
            return Reply::status(403, "Forbidden", "no right");
        }
        Reply::Forward
    });
    let mut registry = Registry::with_prefix("x");
    let metrics = Metrics::new(&mut registry);
    let config = Config::new(front.url().parse().unwrap());
    let watch = Watch::with(&config, "liqo", Scope::Node, &metrics, |_| Ok(()));
    let _watch = watch.expect("the registrations agree");

    for line in [
        "x_watches_failing 1",
        r#"x_watch_errors_total{cluster="_local",resource="nodes"} "#,
        r#"x_invalid_objects_total{cluster="_local",resource="networks.ipam.liqo.io"} 1"#,
    ] {
        reports(&registry, line).await;
    }
    front.set(|_| Reply::Forward);
    reports(&registry, "x_watches_failing 0").await;
}

/// Waits until a line of the metrics begins with a text.
async fn reports(registry: &Registry, begin: &str) {
    let text = || {
        let mut text = String::new();
        encode(&mut text, registry).expect("the metrics have text");
        text
    };
    let reported = async {
        while !text().lines().any(|line| line.starts_with(begin)) {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    };
    let reported = tokio::time::timeout(DEADLINE, reported).await;
    reported.unwrap_or_else(|_| panic!("{begin} is missing in {}", text()));
}
