//! The streams that are open: exec, attach, port-forward, and logs that are followed.

use super::metrics::Metrics;
use super::refusal::Refusal;
use http::StatusCode;
use https_server::{Limit, Slot, Slots};

/// The open streams, by user.
#[derive(Debug)]
pub(crate) struct Streams {
    slots: Slots<String>,
    metrics: Metrics,
}

/// The slot of an open stream.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    slot: Option<Slot<String>>,
    slots: Slots<String>,
    metrics: Metrics,
}

impl Streams {
    /// Creates the state without streams.
    pub(crate) fn new(limit: Limit, metrics: Metrics) -> Self {
        let slots = Slots::new(limit);
        Self { slots, metrics }
    }

    /// Takes a slot for a stream of a user.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the user, or all together, have too many streams.
    pub(crate) fn take(&self, user: &str) -> Result<StreamSlot, Refusal> {
        let slot = self.slots.take(user.to_owned()).map_err(|_| {
            Refusal::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too many streams to pods of this node are open: close some and retry",
            )
        })?;
        self.metrics.streaming(self.slots.total());

        Ok(StreamSlot {
            slot: Some(slot),
            slots: self.slots.clone(),
            metrics: self.metrics.clone(),
        })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.slot.take();
        self.metrics.streaming(self.slots.total());
    }
}
