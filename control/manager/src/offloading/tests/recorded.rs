//! The controller with a record of its Events, which the simulation leaves out.

use crate::offloading::OffloadingController;
use crate::offloading::item::WorkItem;
use control_runtime::{Cache, Change, Controller, Env, Plan, Queue, Registration, WatchId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Events, as `Kind name reason: note`.
#[derive(Clone, Default)]
pub(super) struct Notes(Arc<Mutex<BTreeSet<String>>>);

impl Notes {
    pub(super) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

pub(super) struct Recorded {
    pub(super) controller: OffloadingController,
    pub(super) notes: Notes,
}

impl Controller for Recorded {
    type Item = WorkItem;
    const NAME: &'static str = OffloadingController::NAME;
    const FIELD_MANAGER: &'static str = OffloadingController::FIELD_MANAGER;

    fn resources(&self) -> Vec<Registration> {
        self.controller.resources()
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        self.controller.observe(change, cache)
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        let plan = self.controller.plan(item, cache, env);
        let text = |event: &control_runtime::Event| {
            let (kind, name) = (&event.object.resource.kind, &event.object.key.name);
            format!("{kind} {name} {}: {}", event.reason, event.note)
        };
        self.notes
            .0
            .lock()
            .unwrap()
            .extend(plan.events.iter().map(text));
        plan
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<WorkItem> {
        self.controller.listed(id, cache)
    }

    fn queue(item: &WorkItem) -> Queue {
        OffloadingController::queue(item)
    }
}
