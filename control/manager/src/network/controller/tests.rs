//! The manager in the runtime, with an API server that stops and starts again.

use super::*;
use crate::network::plan::State;
use crate::network::settings::Settings;
use control_runtime::{LeaseSettings, Replicas, Runtime, RuntimeStatus, Timing};
use fake_apiserver::{ApiServer, Front, Head, Reply};
use ipam::DEFAULT_POOLS;
use kube::Client;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Time limit of each step of a test.
const DEADLINE: Duration = Duration::from_secs(60);

/// A leader loses the Lease within a second.
const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(1),
    renew_deadline: Duration::from_millis(600),
    renew_period: Duration::from_millis(200),
    retry_period: Duration::from_millis(50),
};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/liqo/leases/liqo-controller-manager";

#[test]
fn a_manager_survives_an_outage_of_the_api_server_and_catches_up() {
    run(async {
        let mut server = ApiServer::start();
        put_node(&server, "rome-1", "172.18.1.2");
        let (state, manager) = start(&server, "a");
        wait_for("the first IP", || exists(&server, "rome-1")).await;

        server.close();
        wait_for("it to be a standby", || {
            !state.is_leader() && state.ready().is_err()
        })
        .await;
        put_node(&server, "rome-2", "172.18.1.3");
        server.remove(&ip_path("rome-1"));
        assert_eq!(state.healthy(), Ok(()));
        assert!(!manager.is_finished());
        let before = lease_version(&server);
        server.listen();

        let caught_up = || exists(&server, "rome-1") && exists(&server, "rome-2");
        wait_for("both IPs", caught_up).await;
        wait_for("it to be ready", || state.ready().is_ok()).await;
        assert_ne!(lease_version(&server), before);
        manager.abort();
    });
}

#[test]
fn a_manager_that_starts_before_the_api_server_waits_for_it() {
    run(async {
        let mut server = ApiServer::closed();
        put_node(&server, "rome-1", "172.18.1.2");
        let (state, manager) = start(&server, "a");
        wait_for("it to be unready", || state.ready().is_err()).await;
        assert_eq!(state.healthy(), Ok(()));

        server.listen();

        wait_for("the IP", || exists(&server, "rome-1")).await;
        manager.abort();
    });
}

#[test]
fn a_standby_writes_nothing_until_the_lease_of_the_leader_expires() {
    run(async {
        let server = ApiServer::start();
        let (state, manager) = start(&server, "a");
        wait_for("it to lead", || state.is_leader()).await;
        let hold = |holder: &str, seconds: i64| {
            server.put(
                LEASE,
                json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": "liqo-controller-manager", "namespace": "liqo"},
                    "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds},
                }),
            );
        };

        hold("b", 3600);
        wait_for("it to be a standby", || !state.is_leader()).await;
        put_node(&server, "rome-1", "172.18.1.2");
        assert_eq!((state.healthy(), state.ready()), (Ok(()), Ok(())));
        assert!(!exists(&server, "rome-1"));
        hold("", 1);

        wait_for("the IP", || exists(&server, "rome-1")).await;
        assert!(!manager.is_finished());
        manager.abort();
    });
}

