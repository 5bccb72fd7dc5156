//! Limits of the requests in flight, with turns between peers.
//!
//! A cluster has at most [`CLUSTER_MAX`] requests in flight, one of its resources at most a quarter
//! of them. A webhook that makes the writes of one resource slow so delays no other resource, and
//! a peer with many requests no other peer.

use crate::controller::{Queue, Request};
use crate::turns::Turns;
use control_client::object::{Cluster, Resource};
use std::collections::BTreeMap;

/// Most requests in flight per cluster. Below the streams of one connection that end (90), so
/// requests do not open a second connection.
const CLUSTER_MAX: usize = 64;

/// Most requests in flight per resource of a cluster.
const RESOURCE_MAX: usize = CLUSTER_MAX / 4;

/// Requests that wait, and the number in flight.
#[derive(Debug, Default)]
pub(crate) struct Admission<Id> {
    lanes: BTreeMap<(Cluster, Resource), Lane<Id>>,
    in_flight: BTreeMap<Cluster, usize>,
    waiting: usize,
    /// The lane that was served last.
    last: Option<(Cluster, Resource)>,
}

/// The requests of one resource in one cluster.
#[derive(Debug, Default)]
struct Lane<Id> {
    waiting: Turns<(Id, Request)>,
    in_flight: usize,
}

impl<Id: Default> Admission<Id> {
    /// Adds a request that may be sent.
    pub(crate) fn push(&mut self, id: Id, queue: Queue, request: Request) {
        let object = request.object();
        let key = (object.cluster.clone(), object.resource.clone());
        let lane = self.lanes.entry(key).or_default();
        lane.waiting.push(queue, (id, request));
        self.waiting += 1;
    }

    /// Takes the requests that the limits admit now.
    pub(crate) fn admit(&mut self) -> Vec<(Id, Request)> {
        let mut admitted = Vec::new();
        if self.waiting == 0 {
            return admitted;
        }
        // Starts after the lane that was served last, so that busy lanes do not take all places.
        let split = self.last.clone();
        let (before, after): (Vec<_>, Vec<_>) =
            (self.lanes.iter_mut()).partition(|(key, _)| Some(*key) <= split.as_ref());
        for (key, lane) in after.into_iter().chain(before) {
            let cluster = &key.0;
            let in_flight = self.in_flight.entry(cluster.clone()).or_default();
            while *in_flight < CLUSTER_MAX
                && lane.in_flight < RESOURCE_MAX
                && let Some(request) = lane.waiting.pop()
            {
                *in_flight += 1;
                lane.in_flight += 1;
                self.waiting -= 1;
                self.last = Some(key.clone());
                admitted.push(request);
            }
        }

        admitted
    }

    /// Removes requests that wait, and returns their numbers.
    pub(crate) fn remove(&mut self, is_removed: impl Fn(&Id, &Request) -> bool) -> Vec<Id> {
        let mut removed = Vec::new();
        for lane in self.lanes.values_mut() {
            let gone = lane.waiting.remove(|(id, request)| is_removed(id, request));
            removed.extend(gone.into_iter().map(|(id, _)| id));
        }
        self.lanes
            .retain(|_, lane| lane.in_flight > 0 || !lane.waiting.is_empty());
        self.waiting -= removed.len();

        removed
    }

    /// Notes that an admitted request has ended.
    pub(crate) fn ended(&mut self, request: &Request) {
        let object = request.object();
        let key = (object.cluster.clone(), object.resource.clone());
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.in_flight = lane.in_flight.saturating_sub(1);
            if lane.in_flight == 0 && lane.waiting.is_empty() {
                self.lanes.remove(&key);
            }
        }
        if let Some(in_flight) = self.in_flight.get_mut(&object.cluster) {
            *in_flight = in_flight.saturating_sub(1);
            if *in_flight == 0 {
                self.in_flight.remove(&object.cluster);
            }
        }
    }

    /// Returns the number of requests that wait for others to end.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_client::object::{Key, Ref};
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    fn read<K: kube::Resource<DynamicType = ()>>(name: &str) -> Request {
        Request::Read(Ref::of::<K>(&Cluster::Local, &Key::new("a", name)))
    }

    #[test]
    fn a_slow_resource_leaves_room_for_the_others() {
        let mut admission = Admission::default();
        for number in 0..1_000 {
            let peer = Queue(format!("peer-{number}"));
            admission.push(number, peer, read::<Secret>("slow"));
        }
        let slow = admission.admit();
        admission.push(1_000, Queue::default(), read::<ConfigMap>("fast"));
        let fast = admission.admit();

        assert_eq!(slow.len(), RESOURCE_MAX);
        assert_eq!(fast.len(), 1);
        assert_eq!(fast[0].0, 1_000);
        admission.ended(&slow[0].1);
        assert_eq!(admission.admit().len(), 1);
        assert_eq!(admission.waiting(), 1_000 - RESOURCE_MAX - 1);
    }

    #[test]
    fn peers_take_turns() {
        let mut admission = Admission::default();
        for number in 0..RESOURCE_MAX {
            admission.push(("first", number), Queue::default(), read::<Secret>("x"));
        }
        let running = admission.admit();
        for number in 0..100 {
            admission.push(("busy", number), Queue("busy".into()), read::<Secret>("x"));
        }
        admission.push(("other", 0), Queue("other".into()), read::<Secret>("x"));

        admission.ended(&running[0].1);
        admission.ended(&running[1].1);

        let admitted = admission.admit().into_iter().map(|((peer, _), _)| peer);
        assert_eq!(Vec::from_iter(admitted), ["busy", "other"]);
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
        let mut admission = Admission::default();
        for number in 0..CLUSTER_MAX * 4 {
            admission.push(number, Queue::default(), resource(number % 4));
        }
        let mut running = admission.admit();
        assert_eq!(running.len(), CLUSTER_MAX);
        admission.push(9_999, Queue::default(), read::<Secret>("other"));

        for _ in 0..5 {
            let (_, ended) = running.remove(0);
            admission.ended(&ended);
            running.extend(admission.admit());
        }

        assert!(running.iter().any(|(number, _)| *number == 9_999));
    }

    #[test]
    fn removed_requests_are_not_admitted_and_others_are() {
        let mut admission = Admission::default();
        for number in 0..RESOURCE_MAX {
            admission.push(number, Queue::default(), read::<Secret>("x"));
        }
        let running = admission.admit();
        for number in 100..110 {
            let queue = Queue((number % 2).to_string());
            admission.push(number, queue, read::<Secret>("x"));
        }
        admission.push(110, Queue::default(), read::<ConfigMap>("y"));

        let removed = admission.remove(|number, _| number % 2 == 0);

        assert_eq!(removed, [110, 100, 102, 104, 106, 108]);
        assert_eq!(admission.waiting(), 5);
        running.iter().for_each(|(_, ended)| admission.ended(ended));
        let admitted = admission.admit().into_iter().map(|(number, _)| number);
        assert_eq!(Vec::from_iter(admitted), [101, 103, 105, 107, 109]);
    }

    #[test]
    fn what_has_ended_is_forgotten() {
        let mut admission = Admission::default();
        admission.push(0, Queue::default(), read::<Secret>("x"));
        let admitted = admission.admit();
        admission.ended(&admitted[0].1);

        assert!(admission.lanes.is_empty() && admission.in_flight.is_empty());
    }
}
