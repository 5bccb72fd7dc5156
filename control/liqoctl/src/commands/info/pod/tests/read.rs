//! Reads the objects of two API servers in memory.

use super::fixture::{
    foreign, map, node, offloading, pod, remote, serving, shadow, virtual_node, warning,
};
use super::*;
use crate::cluster::Installation;
use fake_apiserver::{ApiServer, Front, Reply};

const LIMIT: Duration = Duration::from_secs(10);

/// Consumer `rome` and provider `milan`.
struct Clusters {
    rome: ApiServer,
    milan: ApiServer,
    front: Front,
    provider: Front,
    cluster: Cluster,
}

impl Clusters {
    fn start() -> Self {
        let (rome, milan) = (ApiServer::start(), ApiServer::start());
        let front = Front::start(&rome, |_| Reply::Forward);
        let provider = Front::start(&milan, |_| Reply::Forward);
        let offloading_api = "/apis/offloading.liqo.io/v1beta1";
        let tenant = format!("{offloading_api}/namespaces/liqo-tenant-milan");
        rome.put("/api/v1/namespaces/demo/pods/web", pod());
        rome.put("/api/v1/nodes/milan", node());
        rome.put(
            &format!("{offloading_api}/namespaces/demo/namespaceoffloadings/offloading"),
            offloading(),
        );
        rome.put(&format!("{tenant}/virtualnodes/milan"), virtual_node());
        rome.put(&format!("{tenant}/namespacemaps/milan"), map("Accepted"));
        rome.put(
            "/apis/core.liqo.io/v1beta1/foreignclusters/milan",
            foreign("Established"),
        );
        milan.put(
            &format!("{offloading_api}/namespaces/demo-rome/shadowpods/web"),
            shadow(),
        );
        milan.put("/api/v1/namespaces/demo-rome/pods/web", remote(&serving()));
        let cluster = Cluster::behind(&front, "local");
        let clusters = Self {
            rome,
            milan,
            front,
            provider,
            cluster,
        };
        clusters.put_secret(&json!({"token": "slice"}));
        clusters.put_manager("--local-api-servers=true");
        clusters
    }

    /// Stores the kubeconfig of the VirtualNode.
    fn put_secret(&self, user: &Value) {
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.provider.url()}}],
            "users": [{"name": "u", "user": user}],
        });
        let data = k8s_openapi::ByteString(text.to_string().into_bytes());
        self.rome.put(
            SECRET,
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
                "name": "kubeconfig-resourceslice-milan", "namespace": "liqo-tenant-milan",
            }, "data": {"kubeconfig": data}}),
        );
    }

    fn put_manager(&self, argument: &str) {
        let labels = json!({
            "app.kubernetes.io/name": "controller-manager",
            "app.kubernetes.io/component": "controller-manager",
        });
        let container = json!({"name": "controller-manager", "args": [argument]});
        self.rome.put(
            "/apis/apps/v1/namespaces/liqo/deployments/liqo-controller-manager",
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "liqo-controller-manager", "namespace": "liqo", "labels": labels},
                "spec": {"selector": {}, "template": {"spec": {"containers": [container]}}},
            }),
        );
    }

    async fn collect(&self, pod: &str, limit: Duration) -> Result<Report> {
        let installation = Installation {
            cluster_id: "rome".to_owned(),
            namespace: "liqo".to_owned(),
        };
        let named = Named::parse(pod).unwrap();
        collect(&self.cluster, &installation, (&named, None), limit).await
    }

    /// Returns the error of the report.
    async fn failure(&self, limit: Duration) -> String {
        let report = self.collect("demo/web", limit).await.unwrap();
        report.check().unwrap_err().to_string()
    }
}

const SECRET: &str = "/api/v1/namespaces/liqo-tenant-milan/secrets/kubeconfig-resourceslice-milan";

#[tokio::test]
async fn the_providers_objects_are_read_with_the_virtual_nodes_credentials() {
    let clusters = Clusters::start();

    let report = clusters.collect("demo/web", LIMIT).await.unwrap();

    assert_eq!(report, Report(Chain::of(&facts())));
    let requests = clusters.provider.requests();
    assert!(
        requests
            .iter()
            .all(|it| it.token == "slice" && it.method == "GET")
    );
    let shadows = "/apis/offloading.liqo.io/v1beta1/namespaces/demo-rome/shadowpods/web";
    assert!(requests.iter().any(|it| it.target.starts_with(shadows)));
    assert!(
        clusters
            .front
            .requests()
            .iter()
            .all(|it| it.method == "GET")
    );
}