#[test]
fn a_manager_accesses_secrets_in_tenant_namespaces_only() {
    run(async {
        let server = ApiServer::start();
        put_gateway(&server, "liqo-tenant-milan");
        put_namespace(&server, "liqo-tenant-milan", "false");
        let (_, manager) = start(&server, "a");
        let networking = "/apis/networking.liqo.io/v1beta1/namespaces/liqo-tenant-milan";
        let reason = || {
            let gateway = server.get(&format!("{networking}/gatewayservers/milan"));
            let conditions = gateway.unwrap_or_default()["status"]["conditions"].take();
            conditions[0]["reason"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        wait_for("the refusal", || reason() == "NotTenantNamespace").await;
        assert!(server.get(BINDING).is_none() && server.get(KEYS).is_none());

        put_namespace(&server, "liqo-tenant-milan", "true");
        wait_for("the binding", || server.get(BINDING).is_some()).await;
        wait_for("the keys", || server.get(KEYS).is_some()).await;
        // Only a watch of the namespace reports this.
        server.remove(KEYS);
        wait_for("the keys again", || server.get(KEYS).is_some()).await;

        put_namespace(&server, "liqo-tenant-milan", "false");
        wait_for("the deletion of the binding", || {
            server.get(BINDING).is_none()
        })
        .await;
        wait_for("the refusal", || reason() == "NotTenantNamespace").await;
        manager.abort();
    });
}

#[test]
fn secrets_are_watched_in_namespaces_with_a_gateway_only() {
    run(async {
        let server = ApiServer::start();
        let front = Front::start(&server, |_| Reply::Forward);
        put_namespace(&server, "liqo-tenant-milan", "true");
        let (_, manager) = start_at(&front.url(), "a");
        let of_secrets =
            |head: &Head| head.is_watch() && head.target.contains("/liqo-tenant-milan/secrets");
        wait_for("the binding", || server.get(BINDING).is_some()).await;
        put_node(&server, "rome-1", "172.18.1.2");
        wait_for("the IP", || exists(&server, "rome-1")).await;
        assert_eq!(front.count(of_secrets), 0);

        put_gateway(&server, "liqo-tenant-milan");
        wait_for("the keys", || server.get(KEYS).is_some()).await;
        assert_eq!(front.count(of_secrets), 1);
        manager.abort();
    });
}

/// Until the API server has listed the Secrets, a gateway's condition must not say that the manager lacks rights.
#[test]
fn a_new_gateway_waits_for_the_list_of_its_secrets() {
    run(async {
        let server = ApiServer::start();
        let of_secrets = |head: &Head| head.target.contains("/liqo-tenant-milan/secrets");
        let front = Front::start(&server, move |head| match of_secrets(head) {
            true => Reply::Silence,
            false => Reply::Forward,
        });
        put_namespace(&server, "liqo-tenant-milan", "true");
        let (_, manager) = start_at(&front.url(), "a");
        wait_for("the binding", || server.get(BINDING).is_some()).await;

        put_gateway(&server, "liqo-tenant-milan");
        wait_for("the watch", || front.count(of_secrets) == 1).await;
        put_node(&server, "rome-1", "172.18.1.2");
        wait_for("the IP", || exists(&server, "rome-1")).await;
        let is_status = |head: &Head| head.target.contains("/gatewayservers/milan/status");
        assert_eq!(front.count(is_status), 0);
        // It reports the failure in the end.
        wait_for("the status", || front.count(is_status) > 0).await;
        assert!(server.get(KEYS).is_none());
        manager.abort();
    });
}

#[test]
fn a_restarted_manager_waits_for_the_secrets_that_it_may_read() {
    run(async {
        let server = ApiServer::start();
        put_gateway(&server, "liqo-tenant-milan");
        put_namespace(&server, "liqo-tenant-milan", "true");
        let (_, first) = start(&server, "a");
        wait_for("the keys", || server.get(KEYS).is_some()).await;
        let keys = server.get(KEYS);
        first.abort();

        let (state, second) = start(&server, "a");
        wait_for("it to be ready", || state.ready().is_ok()).await;
        put_node(&server, "rome-1", "172.18.1.2");
        wait_for("the IP", || exists(&server, "rome-1")).await;

        assert_eq!(server.get(KEYS), keys);
        second.abort();
    });
}

#[test]
fn slow_writes_of_one_resource_are_sent_once_and_delay_no_other_resource() {
    const PEERS: usize = 40;
    run(async {
        let server = ApiServer::start();
        let delay = Duration::from_secs(1);
        server.slow_down("/gatewayservers/", delay);
        for number in 0..PEERS {
            put_gateway_of(
                &server,
                &format!("other-{number}"),
                &format!("peer-{number}"),
            );
        }
        let (_, manager) = start(&server, "a");
        wait_for("slow writes", || server.slow_writes() > 0).await;
        let began_at = std::time::Instant::now();
        put_node(&server, "rome-1", "172.18.1.2");
        wait_for("the IP", || exists(&server, "rome-1")).await;
        let took = began_at.elapsed();
        assert!(
            server.slow_writes() < PEERS,
            "all slow writes were sent already"
        );
        assert!(took < delay, "the IP waited for slow writes: {took:?}");

        let condition = |number: usize| {
            let path = format!(
                "/apis/networking.liqo.io/v1beta1/namespaces/other-{number}/gatewayservers/peer-{number}"
            );
            server.get(&path).unwrap_or_default()["status"]["conditions"].is_array()
        };
        wait_for("all statuses", || (0..PEERS).all(condition)).await;
        assert_eq!(server.slow_writes(), PEERS);
        manager.abort();
    });
}

fn client(url: &str) -> Client {
    let config = kube::Config::new(url.parse().unwrap());
    control_runtime::transport::client(&config).unwrap()
}

/// The process has one thread, too.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(test);
}

/// Starts a manager of the cluster that `server` serves.
fn start(server: &ApiServer, identity: &str) -> (RuntimeStatus, JoinHandle<()>) {
    start_at(&server.url(), identity)
}

/// Starts a manager of the cluster at a URL.
fn start_at(url: &str, identity: &str) -> (RuntimeStatus, JoinHandle<()>) {
    let state = State::new(Settings {
        namespace: "liqo".to_owned(),
        tenant_namespaces: Vec::new(),
        pools: DEFAULT_POOLS.to_vec(),
        gateway_port: 51840,
        exposes_api_server: true,
        deployment_image: None,
        installation: None,
    });
    let settings = runtime::Settings {
        name: "liqo-controller-manager",
        identity: identity.to_owned(),
        random: || [7; 32],
    };
    let mut registry = Registry::default();
    let metrics = crate::metrics::Metrics::new(&mut registry);
    let controller = NetworkController::new(state.unwrap(), metrics);
    let metrics = runtime::Metrics::new(&mut registry);
    let mut runtime = Runtime::new(client(url), settings, metrics);
    let replicas = Replicas::WarmStandby(LeaseSettings {
        namespace: "liqo".to_owned(),
        name: "liqo-controller-manager".to_owned(),
        timing: TIMING,
    });
    runtime.add(controller, &replicas).unwrap();
    let status = runtime.status();

    (status, tokio::spawn(runtime.run(std::future::pending())))
}

const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/liqo-tenant-milan/rolebindings/liqo-controller-manager-tenant";
const KEYS: &str = "/api/v1/namespaces/liqo-tenant-milan/secrets/gw-milan";

fn put_namespace(server: &ApiServer, name: &str, is_tenant: &str) {
    let labels = json!({
        "liqo.io/remote-cluster-id": "milan",
        "liqo.io/tenant-namespace": is_tenant,
    });
    let metadata = json!({"name": name, "labels": labels});
    server.put(
        &format!("/api/v1/namespaces/{name}"),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
    );
}

/// A Service of a user has the name of the Service that an IP requests, and is deleted later. No watch
/// of the manager reports it.
#[test]
fn a_service_of_a_user_blocks_that_of_an_ip_until_it_is_deleted() {
    const IPS: &str = "/apis/ipam.liqo.io/v1alpha1/namespaces/liqo/ips/printer";
    const SERVICE: &str = "/api/v1/namespaces/liqo/services/printer";
    run(async {
        let server = ApiServer::start();
        put_namespace(&server, "liqo", "false");
        let metadata = json!({"name": "printer", "namespace": "liqo"});
        server.put(
            SERVICE,
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {"ports": [{"port": 1}]}}),
        );
        server.put(
            IPS,
            json!({"apiVersion": "ipam.liqo.io/v1alpha1", "kind": "IP", "metadata": metadata,
                "spec": {"ip": "192.0.2.9", "serviceTemplate": {"spec": {"ports": [{"port": 80}]}}}}),
        );
        server.put(
            "/apis/ipam.liqo.io/v1alpha1/namespaces/liqo/networks/external-cidr",
            json!({"apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network",
                "metadata": {"name": "external-cidr", "namespace": "liqo",
                    "labels": {"ipam.liqo.io/network-type": "external-cidr"}},
                "spec": {"cidr": "10.70.0.0/16"}}),
        );
        let (_, manager) = start(&server, "a");
        let port = || server.get(SERVICE).unwrap_or_default()["spec"]["ports"][0]["port"].clone();
        wait_for("the address", || {
            server.get(IPS).unwrap_or_default()["status"]["ip"].is_string()
        })
        .await;
        assert_eq!(port(), 1);

        server.remove(SERVICE);
        wait_for("the Service of the IP", || port() == 80).await;
        manager.abort();
    });
}

