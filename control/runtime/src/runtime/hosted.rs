//! A controller in a runtime.

use crate::cache::Cache;
use crate::worker::Worker;
use control_client::election::LeaseSettings;
use control_client::object::Resource;
use control_client::watch::WatchId;
use std::collections::BTreeSet;
use std::time::Instant;

/// Which of several replicas send the writes of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// All.
    Active,
    /// The holder of the Lease. The others watch and plan as well, so they take over without a list.
    WarmStandby(LeaseSettings),
    /// The holder of the Lease. The others do not even watch.
    ColdStandby(LeaseSettings),
}

impl Replicas {
    pub(super) fn lease(&self) -> Option<&LeaseSettings> {
        match self {
            Self::Active => None,
            Self::WarmStandby(lease) | Self::ColdStandby(lease) => Some(lease),
        }
    }
}

pub(super) struct Hosted {
    pub(super) worker: Box<dyn Worker>,
    pub(super) resources: BTreeSet<Resource>,
    /// Watches without which it cannot decide.
    pub(super) required: Vec<WatchId>,
    /// The election that decides whether its writes are sent; `None` if they always are.
    pub(super) election: Option<usize>,
    /// Whether its watches run only while the Lease is held.
    pub(super) is_cold: bool,
    pub(super) is_started: bool,
}

impl Hosted {
    pub(super) fn new(worker: Box<dyn Worker>, replicas: &Replicas) -> Self {
        let registrations = worker.registrations().iter();
        let required = registrations.filter(|it| !it.is_optional);

        Self {
            required: required.filter_map(|it| it.watch_id()).collect(),
            resources: worker.resources(),
            worker,
            election: None,
            is_cold: matches!(replicas, Replicas::ColdStandby(_)),
            is_started: false,
        }
    }

    /// Has every object observed, and so every item planned.
    pub(super) fn start(&mut self, cache: &Cache) {
        let now = Instant::now();
        self.is_started = true;
        for changed in cache.replay(&self.resources) {
            self.worker.observe(&changed.as_change(), cache, now);
        }
        self.worker.started(cache, now);
    }

    /// Forgets all items, because the watches of a cold standby end.
    pub(super) fn stop(&mut self) {
        self.is_started = false;
        self.worker.reset();
    }
}
