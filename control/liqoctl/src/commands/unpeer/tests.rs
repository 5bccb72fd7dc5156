//! The end of a peering between two API servers in memory.

use super::*;
use fake_apiserver::{ApiServer, Front, Reply};
use serde_json::{Value, json};

const ROME_IN_MILAN: &str =
    "/apis/authentication.liqo.io/v1beta1/namespaces/liqo-tenant-rome/tenants/rome";
const MILAN_IN_ROME: &str =
    "/apis/authentication.liqo.io/v1beta1/namespaces/liqo-tenant-milan/tenants/milan";
const RENEW_OF_MILAN: &str =
    "/apis/authentication.liqo.io/v1beta1/namespaces/liqo-tenant-milan/renews/controlplane-rome";
const CONFIGURATION: &str =
    "/apis/networking.liqo.io/v1beta1/namespaces/liqo-tenant-milan/configurations/milan";

/// Rome and milan, which are consumers of each other.
struct Mutual {
    rome: ApiServer,
    milan: ApiServer,
    pair: Pair,
    /// They serve the requests of `pair`.
    _fronts: [Front; 2],
}

impl Mutual {
    fn start() -> Self {
        let (rome, milan) = (ApiServer::start(), ApiServer::start());
        for (server, peer) in [(&rome, "milan"), (&milan, "rome")] {
            let labels =
                json!({"liqo.io/remote-cluster-id": peer, "liqo.io/tenant-namespace": "true"});
            let namespace = format!("liqo-tenant-{peer}");
            server.put(
                &format!("/api/v1/namespaces/{namespace}"),
                json!({"metadata": {"name": namespace, "labels": labels}}),
            );
        }
        rome.put(MILAN_IN_ROME, tenant("milan"));
        milan.put(ROME_IN_MILAN, tenant("rome"));
        let labels = json!({"liqo.io/remote-cluster-id": "milan"});
        rome.put(
            CONFIGURATION,
            json!({"apiVersion": "networking.liqo.io/v1beta1", "kind": "Configuration",
                "metadata": {"name": "milan", "namespace": "liqo-tenant-milan", "labels": labels}, "spec": {}}),
        );
        let fronts = [&rome, &milan].map(|server| Front::start(server, |_| Reply::Forward));
        let pair = Pair::behind(&fronts[0], &fronts[1]);
        Self {
            rome,
            milan,
            pair,
            _fronts: fronts,
        }
    }

    /// Ends the peering with the provider milan. `meanwhile` is called between the first requests and the deletions.
    async fn unpeer(&self, meanwhile: impl FnOnce()) -> Result<bool> {
        let namespaces = (Some("liqo-tenant-milan"), Some("liqo-tenant-rome"));
        let state = State::read(&self.pair.local, namespaces.0).await?;
        meanwhile();
        Runner::run(Deadline::after(Duration::from_secs(10)), async |runner| {
            delete(runner, &self.pair, namespaces, &state, true).await
        })
        .await
    }
}

fn tenant(id: &str) -> Value {
    json!({
        "apiVersion": "authentication.liqo.io/v1beta1", "kind": "Tenant",
        "metadata": {"name": id, "labels": {"liqo.io/remote-cluster-id": id}},
        "spec": {"clusterID": id},
    })
}

/// The replica in rome of milan's Renew. Milan reaches rome through this proxy.
fn renew(proxy_url: &str) -> Value {
    let labels = json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/originID": "milan", "liqo.io/replicated": "true",
        "liqo.io/replication": "false"});
    json!({
        "apiVersion": "authentication.liqo.io/v1beta1", "kind": "Renew",
        "metadata": {"name": "controlplane-rome", "namespace": "liqo-tenant-milan", "labels": labels},
        "spec": {"consumerClusterID": "milan", "identityType": "ControlPlane"},
        "status": {"authParams": {"apiServer": "https://192.0.2.1:6443", "proxyURL": proxy_url}},
    })
}

#[tokio::test]
async fn a_direction_that_stays_keeps_the_network() {
    let mutual = Mutual::start();

    let is_ended = mutual.unpeer(|| {}).await.unwrap();

    assert!(!is_ended);
    assert_eq!(mutual.milan.get(ROME_IN_MILAN), None);
    assert!(mutual.rome.get(MILAN_IN_ROME).is_some());
    assert!(mutual.rome.get(CONFIGURATION).is_some());
}

#[tokio::test]
async fn the_later_of_two_unpeers_at_the_same_time_removes_the_network() {
    let mutual = Mutual::start();

    // The command in the other direction has read this direction's Tenant before its deletion, too.
    let is_ended = mutual.unpeer(|| mutual.rome.remove(MILAN_IN_ROME)).await;

    assert!(is_ended.unwrap());
    assert_eq!(mutual.rome.get(CONFIGURATION), None);
}

#[tokio::test]
async fn the_network_stays_while_the_other_unpeer_deletes_renews_through_the_tunnel() {
    for (proxy_url, is_kept) in [("http://10.71.0.2:8118", true), ("", false)] {
        let mutual = Mutual::start();
        mutual.rome.put(RENEW_OF_MILAN, renew(proxy_url));

        let is_ended = mutual.unpeer(|| mutual.rome.remove(MILAN_IN_ROME)).await;

        assert_eq!(is_ended.unwrap(), !is_kept, "{proxy_url}");
        assert_eq!(mutual.rome.get(CONFIGURATION).is_some(), is_kept);
        assert_eq!(mutual.milan.get(ROME_IN_MILAN), None);
    }
}

#[tokio::test]
async fn renews_that_end_before_the_last_check_do_not_keep_the_network() {
    let mutual = Mutual::start();
    mutual
        .rome
        .put(RENEW_OF_MILAN, renew("http://10.71.0.2:8118"));

    let is_ended = mutual.unpeer(|| {
        mutual.rome.remove(MILAN_IN_ROME);
        mutual.rome.remove(RENEW_OF_MILAN);
    });

    assert!(is_ended.await.unwrap());
    assert_eq!(mutual.rome.get(CONFIGURATION), None);
}

#[tokio::test]
async fn a_tenant_that_is_being_deleted_does_not_keep_the_network() {
    let mutual = Mutual::start();
    let mut leaving = tenant("milan");
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T08:15:18Z".into();
    leaving["metadata"]["finalizers"] = json!(["tenant.liqo.io/finalizer"]);

    let is_ended = mutual
        .unpeer(|| mutual.rome.put(MILAN_IN_ROME, leaving))
        .await;

    assert!(is_ended.unwrap());
    assert_eq!(mutual.rome.get(CONFIGURATION), None);
}
