//! Limits of the requests in flight, round-robin between peers.
//!
//! A cluster has at most [`CLUSTER_MAX`] requests in flight. One of its resources may have as many as the cluster has free places
//! for, and one queue of a resource as many as the resource has. So one alone gets half, and those that come later always find
//! places: a webhook that makes the writes of one resource slow delays no other resource, one that makes those of one
//! peer slow no other peer, and a peer with many requests no other peer.

use crate::controller::{Queue, Request};
use crate::round_robin::RoundRobin;
use control_client::object::{Cluster, Resource};
use std::collections::BTreeMap;

/// Most requests in flight per cluster. Below the streams of one connection that end (90), so
/// requests do not open a second connection.
const CLUSTER_MAX: usize = 64;

/// Most requests in flight per resource of a cluster.
const RESOURCE_MAX: usize = CLUSTER_MAX / 2;

/// Most requests about Events in flight per cluster. They come by the hundred while many pods start, concern no controller, and
/// would take half of the API server's processor time from the requests that the pods wait for.
const EVENTS_MAX: usize = 4;

/// Requests that wait, and the number in flight.
#[derive(Debug)]
pub(crate) struct InFlight<Id> {
    lanes: BTreeMap<LaneKey, Lane<Id>>,
    /// Lane and queue of the requests in flight.
    running: BTreeMap<Id, (LaneKey, Queue)>,
    in_flight: BTreeMap<Cluster, usize>,
    waiting: usize,
    /// The lane that was served last.
    last: Option<LaneKey>,
}

/// Cluster and resource; no resource for probes.
type LaneKey = (Cluster, Option<Resource>);

/// The requests of one resource in one cluster.
#[derive(Debug)]
struct Lane<Id> {
    waiting: RoundRobin<(Id, Request)>,
    /// Most requests in flight.
    limit: usize,
    in_flight: BTreeMap<Queue, usize>,
}

impl<Id> Default for InFlight<Id> {
    fn default() -> Self {
        Self {
            lanes: BTreeMap::new(),
            running: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            waiting: 0,
            last: None,
        }
    }
}

impl<Id> Lane<Id> {
    /// Takes the next request that the limits of resource and queues permit, while the cluster has `free` places.
    fn pop(&mut self, free: usize) -> Option<(Queue, (Id, Request))> {
        let running = self.in_flight.values().sum::<usize>();
        if running >= free {
            return None;
        }
        let free = self.limit.saturating_sub(running);
        let in_flight = |queue: &Queue| self.in_flight.get(queue).copied().unwrap_or_default();
        let (queue, request) = self.waiting.pop(|queue| in_flight(queue) < free)?;
        *self.in_flight.entry(queue.clone()).or_default() += 1;

        Some((queue, request))
    }
}

impl<Id: Ord + Clone> InFlight<Id> {
    /// Adds a request that may be sent.
    pub(crate) fn push(&mut self, id: Id, queue: Queue, request: Request) {
        let resource = request.object().map(|object| object.resource.clone());
        let is_event = resource.as_ref().is_some_and(|it| it.kind == "Event");
        let key = (request.cluster().clone(), resource);
        let lane = self.lanes.entry(key).or_insert_with(|| Lane {
            waiting: RoundRobin::default(),
            limit: if is_event { EVENTS_MAX } else { RESOURCE_MAX },
            in_flight: BTreeMap::new(),
        });
        lane.waiting.push(queue, (id, request));
        self.waiting += 1;
    }

    /// Takes the requests that the limits permit now.
    pub(crate) fn start(&mut self) -> Vec<(Id, Request)> {
        let mut started = Vec::new();
        if self.waiting == 0 {
            return started;
        }
        // Starts after the lane that was served last, so that busy lanes do not take all places.
        let split = self.last.clone();
        let (before, after): (Vec<_>, Vec<_>) =
            (self.lanes.iter_mut()).partition(|(key, _)| Some(*key) <= split.as_ref());
        for (key, lane) in after.into_iter().chain(before) {
            let in_flight = self.in_flight.entry(key.0.clone()).or_default();
            while let Some((queue, (id, request))) = lane.pop(CLUSTER_MAX - *in_flight) {
                *in_flight += 1;
                self.waiting -= 1;
                self.last = Some(key.clone());
                self.running.insert(id.clone(), (key.clone(), queue));
                started.push((id, request));
            }
        }

        started
    }

    /// Removes requests that wait, and returns their numbers.
    pub(crate) fn remove(&mut self, is_removed: impl Fn(&Id, &Request) -> bool) -> Vec<Id> {
        let mut removed = Vec::new();
        for lane in self.lanes.values_mut() {
            let gone = lane.waiting.remove(|(id, request)| is_removed(id, request));
            removed.extend(gone.into_iter().map(|(id, _)| id));
        }
        self.lanes
            .retain(|_, lane| !lane.in_flight.is_empty() || !lane.waiting.is_empty());
        self.waiting -= removed.len();

        removed
    }

    /// Notes that a started request has ended.
    pub(crate) fn ended(&mut self, id: &Id) {
        let Some((key, queue)) = self.running.remove(id) else {
            return;
        };
        if let Some(lane) = self.lanes.get_mut(&key) {
            decrease(&mut lane.in_flight, &queue);
            if lane.in_flight.is_empty() && lane.waiting.is_empty() {
                self.lanes.remove(&key);
            }
        }
        decrease(&mut self.in_flight, &key.0);
    }

    /// Returns the number of requests that wait for others to end.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }
}

