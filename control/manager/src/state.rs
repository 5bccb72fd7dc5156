//! Health and readiness of the process.

use control_runtime::RuntimeStatus;
use std::sync::OnceLock;
use telemetry::http::Observed;

/// State of the process, which is that of its runtime once the runtime has started.
#[derive(Debug, Default)]
pub(crate) struct State {
    runtime: OnceLock<RuntimeStatus>,
}

impl State {
    /// Sets the status of the runtime.
    pub(crate) fn set(&self, status: RuntimeStatus) {
        self.runtime.get_or_init(|| status);
    }
}

impl Observed for State {
    fn healthy(&self) -> Result<(), String> {
        self.runtime.get().map_or(Ok(()), RuntimeStatus::healthy)
    }

    fn ready(&self) -> Result<(), String> {
        match self.runtime.get() {
            Some(status) => status.ready(),
            None => Err("the API server does not respond yet".to_owned()),
        }
    }
}
