//! Processes of the controller manager.

use crate::fixture::{Deadline, Fixture, SOON, until};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use kubernetes_lab::control_plane::{AuditEvent, ControlPlane};
use kubernetes_lab::pki::Subject;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::env;
use std::path::{Path, PathBuf};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The environment variable that `cargo xtask test --kubernetes` sets to the controller manager.
const PROGRAM: &str = "LIQO_LAB_MANAGER";

/// A controller manager that is a user of its own. It ends with this value.
pub(crate) struct Manager {
    user: &'static str,
    kubeconfig: PathBuf,
    arguments: Vec<String>,
    child: Child,
}

impl Manager {
    /// Starts a manager of the installation in `namespace`.
    pub(crate) fn start(fixture: &Fixture, user: &'static str, namespace: &str) -> Result<Self> {
        let group = Some("system:masters");
        let subject = Subject { user, group };
        Self::start_on(&fixture.control_plane, subject, namespace, &[])
    }

    /// Starts a manager of the installation in `namespace` of any control plane, with further arguments.
    pub(crate) fn start_on(
        control_plane: &ControlPlane,
        subject: Subject<'static>,
        namespace: &str,
        arguments: &[String],
    ) -> Result<Self> {
        let user = subject.user;
        let kubeconfig = control_plane.kubeconfig_as(subject, control_plane.server())?;
        let mut all = vec![
            format!("--namespace={namespace}"),
            format!("--pod-name={user}"),
            "--http=127.0.0.1:0".to_owned(),
        ];
        all.extend_from_slice(arguments);
        let child = spawn(&kubeconfig, &all)?;

        Ok(Self {
            user,
            kubeconfig,
            arguments: all,
            child,
        })
    }

    /// Kills the manager, and starts it again.
    pub(crate) async fn crash(&mut self) -> Result<()> {
        self.child
            .kill()
            .await
            .context("failed to kill a controller manager")?;
        self.child = spawn(&self.kubeconfig, &self.arguments)?;

        Ok(())
    }

    /// Waits until the manager watches Networks, IPs and the Lease.
    pub(crate) async fn until_watching(&self, fixture: &Fixture) -> Result<()> {
        until(Deadline::after(SOON), "the watches", async || {
            let events = self.events(fixture)?;
            for resource in ["networks", "ips", "leases"] {
                let is_watched = events
                    .iter()
                    .any(|it| it.verb == "watch" && is_of(it, resource));
                ensure!(is_watched, "no watch of {resource}");
            }
            Ok(())
        })
        .await
    }

    /// Returns when the manager took the Lease first; `None` if it has not.
    pub(crate) fn lease_taken(&self, fixture: &Fixture) -> Result<Option<Timestamp>> {
        let events = self.events(fixture)?;
        let mut taken = events
            .iter()
            .filter(|it| is_of(it, "leases") && is_stored(it));
        Ok(taken.next().map(|it| it.stage_timestamp.0))
    }

    /// Returns when the manager wrote the last status.
    pub(crate) fn last_status(&self, fixture: &Fixture) -> Result<Timestamp> {
        let events = self.events(fixture)?;
        let last = events.iter().rfind(|it| is_status(it));
        Ok(last.context("no status was written")?.stage_timestamp.0)
    }

    /// Returns the codes of the responses to the writes of the status of a Network.
    pub(crate) fn codes(&self, fixture: &Fixture, network: &str) -> Result<Vec<i32>> {
        let events = self.events(fixture)?;
        let of_network = events.iter().filter(|it| {
            let object = it.object_ref.as_ref();
            let is_network =
                object.is_some_and(|it| it.name == network && it.subresource == "status");
            is_network && is_of(it, "networks") && it.stage == "ResponseComplete"
        });
        let codes = of_network.filter_map(|it| Some(it.response_status.as_ref()?.code.into()));
        Ok(codes.collect())
    }

    /// Returns the names of the IPs and Networks whose status the manager has written.
    pub(crate) fn statuses(&self, fixture: &Fixture) -> Result<Vec<String>> {
        let events = self.events(fixture)?;
        let written = events.iter().filter(|it| is_status(it));
        let names = written.filter_map(|it| Some(it.object_ref.as_ref()?.name.clone()));
        Ok(names.collect())
    }

    /// Sends the manager the signal to stop, so that it releases the Lease, and waits until it has stopped.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        let pid = self.pid()?;
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM)
            .context("failed to send a signal")?;
        let status = timeout(SOON, self.child.wait()).await;
        let status = status.context("a manager does not stop")??;
        ensure!(status.success(), "{status}");

        Ok(())
    }

    /// Returns the ID of the process.
    pub(crate) fn pid(&self) -> Result<u32> {
        self.child.id().context("the manager has ended")
    }

    fn events(&self, fixture: &Fixture) -> Result<Vec<AuditEvent>> {
        let mut events = fixture.control_plane.audit_log().since(0)?;
        events.retain(|it| it.user.username == self.user);
        Ok(events)
    }
}

fn spawn(kubeconfig: &Path, arguments: &[String]) -> Result<Child> {
    let program = env::var_os(PROGRAM).with_context(|| format!("{PROGRAM} is not set"))?;
    Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("RUST_LOG", "error")
        .kill_on_drop(true)
        .spawn()
        .context("failed to start a controller manager")
}

fn is_of(event: &AuditEvent, resource: &str) -> bool {
    let object = event.object_ref.as_ref();
    object.is_some_and(|object| object.resource == resource)
}

/// Returns whether an event is the end of a write that succeeded.
fn is_stored(event: &AuditEvent) -> bool {
    let code = event.response_status.as_ref().map(|status| status.code);
    let is_write = ["create", "update", "patch"].contains(&event.verb.as_str());

    is_write && event.stage == "ResponseComplete" && matches!(code, Some(200 | 201))
}

fn is_status(event: &AuditEvent) -> bool {
    let object = event.object_ref.as_ref();
    let is_status = object.is_some_and(|object| object.subresource == "status");

    is_status && is_stored(event) && (is_of(event, "ips") || is_of(event, "networks"))
}
