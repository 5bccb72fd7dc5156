//! The reporter in the runtime of a real watch, with an API server in memory.

use super::*;
use control_source::{Scope, Watch};
use fake_apiserver::ApiServer;
use kube::{Client, Config};

/// Maximum time until a change takes effect.
const DEADLINE: Duration = Duration::from_secs(30);

/// Interval at which the object is read.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

#[tokio::test]
async fn the_state_of_a_peer_is_written_in_its_tenant_namespace() {
    let server = ApiServer::start();
    let labels = json!({labels::REMOTE_CLUSTER_ID: "milan", labels::TENANT_NAMESPACE: "true"});
    server.put(
        &format!("/api/v1/namespaces/{TENANT}"),
        json!({"metadata": {"name": TENANT, "labels": labels}}),
    );
    let path = format!("/apis/networking.liqo.io/v1beta1/namespaces/{TENANT}/connections/gw-milan");
    let labels = json!({labels::REMOTE_CLUSTER_ID: "milan"});
    let metadata = json!({"name": NAME, "namespace": TENANT, "labels": labels});
    let spec = json!({"type": "Server", "gatewayRef": {}});
    server.put(&path, json!({"metadata": metadata, "spec": spec}));

    let config = Config::new(server.url().parse().unwrap());
    let client = Client::try_from(config).unwrap();
    let mut reporter = None;
    let add = |runtime: &mut Runtime| {
        reporter = Some(Reporter::add(runtime, "gw-1")?);
        Ok(())
    };
    let mut watch = Watch::with(client, "liqo", Scope::Gateway, add).unwrap();
    let reporter = reporter.expect("the controller was added");
    watch.wait_until_complete().await;
    watch.resolve();
    reporter.set_live(["gw-1".to_owned()]);
    reporter.set_peers(["milan"], BTreeMap::new());
    reporter.set_tenant_namespaces(watch.tenant_namespaces());
    let verdict = |reason| Verdict {
        reason,
        message: String::new(),
    };
    reporter.note_path("milan".to_owned(), verdict(Reason::EndToEnd));
    reporter.note("milan", ConnectionState::Connected, None);

    let shows = async |value: &str, reason: &str| {
        let is_shown = async {
            loop {
                let status = server.get(&path).unwrap()["status"].clone();
                if status["value"] == value && status["conditions"][0]["reason"] == reason {
                    return;
                }
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        };
        let shown = tokio::time::timeout(DEADLINE, is_shown).await;
        assert!(shown.is_ok(), "{value}, {reason}: {:?}", server.get(&path));
    };
    shows("Connected", "EndToEnd").await;
    reporter.note("milan", ConnectionState::Error, None);
    reporter.note_path("milan".to_owned(), verdict(Reason::NoAnswer));
    shows("Error", "NoAnswer").await;
}
