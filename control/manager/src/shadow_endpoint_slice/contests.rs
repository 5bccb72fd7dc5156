//! Limits how often an EndpointSlice is restored that another client of this cluster changes.

use super::item::WorkItem;
use super::metrics::Metrics;
use super::plan::{Planned, reference, slice_of};
use crate::authentication::warn;
use control_api::labels;
use control_runtime::{Action, Digest, Key, Restores};
use std::collections::BTreeMap;
use std::time::Instant;

/// The fields of EndpointSlices that were written last.
#[derive(Debug)]
pub(super) struct Contests {
    restores: Restores<Key>,
    /// The fields that are being written, and since when.
    sent: BTreeMap<Key, (Digest, Instant)>,
    metrics: Metrics,
}

impl Contests {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            restores: Restores::default(),
            sent: BTreeMap::new(),
            metrics,
        }
    }

    /// Drops everything, as this replica counts from now on.
    pub(super) fn reset(&mut self) {
        self.metrics.reset_contests();
        *self = Self::new(self.metrics.clone());
    }

    /// Takes the write of a slice out of its plan if the same fields were restored too often. Other fields are written at once: the
    /// consumer, or this cluster, has changed them.
    pub(super) fn plan(&mut self, item: &WorkItem, planned: &mut Planned, now: Instant) {
        let (key, plan) = (&item.key, &mut planned.plan);
        self.sent.remove(key);
        let Some(state) = planned.state else {
            return self.track(key, |restores| restores.forget(key));
        };
        let mut writes = plan.writes.iter();
        let Some(position) = writes.position(|it| it.action != Action::Delete) else {
            let rest = self.track(key, |restores| restores.calm(key, now));
            let later = rest.map(|rest| (rest, item.clone()));
            return plan.requeue.extend(later);
        };
        let Some(rest) = self.restores.wait(key, state, now) else {
            self.sent.insert(key.clone(), (state, now));
            return;
        };
        plan.writes.remove(position);
        plan.requeue.push((rest, item.clone()));
        let Some(other_manager) = self.restores.other_manager(key) else {
            // The object names its field managers.
            return plan.reads.push(slice_of(key));
        };
        let note = format!(
            "{other_manager} changes the EndpointSlice {key} of the provider again and again, so it is restored once a minute: remove \
             the right to change it, or exclude slices with the label {}={} there",
            labels::MANAGED_BY,
            labels::MANAGED_BY_SHADOW_ENDPOINT_SLICE,
        );
        warn(plan, reference(key), ("EndpointSliceContested", note));
        if let Some(event) = plan.events.last_mut() {
            event.is_repeated = self.restores.take_report(key, now);
        }
    }

    /// Notes that a slice was written.
    pub(super) fn wrote(&mut self, key: &Key) {
        if let Some((state, at)) = self.sent.remove(key) {
            self.track(key, |restores| restores.wrote(key, state, at));
        }
    }

    /// Takes the field managers of a slice, the latest first; none if it is gone. Returns whether the slice has to be planned again.
    pub(super) fn read<'a>(
        &mut self,
        key: &Key,
        managers: impl IntoIterator<Item = &'a str>,
        own: &str,
    ) -> bool {
        self.restores.name(key, managers, own);

        self.restores.is_contested(key)
    }

    /// Changes the state of a slice, and counts the beginning or the end of a contest.
    fn track<T>(&mut self, key: &Key, change: impl FnOnce(&mut Restores<Key>) -> T) -> T {
        let was_contested = self.restores.is_contested(key);
        let result = change(&mut self.restores);
        self.metrics
            .count_contest(was_contested, self.restores.is_contested(key));

        result
    }
}