/// Stores a GatewayServer for the peer milan.
fn put_gateway(server: &ApiServer, namespace: &str) {
    put_gateway_of(server, namespace, "milan");
}

/// Stores a GatewayServer for a peer.
fn put_gateway_of(server: &ApiServer, namespace: &str, peer: &str) {
    let path =
        format!("/apis/networking.liqo.io/v1beta1/namespaces/{namespace}/gatewayservers/{peer}");
    let labels = json!({"liqo.io/remote-cluster-id": peer});
    server.put(
        &path,
        json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": "GatewayServer",
            "metadata": {"name": peer, "namespace": namespace, "labels": labels},
            "spec": {"endpoint": {"port": 51840, "serviceType": "NodePort"}},
        }),
    );
}

fn put_node(server: &ApiServer, name: &str, address: &str) {
    server.put(
        &format!("/api/v1/nodes/{name}"),
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        }),
    );
}

fn ip_path(node: &str) -> String {
    format!("/apis/ipam.liqo.io/v1alpha1/namespaces/liqo/ips/node-{node}")
}

fn exists(server: &ApiServer, node: &str) -> bool {
    server.get(&ip_path(node)).is_some()
}

fn lease_version(server: &ApiServer) -> Option<Value> {
    Some(server.get(LEASE)?["metadata"]["resourceVersion"].clone())
}

async fn wait_for(event: &str, has_happened: impl Fn() -> bool) {
    let waited = async {
        while !has_happened() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, waited).await;
    waited.unwrap_or_else(|_| panic!("waited too long for {event}"));
}
