//! Does what plans ask for.

use super::{Response, Runtime, write};
use crate::cache::CacheLimits;
use crate::controller::{ClusterChange, Event, Outcome, Request, WatchChange};
use crate::execute::Context;
use crate::worker::{Effects, Ready, RequestId};
use control_client::kubeconfig::RemoteConfig;
use control_client::object::Cluster;
use std::time::Instant;

impl Runtime {
    /// Does what a plan asks for, besides sending requests.
    pub(super) fn carry_out(&mut self, worker: usize, effects: Effects) {
        let mut next = vec![effects];
        while let Some(effects) = next.pop() {
            let name = self.workers[worker].worker.name();
            for (item, waited) in effects.planned {
                self.metrics.planned(name, item, waited);
            }
            for (item, is_success, duration) in effects.ended {
                self.metrics.ended(name, item, is_success, duration);
            }
            for change in effects.clusters {
                match change {
                    ClusterChange::Set(cluster, config) => self.set_cluster(&cluster, &config),
                    ClusterChange::Remove(cluster) => self.remove_cluster(&cluster, worker),
                }
            }
            for change in effects.watches {
                match change {
                    WatchChange::Add(id) => self.add_watch(id, worker),
                    WatchChange::Remove(id) => self.remove_watch(&id, worker),
                }
            }
            for event in effects.events {
                self.publish(worker, event);
            }
            for ready in effects.requests {
                next.extend(self.enqueue(worker, ready));
            }
        }
    }

    /// Gives the outcome of a request to its controller.
    pub(super) fn complete(&mut self, worker: usize, id: RequestId, outcome: &Outcome) {
        let hosted = &mut self.workers[worker].worker;
        let effects = hosted.complete(id, outcome, &self.cache.read(), Instant::now());
        self.carry_out(worker, effects);
    }

    /// Lets a request wait until it is sent. One that only the leader sends ends at once on a standby,
    /// so that it is not sent after a take-over, when it is outdated.
    fn enqueue(&mut self, worker: usize, ready: Ready) -> Option<Effects> {
        let hosted = &mut self.workers[worker];
        let leadership = self.elections.leadership(hosted.election);
        if ready.request.is_of_leader() && !leadership.may_write() {
            let (cache, outcome) = (self.cache.read(), Outcome::NotLeader);
            return Some((hosted.worker).complete(ready.id, &outcome, &cache, Instant::now()));
        }
        let id = (worker, ready.id);
        self.in_flight.push(id, ready.queue, ready.request);
        None
    }

    fn publish(&mut self, worker: usize, event: Event) {
        let election = self.workers[worker].election;
        if self.elections.leadership(election).may_write() {
            let cache = self.cache.read();
            let uid = cache.entry(&event.object).map(|it| it.uid.clone());
            self.events.publish(event, uid);
        }
    }

    fn set_cluster(&mut self, cluster: &Cluster, config: &RemoteConfig) {
        match self.clusters.set(cluster, config) {
            Ok(true) => {
                write(&self.cache).add_cluster(cluster.clone(), CacheLimits::REMOTE);
                for id in self.watches.of_cluster(cluster) {
                    self.sync_watch(&id);
                }
            }
            Ok(false) => {}
            Err(error) => {
                self.metrics.not_set(cluster);
                tracing::warn!(%cluster, %error, "failed to use the credentials of a cluster");
            }
        }
    }

    fn remove_cluster(&mut self, cluster: &Cluster, worker: usize) {
        self.clusters.remove(cluster); // So that no watch starts again.
        self.remove_watches(cluster, worker);
        let changes = write(&self.cache).remove_cluster(cluster);
        self.observe(&changes);
        self.metrics.forget(cluster);
    }

    /// Sends the requests that the limits permit.
    pub(super) fn send(&mut self) {
        for ((worker, id), request) in self.in_flight.start() {
            let context = self.context(worker, &request);
            self.requests.push(Box::pin(async move {
                let began_at = Instant::now();
                let outcome = match context {
                    Some(context) => context.execute(&request).await,
                    None => Outcome::Failed("the cluster is not connected".into()),
                };
                Response {
                    worker,
                    id,
                    request,
                    outcome,
                    duration: began_at.elapsed(),
                }
            }));
        }
        self.metrics.waiting(self.in_flight.waiting());
    }

    /// Returns what a request needs; `None` if its cluster was removed.
    fn context(&self, worker: usize, request: &Request) -> Option<Context> {
        let subresource = match request {
            Request::Write(write) => write.subresource.unwrap_or_default(),
            Request::Read(_) | Request::Probe(_) => "",
        };
        let client = self.clusters.client(request.cluster())?.clone();
        let hosted = &self.workers[worker];
        let cache = self.cache.read();
        let object = request.object();
        let entry = object.and_then(|object| cache.entry(object));
        let updaters = entry.map_or(&[][..], |entry| entry.updaters.as_slice());
        let resource = object.map(|object| &object.resource);
        let registrations = hosted.worker.registrations().iter();
        let of_resource = registrations.filter(|it| Some(&it.resource) == resource);
        let adopted = of_resource
            .clone()
            .flat_map(|it| it.adopted.iter().copied());

        Some(Context {
            client,
            leadership: self.elections.leadership(hosted.election),
            form: resource.and_then(|it| cache.form(it)).cloned(),
            field_manager: hosted.worker.field_manager(),
            force: of_resource.clone().any(|it| it.is_forced(subresource)),
            adopts_late: of_resource.clone().any(|it| it.adopts_late),
            fields: of_resource
                .flat_map(|it| it.fields.iter().copied())
                .collect(),
            adopted: adopted
                .filter(|manager| {
                    (updaters.iter()).any(|it| it.0 == **manager && it.1 == subresource)
                })
                .collect(),
        })
    }
}