/// Takes one from a number, which is removed at zero.
fn decrease<K: Ord>(numbers: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(number) = numbers.get_mut(key) {
        *number = number.saturating_sub(1);
        if *number == 0 {
            numbers.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_client::object::{Key, Ref};
    use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};

    fn read<K: kube::Resource<DynamicType = ()>>(name: &str) -> Request {
        Request::Read(Ref::of::<K>(&Cluster::Local, &Key::new("a", name)))
    }

    fn peer(number: usize) -> Queue {
        Queue(format!("peer-{number}"))
    }

    fn ids(started: &[(usize, Request)]) -> Vec<usize> {
        started.iter().map(|(id, _)| *id).collect()
    }

    #[test]
    fn a_slow_resource_leaves_room_for_the_others() {
        let mut requests = InFlight::default();
        for number in 0..1_000 {
            requests.push(number, peer(number), read::<Secret>("slow"));
        }
        let slow = requests.start();
        requests.push(1_000, Queue::default(), read::<ConfigMap>("fast"));
        let fast = requests.start();

        assert_eq!(slow.len(), RESOURCE_MAX);
        assert_eq!(ids(&fast), [1_000]);
        requests.ended(&1_000);
        requests.ended(&slow[0].0);
        assert_eq!(requests.start().len(), 1);
        assert_eq!(requests.waiting(), 1_000 - RESOURCE_MAX - 1);
    }

    #[test]
    fn few_events_are_in_flight() {
        let mut requests = InFlight::default();
        for number in 0..100 {
            requests.push(number, peer(number), read::<Event>("started"));
        }
        let events = requests.start();
        requests.push(100, Queue::default(), read::<ConfigMap>("fast"));

        assert_eq!(events.len(), EVENTS_MAX);
        assert_eq!(ids(&requests.start()), [100]);
        requests.ended(&events[0].0);
        assert_eq!(requests.start().len(), 1);
    }

    /// A webhook that reviews the objects of a few peers only.
    #[test]
    fn a_slow_peer_leaves_room_for_the_others_of_the_same_resource() {
        let mut requests = InFlight::default();
        for number in 0..300 {
            requests.push(number, peer(number % 3), read::<Secret>("slow"));
        }
        let slow = requests.start();
        assert!((RESOURCE_MAX / 2..RESOURCE_MAX).contains(&slow.len()));

        requests.push(300, peer(3), read::<Secret>("fast"));

        assert_eq!(ids(&requests.start()), [300]);
        requests.ended(&300);
        assert!(requests.start().is_empty());
    }

    #[test]
    fn peers_take_turns() {
        let mut requests = InFlight::default();
        for number in 0..RESOURCE_MAX {
            requests.push(number, peer(number), read::<Secret>("x"));
        }
        requests.start();
        for number in 100..200 {
            requests.push(number, peer(100), read::<Secret>("x"));
        }
        requests.push(200, peer(200), read::<Secret>("x"));

        requests.ended(&0);
        requests.ended(&1);

        assert_eq!(ids(&requests.start()), [100, 200]);
    }

    #[test]
    fn busy_resources_leave_room_for_another() {
        let resource = |number: usize| {
            let mut request = read::<Secret>("x");
            if let Request::Read(object) = &mut request {
                object.resource.plural = format!("busy-{number}").into();
            }
            request
        };
        let mut requests = InFlight::default();
        for number in 0..CLUSTER_MAX * 4 {
            requests.push(number, peer(number), resource(number % 4));
        }
        let running = requests.start();
        assert!((CLUSTER_MAX / 2..CLUSTER_MAX).contains(&running.len()));

        requests.push(9_999, Queue::default(), read::<Secret>("other"));

        assert_eq!(ids(&requests.start()), [9_999]);
    }

    #[test]
    fn a_peer_alone_has_more_places_than_one_of_many() {
        let mut requests = InFlight::default();
        for number in 0..100 {
            requests.push(number, peer(0), read::<Secret>("x"));
        }
        let alone = requests.start();
        assert_eq!(alone.len(), RESOURCE_MAX / 2);

        for number in 100..200 {
            requests.push(number, peer(1), read::<Secret>("x"));
        }
        let other = requests.start();
        alone.iter().for_each(|(ended, _)| requests.ended(ended));
        let later = requests.start();

        let of = |started: &[(usize, Request)], is_of: fn(usize) -> bool| {
            started.iter().filter(|(id, _)| is_of(*id)).count()
        };
        let (first, second) = (of(&later, |id| id < 100), of(&later, |id| id >= 100));
        assert!(first >= RESOURCE_MAX / 4, "{first}");
        assert!(second + other.len() >= RESOURCE_MAX / 4, "{second}");
    }

    #[test]
    fn removed_requests_are_not_started_and_others_are() {
        let mut requests = InFlight::default();
        for number in 0..RESOURCE_MAX {
            requests.push(number, peer(number), read::<Secret>("x"));
        }
        let running = ids(&requests.start());
        for number in 100..110 {
            let queue = Queue((number % 2).to_string());
            requests.push(number, queue, read::<Secret>("x"));
        }
        requests.push(110, Queue::default(), read::<ConfigMap>("y"));

        let removed = requests.remove(|number, _| number % 2 == 0);

        assert_eq!(removed, [110, 100, 102, 104, 106, 108]);
        assert_eq!(requests.waiting(), 5);
        running.iter().for_each(|ended| requests.ended(ended));
        assert_eq!(ids(&requests.start()), [101, 103, 105, 107, 109]);
    }

    #[test]
    fn what_has_ended_is_forgotten() {
        let mut requests = InFlight::default();
        requests.push(0, Queue::default(), read::<Secret>("x"));
        requests.start();
        requests.ended(&0);

        assert!(requests.lanes.is_empty() && requests.in_flight.is_empty());
        assert!(requests.running.is_empty());
    }
}
