//! Authentication and authorization of requests.

use super::fixture::{Agent, Authority, ROME, body, get, scrape_path, status};
use super::kubelet::{Kubelet, Reply};
use telemetry::http::Observed as _;
use tokio::io::AsyncWriteExt as _;

const ADMIN: &[(&str, &str)] = &[
    ("X-Remote-User", "admin"),
    ("X-Remote-Group", "system:masters"),
    ("X-Remote-Extra-Scopes%2Fall", "read"),
];

/// Returns an agent with a pod of `rome`, which its metrics show.
async fn agent_with_pod() -> (Agent, Kubelet) {
    let agent = Agent::ready().await;
    let text = "m{namespace=\"shop-rome\",pod=\"web\"} 1\n".to_owned();
    let kubelet = Kubelet::start(&agent.cluster, &["127.0.0.1"], Reply::Text(text)).await;
    agent.node("n1", &kubelet);
    agent.pod("rome", "shop-rome", "web", "n1");
    let path = scrape_path("rome", "metrics");
    let is_visible = |it: &str| it.contains("pod=\"web\"");
    agent.until_response(&path, ROME, is_visible).await;
    (agent, kubelet)
}

#[tokio::test]
async fn header_fields_prove_nothing_without_the_certificate_of_the_api_server() {
    let (agent, kubelet) = agent_with_pod().await;
    let asked = kubelet.heads().len();
    let other = Authority::new("front-proxy-ca");
    let server = agent.proxies.server(&["front-proxy-client"]);
    for (identity, reason) in [
        (None, "no client certificate"),
        (
            Some(other.client("front-proxy-client")),
            "not of the API server's",
        ),
        (
            Some(agent.cluster.client("front-proxy-client")),
            "not of the API server's",
        ),
        (Some(agent.proxies.client("milan")), "allowed-names"),
        // A certificate of a server is none of a client.
        (Some(server), "not of the API server's"),
    ] {
        for path in [
            scrape_path("rome", "metrics"),
            "/apis/metrics.liqo.io/v1beta1".to_owned(),
            "/openapi/v2".to_owned(),
            "/healthz".to_owned(),
        ] {
            let response = agent.send(identity.clone(), &get(&path, ROME)).await;
            assert_eq!(status(&response), 401, "{response}");
            assert!(response.contains(reason), "{response}");
            assert!(!response.contains("web"), "{response}");
        }
    }

    assert_eq!(kubelet.heads().len(), asked);
    assert!(agent.reviews.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_request_without_requester_is_refused() {
    let (agent, _kubelet) = agent_with_pod().await;
    let path = scrape_path("rome", "metrics");

    for fields in [
        &[][..],
        &[("X-Remote-Group", "rome")],
        &[("X-Remote-User", ""), ("X-Remote-Group", "rome")],
    ] {
        assert_eq!(status(&agent.get(&path, fields).await), 401, "{fields:?}");
    }
}

#[tokio::test]
async fn a_consumer_reads_no_metrics_of_another_one_whatever_rights_it_has() {
    let (agent, kubelet) = agent_with_pod().await;
    agent.namespace("milan", "shop-milan", "shop");
    let asked = kubelet.heads().len();
    let path = scrape_path("rome", "metrics");
    let is_forbidden = |it: &str| status(it) == 403;
    // User `admin` has all rights at the API server, so each refusal is the agent's.
    let milan = [("X-Remote-User", "admin"), ("X-Remote-Group", "milan")];
    agent.until_response(&path, &milan, is_forbidden).await;
    agent.reviews.lock().unwrap().clear();
    let of_rome = kubelet.heads().len();

    for requester in [
        &milan[..],
        // The control plane of a consumer, and a peering user.
        &[("X-Remote-User", "milan"), ("X-Remote-Group", "liqo.io")],
        &[("X-Remote-User", "rome"), ("X-Remote-Group", "liqo.io")],
        &[("X-Remote-User", "milan")],
        &[("X-Remote-User", "admin"), ("X-Remote-Group", "liqo.io")],
    ] {
        let response = agent.get(&path, requester).await;
        assert_eq!(status(&response), 403, "{requester:?}");
        assert!(response.contains("\"reason\":\"Forbidden\""), "{response}");
    }

    assert_eq!(kubelet.heads().len(), of_rome);
    assert!(of_rome >= asked);
    assert!(agent.reviews.lock().unwrap().is_empty());
    let own = agent.get(&scrape_path("milan", "metrics"), &milan).await;
    assert_eq!((status(&own), body(&own)), (200, ""));
}

#[tokio::test]
async fn an_administrator_reads_metrics_of_each_consumer_by_a_right_that_consumers_lack() {
    let (agent, _kubelet) = agent_with_pod().await;
    let path = scrape_path("rome", "metrics");

    let response = agent.get(&path, ADMIN).await;
    // This user has the rights of consumers.
    let refused = agent.get(&path, &[("X-Remote-User", "reader")]).await;

    assert_eq!(status(&response), 200, "{response}");
    assert!(response.contains("pod=\"web\""), "{response}");
    assert_eq!(status(&refused), 403, "{refused}");
    assert!(refused.contains("scrape/all"), "{refused}");
    let reviews = agent.reviews.lock().unwrap();
    let spec = &reviews[0].spec;
    assert_eq!(spec.user.as_deref(), Some("admin"));
    assert_eq!(spec.groups, Some(vec!["system:masters".to_owned()]));
    assert_eq!(spec.extra.as_ref().unwrap()["scopes/all"], ["read"]);
    let attributes = spec.resource_attributes.as_ref().unwrap();
    assert_eq!(attributes.group.as_deref(), Some("metrics.liqo.io"));
    assert_eq!(attributes.resource.as_deref(), Some("scrape"));
    assert_eq!(attributes.subresource.as_deref(), Some("all"));
    assert_eq!(attributes.name.as_deref(), Some("rome"));
    assert_eq!(attributes.verb.as_deref(), Some("get"));
}

#[tokio::test]
async fn a_replaced_authority_of_the_api_server_applies_to_open_connections() {
    let (agent, _kubelet) = agent_with_pod().await;
    let next = Authority::new("next-front-proxy-ca");
    let path = "/apis/metrics.liqo.io/v1beta1";
    let keep_alive = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nX-Remote-User: a\r\n\r\n");
    let identity = agent.proxies.client("front-proxy-client");
    let mut open = agent.connect(Some(identity)).await;
    open.write_all(keep_alive.as_bytes()).await.unwrap();
    assert_eq!(status(&super::fixture::read_response(&mut open).await), 200);

    agent.trust(&next.pem, &["front-proxy-client"]);
    agent
        .until_response(path, &[("X-Remote-User", "a")], |it| status(it) == 401)
        .await;
    open.write_all(keep_alive.as_bytes()).await.unwrap();
    assert_eq!(status(&super::fixture::read_response(&mut open).await), 401);

    let identity = next.client("front-proxy-client");
    let request = get(path, &[("X-Remote-User", "a")]);
    assert_eq!(status(&agent.send(Some(identity), &request).await), 200);
}

#[tokio::test]
async fn an_authority_that_all_clients_share_is_not_trusted_without_names() {
    let (agent, _kubelet) = agent_with_pod().await;
    let mut shared = super::fixture::config_map(&agent.proxies.pem, &[]);
    shared["data"]["client-ca-file"] = agent.proxies.pem.clone().into();
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    agent.api_server.put(path, shared);
    agent.until(|| agent.state.ready().is_err()).await;

    let response = agent.get(&scrape_path("rome", "metrics"), ROME).await;

    assert_eq!(status(&response), 503, "{response}");
    let reason = agent.state.ready().unwrap_err();
    assert!(reason.contains("requestheader-allowed-names"), "{reason}");
}

#[tokio::test]
async fn an_empty_list_of_names_allows_each_certificate_of_a_separate_authority() {
    let (agent, _kubelet) = agent_with_pod().await;
    let identity = agent.proxies.client("any");
    let request = get(&scrape_path("rome", "metrics"), ROME);
    assert_eq!(
        status(&agent.send(Some(identity.clone()), &request).await),
        401
    );

    agent.trust(&agent.proxies.pem, &[]);
    let path = "/healthz";
    let is_allowed = async {
        let request = get(path, &[("X-Remote-User", "a")]);
        while status(&agent.send(Some(identity.clone()), &request).await) != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(super::fixture::SOON, is_allowed)
        .await
        .unwrap();

    assert_eq!(status(&agent.send(Some(identity), &request).await), 200);
}

#[tokio::test]
async fn the_api_server_discovers_the_api_without_errors() {
    let agent = Agent::ready().await;
    let requester = [
        ("X-Remote-User", "system:kube-aggregator"),
        ("X-Remote-Group", "system:masters"),
    ];
    for (path, kind) in [
        ("/apis", "APIGroupList"),
        ("/apis/metrics.liqo.io", "APIGroup"),
        ("/apis/metrics.liqo.io/v1beta1", "APIResourceList"),
        ("/openapi/v2", "\"swagger\":\"2.0\""),
        (
            "/openapi/v3",
            "/openapi/v3/apis/metrics.liqo.io/v1beta1?hash=",
        ),
        (
            "/openapi/v3/apis/metrics.liqo.io/v1beta1?hash=0",
            "\"openapi\":\"3.0.0\"",
        ),
        ("/healthz", "ok"),
    ] {
        let response = agent.get(path, &requester).await;
        assert_eq!(status(&response), 200, "{path}");
        assert!(body(&response).contains(kind), "{response}");
        assert!(!response.contains("Status"), "{response}");
    }

    let accept = (
        "Accept",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    );
    let response = agent
        .get("/apis", &[requester[0], requester[1], accept])
        .await;
    assert!(response.contains("content-type: application/json;g=apidiscovery.k8s.io;v=v2"));
    assert!(
        body(&response).contains("\"subresource\":\"metrics\""),
        "{response}"
    );
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let agent = Agent::ready().await;
    for (path, code) in [
        (
            "/apis/metrics.liqo.io/v1beta1/scrape/rome/stats/summary",
            400,
        ),
        ("/apis/metrics.liqo.io/v1beta1/scrape/rome/metrics/", 400),
        ("/apis/metrics.liqo.io/v1beta1/scrape/rome", 404),
        ("/apis/metrics.liqo.io/v1beta1/scrape/../metrics", 404),
        (
            "/apis/metrics.liqo.io/v1beta1/scrape/system:masters/metrics",
            404,
        ),
        ("/metrics", 404),
    ] {
        assert_eq!(status(&agent.get(path, ROME).await), code, "{path}");
    }
    let identity = agent.proxies.client("front-proxy-client");
    let request = get(&scrape_path("rome", "metrics"), ROME).replace("GET", "DELETE");
    assert_eq!(status(&agent.send(Some(identity), &request).await), 405);
}

#[tokio::test]
async fn an_agent_that_does_not_know_the_objects_yet_refuses() {
    let agent = Agent::start(|settings| settings.timeouts.start = super::fixture::SOON).await;
    agent.until(|| agent.state.ready().is_ok()).await;
    agent
        .api_server
        .remove("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication");
    agent.until(|| agent.state.ready().is_err()).await;

    let response = agent.get(&scrape_path("rome", "metrics"), ROME).await;

    assert_eq!(status(&response), 503, "{response}");
    assert!(response.contains("is missing"), "{response}");
}
