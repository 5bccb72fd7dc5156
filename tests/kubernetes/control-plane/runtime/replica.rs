//! Processes that run the controller: this program itself, started with environment variables.

use super::clock;
use super::copies::Copies;
use crate::fixture::{Deadline, Fixture, SOON, until};
use anyhow::{Context as _, Result, ensure};
use control_runtime::{LeaseSettings, Metrics, Replicas, Runtime, Settings, Timing, transport};
use kube::Config;
use kube::config::KubeConfigOptions;
use kubernetes_lab::control_plane::AuditEvent;
use kubernetes_lab::pki::Subject;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use prometheus_client::registry::Registry;
use std::env;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The environment variables of a replica: its identity, and the namespace of its objects.
const IDENTITY: &str = "LIQO_LAB_REPLICA";
const NAMESPACE: &str = "LIQO_LAB_REPLICA_NAMESPACE";

/// Set if the replica takes part in no election.
const IS_ACTIVE: &str = "LIQO_LAB_REPLICA_IS_ACTIVE";

/// Short durations of the election, since tests wait for them in real time.
pub(super) const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(3),
    renew_deadline: Duration::from_secs(2),
    renew_period: Duration::from_secs(1),
    retry_period: Duration::from_millis(500),
};

/// A process with the controller. It ends with this value, or with the process of the tests.
pub(super) struct Replica {
    identity: &'static str,
    child: Child,
}

impl Replica {
    /// Starts a replica, which is the user `identity`, and connects to `server`.
    pub(super) fn start(
        fixture: &Fixture,
        identity: &'static str,
        namespace: &str,
        server: &str,
    ) -> Result<Self> {
        Self::start_with(fixture, identity, namespace, server, &[])
    }

    /// Starts a replica that writes without a Lease.
    pub(super) fn start_active(
        fixture: &Fixture,
        identity: &'static str,
        namespace: &str,
        server: &str,
    ) -> Result<Self> {
        Self::start_with(fixture, identity, namespace, server, &[(IS_ACTIVE, "")])
    }

    fn start_with(
        fixture: &Fixture,
        identity: &'static str,
        namespace: &str,
        server: &str,
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let group = Some("system:masters");
        let subject = Subject {
            user: identity,
            group,
        };
        let kubeconfig = fixture.control_plane.kubeconfig_as(subject, server)?;
        let child = Command::new(env::current_exe()?)
            .env(IDENTITY, identity)
            .env(NAMESPACE, namespace)
            .env("KUBECONFIG", kubeconfig)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start a replica")?;

        Ok(Self { identity, child })
    }

    /// Waits until the replica watches all its resources and the Lease.
    pub(super) async fn until_watching(&self, fixture: &Fixture) -> Result<()> {
        until(
            Deadline::after(SOON),
            "the watches of a replica",
            async || {
                for resource in ["configmaps", "secrets", "serviceaccounts", "leases"] {
                    let events = self.events(fixture, resource)?;
                    let is_watched = events.iter().any(|it| it.verb == "watch");
                    ensure!(is_watched, "no watch of {resource}");
                }
                Ok(())
            },
        )
        .await
    }

    /// Returns the audit events of this replica's requests for a resource.
    pub(super) fn events(&self, fixture: &Fixture, resource: &str) -> Result<Vec<AuditEvent>> {
        let mut events = fixture.control_plane.audit_log().since(0)?;
        events.retain(|it| {
            let object = it.object_ref.as_ref();
            it.user.username == self.identity
                && object.is_some_and(|object| object.resource == resource)
        });

        Ok(events)
    }

    /// Returns how often the replica has listed all objects of a resource, in pages or as a streaming list. A list of
    /// one object only reads the version of the resource.
    pub(super) fn lists(&self, fixture: &Fixture) -> Result<usize> {
        let mut lists = 0;
        for resource in ["configmaps", "secrets", "serviceaccounts"] {
            let events = self.events(fixture, resource)?;
            let is_list = |it: &&AuditEvent| {
                let has = |text| it.request_uri.split(['?', '&']).any(|it| it == text);
                let is_complete = it.verb == "list" && !has("limit=1");
                it.stage == "RequestReceived" && (is_complete || has("sendInitialEvents=true"))
            };
            lists += events.iter().filter(is_list).count();
        }

        Ok(lists)
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().context("the replica has ended")?;
        kill(Pid::from_raw(pid.cast_signed()), signal).context("failed to send a signal")
    }

    /// Kills the replica, which cannot release its Lease then.
    pub(super) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("failed to kill a replica")
    }

    /// Sets the replica's wall clock to `behind` before the machine's.
    pub(super) async fn set_clock_back(&mut self, behind: Duration) -> Result<()> {
        let input = self.child.stdin.as_mut().context("the replica stops")?;
        let line = format!("{}\n", behind.as_secs());
        input.write_all(line.as_bytes()).await?;

        input.flush().await.context("failed to set a clock back")
    }

    /// Requests the replica to stop, and waits until it has stopped.
    pub(super) async fn stop(&mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = timeout(SOON, self.child.wait()).await;
        let status = status.context("a replica does not stop")??;
        ensure!(status.success(), "{status}");

        Ok(())
    }
}

/// Runs a replica if this process was started as one. Returns whether it was.
pub(crate) fn run_if_started_as_replica() -> Result<bool> {
    let (Ok(identity), Ok(namespace)) = (env::var(IDENTITY), env::var(NAMESPACE)) else {
        return Ok(false);
    };
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(run(identity, namespace))?;

    Ok(true)
}

async fn run(identity: String, namespace: String) -> Result<()> {
    let config = Config::from_kubeconfig(&KubeConfigOptions::default()).await?;
    let settings = Settings {
        name: "copies",
        identity,
        random: || [0; 32],
    };
    let metrics = Metrics::new(&mut Registry::default());
    let mut runtime = Runtime::new(transport::client(&config)?, settings, metrics);
    let replicas = match env::var_os(IS_ACTIVE) {
        Some(_) => Replicas::Active,
        None => Replicas::WarmStandby(LeaseSettings {
            namespace: namespace.clone(),
            name: "copies".to_owned(),
            timing: TIMING,
        }),
    };
    runtime.add(Copies { namespace }, &replicas)?;

    runtime.run(input_ends()).await;
    Ok(())
}

/// Completes at the end of the standard input, which is at the latest the end of the tests. Each line
/// sets the wall clock back by a number of seconds.
async fn input_ends() {
    let (sender, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if let Some(seconds) = line.ok().and_then(|line| line.parse().ok()) {
                clock::set_back(Duration::from_secs(seconds));
            }
        }
        drop(sender);
    });
    drop(ended.await);
}
