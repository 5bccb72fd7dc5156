//! The reporter in the runtime of a real watch, with an API server in memory.

use super::*;
use control_runtime::transport::Kind;
use control_source::{Metrics, Scope, Watch};
use fake_apiserver::{ApiServer, Front, Head, Reply};
use kube::Config;
use prometheus_client::registry::Registry;

/// Maximum time until a change takes effect.
const DEADLINE: Duration = Duration::from_secs(30);

/// Interval at which the object is read.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Path of the peer's Connection.
const PATH: &str =
    "/apis/networking.liqo.io/v1beta1/namespaces/liqo-tenant-milan/connections/gw-milan";

#[tokio::test]
async fn the_state_of_a_peer_is_written_in_its_tenant_namespace() {
    let server = server();
    let mut registry = Registry::default();
    let (_watch, reporter) = start(&server.url(), &mut registry).await;

    reporter.note_path("milan".to_owned(), verdict(Reason::EndToEnd));
    reporter.note("milan", ConnectionState::Connected, None);

    shows(&server, "Connected", "EndToEnd").await;
    reporter.note("milan", ConnectionState::Error, None);
    reporter.note_path("milan".to_owned(), verdict(Reason::NoAnswer));
    shows(&server, "Error", "NoAnswer").await;

    let metrics = encoded(&registry);
    let requests = r#"requests_total{cluster="_local",resource="connections.networking.liqo.io",verb="patch",outcome="stored"}"#;
    assert!(metrics.contains(requests), "{metrics}");
    let peers = metrics.lines().filter(|line| line.contains("milan"));
    assert_eq!(peers.count(), 0, "no label names a peer: {metrics}");
}

#[tokio::test]
async fn a_write_in_flight_ends_before_the_gateway_stops() {
    let server = server();
    server.slow_down("/connections/", Duration::from_secs(1));
    let (mut watch, reporter) = start(&server.url(), &mut Registry::default()).await;
    reporter.note("milan", ConnectionState::Connected, None);
    wait_for("the write", || server.slow_writes() == 1).await;

    watch.stop().await;

    assert_eq!(server.get(PATH).unwrap()["status"]["value"], "Connected");
}

#[tokio::test]
async fn a_write_that_the_api_server_does_not_answer_is_repeated_after_its_deadline() {
    let server = server();
    let is_write = |head: &Head| head.method == "PATCH";
    let front = Front::start(&server, move |head| match is_write(head) {
        true => Reply::Silence,
        false => Reply::Forward,
    });
    let (_watch, reporter) = start(&front.url(), &mut Registry::default()).await;
    reporter.note_path("milan".to_owned(), verdict(Reason::EndToEnd));
    reporter.note("milan", ConnectionState::Connected, None);
    wait_for("the write", || front.count(is_write) == 1).await;

    front.set(|_| Reply::Forward);
    tokio::time::pause();
    tokio::time::advance(Kind::Write.deadline()).await;
    tokio::time::resume();

    shows(&server, "Connected", "EndToEnd").await;
}

/// Starts an API server with the tenant namespace and the Connection of the peer `milan`.
fn server() -> ApiServer {
    let server = ApiServer::start();
    let labels = json!({labels::REMOTE_CLUSTER_ID: "milan", labels::TENANT_NAMESPACE: "true"});
    server.put(
        &format!("/api/v1/namespaces/{TENANT}"),
        json!({"metadata": {"name": TENANT, "labels": labels}}),
    );
    let labels = json!({labels::REMOTE_CLUSTER_ID: "milan"});
    let metadata = json!({"name": NAME, "namespace": TENANT, "labels": labels});
    let spec = json!({"type": "Server", "gatewayRef": {}});
    server.put(PATH, json!({"metadata": metadata, "spec": spec}));
    server
}

/// Starts the watch of a gateway that serves the peer `milan`.
async fn start(url: &str, registry: &mut Registry) -> (Watch, Reporter) {
    let config = Config::new(url.parse().unwrap());
    let mut reporter = None;
    let add = |runtime: &mut Runtime| {
        reporter = Some(Reporter::add(runtime, "gw-1")?);
        Ok(())
    };
    let metrics = Metrics::new(registry);
    let mut watch = Watch::with(&config, "liqo", Scope::Gateway, &metrics, add).unwrap();
    let reporter = reporter.expect("the controller was added");
    watch.wait_until_complete().await;
    watch.resolve();
    reporter.set_live(["gw-1".to_owned()]);
    reporter.set_peers(["milan"], BTreeMap::new());
    reporter.set_tenant_namespaces(watch.tenant_namespaces());
    (watch, reporter)
}

fn encoded(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

fn verdict(reason: Reason) -> Verdict {
    Verdict {
        reason,
        message: String::new(),
    }
}

/// Waits until the Connection has this value, and a condition with this reason.
async fn shows(server: &ApiServer, value: &str, reason: &str) {
    wait_for(&format!("{value}, {reason}"), || {
        let status = &server.get(PATH).unwrap()["status"];
        status["value"] == value && status["conditions"][0]["reason"] == reason
    })
    .await;
}

async fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, waited).await;
    waited.unwrap_or_else(|_| panic!("waited too long for {what}"));
}
