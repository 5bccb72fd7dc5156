//! Further kinds whose watch a cluster refuses: the kind does not exist, or the right is missing.

use control_runtime::WatchId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Interval at which the Event about a refusal is repeated. Kubernetes deletes Events after an hour.
const REPORT_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// The refusals that were reported.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<WatchId, (String, Instant)>);

impl Refusals {
    /// Notes the last response to a watch, with the server's message if it was refused. Returns whether to report it: it is new,
    /// or was reported long ago.
    pub(super) fn is_due(&mut self, id: &WatchId, refusal: Option<&str>, now: Instant) -> bool {
        let Some(message) = refusal else {
            self.0.remove(id);
            return false;
        };
        let known = self.0.get(id);
        let is_known = known.is_some_and(|(reported, at)| {
            reported == message && now.saturating_duration_since(*at) < REPORT_INTERVAL
        });
        if !is_known {
            self.0.insert(id.clone(), (message.to_owned(), now));
        }

        !is_known
    }

    /// Drops the refusals of a namespace that is no longer followed.
    pub(super) fn retain(&mut self, is_followed: impl Fn(&WatchId) -> bool) {
        self.0.retain(|id, _| is_followed(id));
    }
}
