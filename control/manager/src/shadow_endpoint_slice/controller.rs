//! Connects the planner of ShadowEndpointSlices to the runtime.

use super::contests::Contests;
use super::dropped::Dropped;
use super::item::WorkItem;
use super::metrics::Metrics;
use super::objects::Local;
use super::observe::{items_of, loses_address};
use super::plan::{self, is_owned, slice_of};
use super::registrations::registrations;
use super::settings::Settings;
use control_runtime::{
    Action, Cache, Change, Controller, Entry, Env, Key, Outcome, Plan, Queue, Registration, Request,
};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::BTreeMap;

/// Plans the EndpointSlices of consumers.
pub(crate) struct ShadowEndpointSliceController {
    settings: Settings,
    metrics: Metrics,
    /// EndpointSlices that no watch reports, with the name of a ShadowEndpointSlice.
    unwatched: BTreeMap<Key, Entry>,
    /// The items whose last plan left addresses out.
    dropped: BTreeMap<WorkItem, Addresses>,
    contests: Contests,
}

/// Addresses that a plan left out.
struct Addresses {
    count: usize,
    /// Whether one is that of a node.
    has_node: bool,
}

impl ShadowEndpointSliceController {
    /// Creates the controller.
    pub(crate) fn new(settings: Settings, metrics: Metrics) -> Self {
        Self {
            settings,
            contests: Contests::new(metrics.clone()),
            metrics,
            unwatched: BTreeMap::new(),
            dropped: BTreeMap::new(),
        }
    }

    /// Counts the addresses that a plan left out and the last plan of the item did not.
    fn count(&mut self, item: &WorkItem, dropped: &Dropped) {
        let (count, has_node) = (dropped.addresses, dropped.has_node);
        let last = if count == 0 {
            self.dropped.remove(item)
        } else {
            let addresses = Addresses { count, has_node };
            self.dropped.insert(item.clone(), addresses)
        };
        let last = last.map_or(0, |last| last.count);
        self.metrics.drop_addresses(count.saturating_sub(last));
    }

    /// Stores an EndpointSlice that a request returned. Returns whether the item has to be planned again.
    fn store(&mut self, key: &Key, entry: &Entry, cache: &Cache) -> bool {
        if cache.contains(&slice_of(key)) {
            // A watch has reported it since.
            return self.unwatched.remove(key).is_some();
        }
        let owned = |entry: &Entry| {
            let slice = entry.get::<EndpointSlice>();
            slice.is_some_and(|slice| is_owned(slice, key))
        };
        let last = self.unwatched.insert(key.clone(), entry.clone());

        last.is_none_or(|last| owned(&last) != owned(entry))
    }
}

impl Controller for ShadowEndpointSliceController {
    type Item = WorkItem;
    const NAME: &'static str = "shadow-endpoint-slice";
    /// That of upstream.
    const FIELD_MANAGER: &'static str = "shadow-endpointslice-controller";

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.settings.namespace)
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        let local = Local::new(cache, &self.settings);
        let mut items = items_of(&local, change);
        if change.is::<EndpointSlice>() {
            self.unwatched.remove(&change.object.key);
        } else if change.is::<Node>() && loses_address(change) {
            let waiting = self.dropped.iter().filter(|(_, it)| it.has_node);
            items.extend(waiting.map(|(item, _)| item.clone()));
        }

        Vec::from_iter(items)
    }

    fn started(&mut self, _: &Cache) -> Vec<WorkItem> {
        // No watch reports their deletion. The items find them again if they still exist.
        self.unwatched.clear();
        self.contests.reset();
        Vec::new()
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        let local = Local::new(cache, &self.settings);
        if local.shadows.get(&item.key).is_none() {
            self.unwatched.remove(&item.key);
        }
        let unwatched = self.unwatched.get(&item.key);
        let mut planned = plan::plan(&local, item, unwatched, env.now);
        self.contests.plan(item, &mut planned, env.at);
        self.count(item, &planned.dropped);

        planned.plan
    }

    fn done(
        &mut self,
        item: &WorkItem,
        request: &Request,
        outcome: &Outcome,
        cache: &Cache,
    ) -> Vec<WorkItem> {
        let key = &item.key;
        let again = match (request, outcome) {
            (Request::Read(_), Outcome::Gone) => {
                let is_contested = self.contests.read(key, [], Self::FIELD_MANAGER);
                self.unwatched.remove(key).is_some() || is_contested
            }
            (Request::Read(_), Outcome::Stored(entry)) => {
                let managers = entry.managers("");
                let is_contested = self.contests.read(key, managers, Self::FIELD_MANAGER);
                self.store(key, entry, cache) || is_contested
            }
            (Request::Write(_), Outcome::AlreadyExists(Some(entry))) => {
                self.store(key, entry, cache)
            }
            (Request::Write(write), Outcome::Stored(_)) if write.action != Action::Delete => {
                self.contests.wrote(key);
                false
            }
            _ => false,
        };

        again.then(|| item.clone()).into_iter().collect()
    }

    /// Consumers take turns.
    fn queue(item: &WorkItem) -> Queue {
        Queue(item.peer.clone())
    }

    fn item_kind(_: &WorkItem) -> &'static str {
        "shadow_endpoint_slice"
    }
}
