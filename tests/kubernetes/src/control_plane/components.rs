//! Starts, suspends and ends the components of a control plane.

use super::{ControlPlane, Process};
use anyhow::{Context as _, Error, Result, anyhow};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// A component of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The database.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controller manager.
    ControllerManager,
}

/// The time limit for the start of the API server. An idle machine needs three seconds, and a loaded
/// one ten times as long.
const START: Duration = Duration::from_secs(60);

/// The time-out of a single check, and the time between two checks.
const CHECK_MAX: Duration = Duration::from_secs(5);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

impl ControlPlane {
    /// Starts a component, unless it is running. Does not wait until it is ready.
    ///
    /// # Errors
    ///
    /// Returns an error if its program is missing.
    pub fn start_component(&self, component: Component) -> Result<()> {
        self.processes()[component as usize].start()
    }

    /// Kills a component.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses to signal the process.
    pub fn stop_component(&self, component: Component) -> Result<()> {
        self.processes()[component as usize].stop()
    }

    /// Suspends a component (SIGSTOP). Its connections stay open, without responses.
    ///
    /// # Errors
    ///
    /// Returns an error if the component is not running.
    pub fn pause_component(&self, component: Component) -> Result<()> {
        self.processes()[component as usize].pause()
    }

    /// Resumes a suspended component (SIGCONT).
    ///
    /// # Errors
    ///
    /// Returns an error if the component is not running.
    pub fn resume_component(&self, component: Component) -> Result<()> {
        self.processes()[component as usize].resume()
    }

    /// Kills the API server and starts it again at the same address, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Returns an error with the end of the log if the API server does not start.
    pub async fn restart_api_server(&self) -> Result<()> {
        self.stop_component(Component::ApiServer)?;
        self.start_component(Component::ApiServer)?;
        self.until_ready().await
    }

    /// Starts and resumes all components, and waits until the API server is ready.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ControlPlane::until_ready`].
    pub async fn recover(&self) -> Result<()> {
        let mut components = vec![Component::Etcd, Component::ApiServer];
        if self.options.controller_manager {
            components.push(Component::ControllerManager);
        }
        for component in components {
            self.start_component(component)?;
            self.resume_component(component)?;
        }

        self.until_ready().await
    }

    /// Waits until the API server is ready.
    ///
    /// # Errors
    ///
    /// Returns an error with the end of the log if etcd or the API server has ended.
    pub async fn until_ready(&self) -> Result<()> {
        let client = self.client().await?;
        let deadline = Instant::now() + START;
        loop {
            for component in [Component::Etcd, Component::ApiServer] {
                self.processes()[component as usize].check()?;
            }
            let request = http::Request::get("/readyz").body(Vec::new());
            let request = request.context("the request is valid")?;
            let ready = timeout(CHECK_MAX, client.request_text(request)).await;
            let error = match ready {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => Error::from(error),
                Err(_) => anyhow!("no response"),
            };
            if Instant::now() >= deadline {
                return Err(error.context("the API server does not become ready"));
            }
            sleep(CHECK_INTERVAL).await;
        }
    }

    pub(super) fn processes(&self) -> MutexGuard<'_, [Process; 3]> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