#[tokio::test]
async fn the_events_of_both_clusters_are_found_by_the_name_of_the_pod() {
    let clusters = Clusters::start();
    let put = |server: &ApiServer, namespace: &str, event: Value| {
        let path = format!(
            "/api/v1/namespaces/{namespace}/events/{}",
            event["metadata"]["name"].as_str().unwrap()
        );
        server.put(&path, event);
    };
    clusters
        .milan
        .remove("/api/v1/namespaces/demo-rome/pods/web");
    let uid = clusters
        .milan
        .get("/apis/offloading.liqo.io/v1beta1/namespaces/demo-rome/shadowpods/web");
    let uid = uid.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let refused = ("FailedCreatePod", "cpu is exceeded");
    put(
        &clusters.milan,
        "demo-rome",
        warning(("ShadowPod", "web", &uid), refused, 1),
    );
    put(
        &clusters.milan,
        "demo-rome",
        warning(("ShadowPod", "other", &uid), ("FailedCreatePod", "x"), 2),
    );

    let error = clusters.failure(LIMIT).await;

    assert!(
        error.ends_with("FailedCreatePod: cpu is exceeded"),
        "{error}"
    );
}

#[tokio::test]
async fn a_provider_without_response_is_unreachable_within_the_limit() {
    let clusters = Clusters::start();
    clusters.provider.set(|_| Reply::Silence);

    let error = clusters.failure(Duration::from_millis(200)).await;

    assert!(
        error.contains("is broken at: Provider milan: the remote cluster")
            && error.contains("has not responded within 200ms"),
        "{error}"
    );
}

#[tokio::test]
async fn a_provider_that_refuses_the_credentials_is_reported() {
    let clusters = Clusters::start();
    clusters
        .provider
        .set(|_| Reply::status(401, "Unauthorized", "Unauthorized"));

    let error = clusters.failure(LIMIT).await;

    assert!(
        error.contains("Provider milan") && error.contains("refused the credentials"),
        "{error}"
    );
}

#[tokio::test]
async fn a_right_that_the_provider_does_not_grant_leaves_one_link_unknown() {
    let clusters = Clusters::start();
    clusters
        .provider
        .set(|head| match head.target.contains("/events") {
            true => Reply::status(403, "Forbidden", "events is forbidden"),
            false => Reply::Forward,
        });

    let report = clusters.collect("demo/web", LIMIT).await.unwrap();

    assert!(report.check().is_ok(), "Events add reasons only");
}

#[tokio::test]
async fn credentials_that_are_missing_invalid_or_forbidden_are_reported() {
    let clusters = Clusters::start();

    clusters.put_secret(&json!({"exec": {"command": "sh"}}));
    let error = clusters.failure(LIMIT).await;
    assert!(
        error.contains("users[].user.exec, which is refused"),
        "{error}"
    );

    clusters.rome.remove(SECRET);
    let error = clusters.failure(LIMIT).await;
    assert!(
        error.contains("kubeconfig-resourceslice-milan does not exist"),
        "{error}"
    );

    clusters
        .front
        .set(|head| match head.target.contains("/secrets/") {
            true => Reply::status(403, "Forbidden", "secrets is forbidden"),
            false => Reply::Forward,
        });
    let error = clusters.failure(LIMIT).await;
    assert!(
        error.contains("is unknown from: Provider milan") && error.contains("secrets is forbidden"),
        "{error}"
    );
}

#[tokio::test]
async fn a_provider_at_an_address_of_this_machine_is_reached_only_if_the_manager_does_so() {
    let clusters = Clusters::start();
    clusters.put_manager("--local-api-servers=false");

    let error = clusters.failure(LIMIT).await;

    assert!(error.contains("127.0.0.1"), "{error}");
    assert!(clusters.provider.requests().is_empty());
}

#[tokio::test]
async fn a_missing_pod_is_an_error() {
    let clusters = Clusters::start();

    let error = clusters.collect("demo/wbe", LIMIT).await.unwrap_err();

    assert!(error.to_string().contains("pod demo/wbe does not exist"));
}
