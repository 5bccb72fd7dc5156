//! Which pods requests reach, and the list of pods.

use super::fake::reply;
use super::fixture::{Running, UID, nothing};
use serde_json::Value;

#[tokio::test]
async fn only_pods_of_this_node_that_run_at_the_provider_are_reached() {
    let server = Running::start(nothing).await;
    for (path, expected) in [
        (
            "/containerLogs/shop/local/web",
            "pod does not exist: shop/local on node milan",
        ),
        ("/containerLogs/shop/absent/web", "pod does not exist"),
        (
            "/containerLogs/shop/pending/web",
            "does not run at milan yet",
        ),
        (
            "/containerLogs/shop/foreign/web",
            "does not run at milan yet",
        ),
        (
            "/containerLogs/new/web/web",
            "namespace new is not offloaded",
        ),
        (
            "/containerLogs/other/web/web",
            "namespace other is not offloaded",
        ),
    ] {
        let (status, _, body) = server.get(path).await;
        assert_eq!(status, 404, "{path}: {body}");
        assert!(body.contains(expected), "{path}: {body}");
    }
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    for path in [
        "/exec/shop/local/web?command=ls&output=1",
        "/exec/shop/web/other-uid/web?command=ls&output=1",
    ] {
        let request = format!("POST {path} HTTP/1.1\r\nHost: milan\r\n{upgrade}\r\n");
        let mut stream = server.connect().await;
        stream.send(&request).await;
        let head = stream.head().await;
        assert!(head.starts_with("HTTP/1.1 404"), "{path}: {head}");
    }
    assert_eq!(server.forwarded(), Vec::<String>::new());
}

#[tokio::test]
async fn paths_that_would_reach_other_objects_are_not_found() {
    let server = Running::start(nothing).await;
    for path in [
        "/containerLogs/shop/..%2f..%2fsecrets/web",
        "/containerLogs/shop/../web",
        "/containerLogs/shop/web%2flog/web",
        "/containerLogs/%2e%2e/web/web",
        "/containerLogs/shop/web/web/extra",
        "/run/shop/web/web",
        "/configz",
    ] {
        let (status, _, body) = server.get(path).await;
        assert_eq!((status, &*body), (404, "404 page not found\n"), "{path}");
    }
    assert_eq!(server.forwarded(), Vec::<String>::new());
}

#[tokio::test]
async fn a_remote_pod_that_loses_its_markers_is_reached_no_longer() {
    let server = Running::start(|_| reply(200, "line\n")).await;
    let path = "/containerLogs/shop/web/web";
    assert_eq!(server.get(path).await.2, "line\n");

    super::fixture::put_remote(
        &mut server.cache.fixture_write(),
        "shop-rome",
        "web",
        "other",
    );

    assert_eq!(server.get(path).await.0, 404);
}

#[tokio::test]
async fn the_list_has_the_pods_of_this_node_only() {
    let server = Running::start(nothing).await;

    let (status, head, body) = server.get("/pods").await;

    assert_eq!(status, 200);
    assert!(head.contains("application/json"), "{head}");
    let list: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&"PodList".into(), &"v1".into())
    );
    let pods = list["items"].as_array().unwrap();
    let names: Vec<_> = pods
        .iter()
        .map(|it| it["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["web", "web", "foreign", "pending", "web"]);
    assert_eq!(pods[4]["metadata"]["uid"], UID);
    assert_eq!(server.reviews(), ["apiserver: get pods"]);
    assert_eq!(server.get("/healthz").await.2, "ok");
}
