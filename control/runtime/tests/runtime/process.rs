//! Processes that run the example of the crate's documentation.

use crate::example::NodeAddresses;
use control_runtime::{
    Controller, LeaseSettings, Metrics, Replicas, Runtime, RuntimeStatus, Settings, Timing,
};
use fake_apiserver::ApiServer;
use prometheus_client::registry::Registry;
use serde_json::json;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Time limit of each step of a test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A process with one controller.
pub(crate) struct Process {
    pub(crate) status: RuntimeStatus,
    metrics: Registry,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Process {
    /// Starts a process with the example's controller; with `timing`, it takes part in the election.
    pub(crate) fn start(server: &ApiServer, identity: &str, timing: Option<Timing>) -> Self {
        Self::host(&server.url(), identity, timing, NodeAddresses)
    }

    /// Starts a process with a controller.
    pub(crate) fn host(
        url: &str,
        identity: &str,
        timing: Option<Timing>,
        controller: impl Controller,
    ) -> Self {
        Self::host_all(url, identity, timing, |runtime, replicas| {
            runtime.add(controller, replicas).expect("registrations");
        })
    }

    /// Starts a process with the controllers that `add` adds.
    pub(crate) fn host_all(
        url: &str,
        identity: &str,
        timing: Option<Timing>,
        add: impl FnOnce(&mut Runtime, &Replicas),
    ) -> Self {
        let config = kube::Config::new(url.parse().expect("a URL"));
        let client = control_runtime::transport::client(&config).expect("a client");
        let settings = Settings {
            name: "example",
            identity: identity.into(),
            random: || [0; 32],
        };
        let mut metrics = Registry::default();
        let mut runtime = Runtime::new(client, settings, Metrics::new(&mut metrics));
        let replicas = timing.map_or(Replicas::Active, |timing| {
            Replicas::WarmStandby(LeaseSettings {
                namespace: "addresses".into(),
                name: "example".into(),
                timing,
            })
        });
        add(&mut runtime, &replicas);
        let status = runtime.status();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(runtime.run(async { drop(stopped.await) }));

        Self {
            status,
            metrics,
            stop,
            task,
        }
    }

    /// Returns the value of a metric with these labels; 0 if there is none.
    pub(crate) fn metric(&self, name: &str, labels: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.metrics).expect("text");
        let start = format!("{name}{{{labels}}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&start));
        value.map_or(0.0, |value| value.parse().expect("a number"))
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
