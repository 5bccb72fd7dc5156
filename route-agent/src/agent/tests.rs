use super::*;
use crate::status::Status;
use crate::testing::gateway::Gateway;
use crate::testing::{Namespace, eventually, fabric_file, in_netns, run};
use prometheus_client::registry::Registry;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod changes;
mod echo;
mod partial;
mod spoofing;
mod traffic;

const PATIENT: liveness::Config = liveness::Config {
    interval: Duration::from_millis(500),
    reply_timeout_min: Duration::from_secs(1),
    suspect_mult: 3,
    dead_mult: 20,
};

/// A running agent of the node rome-1, in the test's network namespace.
struct Running {
    directory: Directory,
    status: Shared,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    async fn start() -> Self {
        Self::start_with(Directory::new(&fabric_file())).await
    }

    async fn start_with(directory: Directory) -> Self {
        Self::start_as(directory, liveness::Config::default()).await
    }

    /// Starts an agent with longer probe time-outs. On a loaded machine, the threads of the
    /// simulated gateway reply later than a gateway's eBPF programs would.
    async fn start_patient() -> Self {
        Self::start_as(Directory::new(&fabric_file()), PATIENT).await
    }

    async fn start_as(directory: Directory, liveness: liveness::Config) -> Self {
        let status = Shared::default();
        let mut options = options(&directory);
        options.liveness = liveness;
        let mut agent = Agent::start(options, status.clone()).await.unwrap();

        Self {
            directory,
            status,
            task: tokio::spawn(async move { agent.run().await }),
        }
    }

    /// Aborts the agent without a shutdown, as a crash would, and starts a new agent.
    async fn restart(self) -> Self {
        self.task.abort();
        let Self {
            directory, task, ..
        } = self;
        assert!(task.await.unwrap_err().is_cancelled());

        Self::start_as(directory, PATIENT).await
    }

    async fn eventually(&self, what: &str, condition: impl Fn(&Status) -> bool) {
        eventually(what, async || {
            self.status.refresh().await;
            condition(&self.status.read())
        })
        .await;
    }

    /// Waits until the agent routes packets for the cluster milan to exactly these replicas.
    async fn reaches(&self, gateways: &[&str]) {
        self.eventually(
            &format!("sent packets for milan to {gateways:?}"),
            |status| status.peers[0].gateways == gateways,
        )
        .await;
    }
}

fn options(directory: &Directory) -> Options {
    Options {
        origin: Origin::File(directory.file()),
        node: "rome-1".into(),
        settings: Settings::default(),
        liveness: liveness::Config::default(),
        metrics: Metrics::new(&mut Registry::default()),
    }
}

/// A temporary directory with the file `fabric.yaml`. Dropping the value deletes the directory.
struct Directory(PathBuf);

impl Directory {
    fn new(content: &str) -> Self {
        let name = format!(
            "liqo-route-agent-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let directory = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&directory.0).unwrap();
        directory.write(content);

        directory
    }

    fn file(&self) -> PathBuf {
        Path::new(&self.0).join("fabric.yaml")
    }

    fn write(&self, content: &str) {
        fs::write(self.file(), content).unwrap();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
