//! Health and readiness of the process.

use crate::webhook::Readiness;
use control_runtime::RuntimeStatus;
use std::sync::OnceLock;
use telemetry::http::Observed;

/// State of the process, which is that of its runtime and its webhooks once they have started.
#[derive(Debug, Default)]
pub(crate) struct State {
    runtime: OnceLock<RuntimeStatus>,
    webhook: OnceLock<Readiness>,
}

impl State {
    /// Sets the status of the runtime.
    pub(crate) fn set(&self, status: RuntimeStatus) {
        self.runtime.get_or_init(|| status);
    }

    /// Sets the readiness of the webhooks.
    pub(crate) fn set_webhook(&self, readiness: Readiness) {
        self.webhook.get_or_init(|| readiness);
    }
}

impl Observed for State {
    fn healthy(&self) -> Result<(), String> {
        self.runtime.get().map_or(Ok(()), RuntimeStatus::healthy)
    }

    fn ready(&self) -> Result<(), String> {
        match self.runtime.get() {
            Some(status) => status.ready()?,
            None => return Err("the API server does not respond yet".to_owned()),
        }
        self.webhook.get().map_or(Ok(()), Readiness::ready)
    }
}
