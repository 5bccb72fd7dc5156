//! Processes that run the example of the crate's documentation.

use crate::example::NodeAddresses;
use control_runtime::{LeaseSettings, Metrics, Replicas, Runtime, RuntimeStatus, Settings, Timing};
use fake_apiserver::ApiServer;
use prometheus_client::registry::Registry;
use serde_json::json;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Time limit of each step of a test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A process with the example's controller.
pub(crate) struct Process {
    pub(crate) status: RuntimeStatus,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Process {
    /// Starts a process; with `timing`, it takes part in the election.
    pub(crate) fn start(server: &ApiServer, identity: &str, timing: Option<Timing>) -> Self {
        let config = kube::Config::new(server.url().parse().expect("a URL"));
        let client = control_runtime::transport::client(&config).expect("a client");
        let settings = Settings {
            name: "example",
            identity: identity.into(),
            random: || [0; 32],
        };
        let metrics = Metrics::new(&mut Registry::default());
        let mut runtime = Runtime::new(client, settings, metrics);
        let replicas = timing.map_or(Replicas::Active, |timing| {
            Replicas::WarmStandby(LeaseSettings {
                namespace: "addresses".into(),
                name: "example".into(),
                timing,
            })
        });
        runtime
            .add(NodeAddresses, &replicas)
            .expect("registrations");
        let status = runtime.status();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(runtime.run(async { drop(stopped.await) }));

        Self { status, stop, task }
    }

    /// Ends the process as SIGKILL would: it releases nothing.
    pub(crate) fn kill(self) {
        self.task.abort();
    }

    /// Asks the process to stop, and waits until it has.
    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("the process runs");
        let ended = tokio::time::timeout(DEADLINE, self.task).await;
        ended.expect("the process stops").expect("no panic");
    }
}

pub(crate) fn put_node(server: &ApiServer, name: &str, address: &str) {
    server.put(
        &format!("/api/v1/nodes/{name}"),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]}}),
    );
}

/// Returns the addresses in the ConfigMap of a node.
pub(crate) fn addresses(server: &ApiServer, name: &str) -> Option<String> {
    let map = server.get(&format!("/api/v1/namespaces/addresses/configmaps/{name}"))?;
    Some(map["data"]["addresses"].as_str()?.to_owned())
}

pub(crate) async fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, waited).await;
    waited.unwrap_or_else(|_| panic!("waited too long for {what}"));
}
