//! Takes what watches and requests report.

use super::{Report, Response, Runtime, write};
use crate::cache::{CacheLimits, Changed};
use crate::controller::{Action, Outcome, Request};
use crate::watch::{Signal, WatchId};
use control_client::object::Ref;
use std::time::Instant;

impl Runtime {
    pub(super) fn take_signal(&mut self, (id, generation, signal): Report) {
        let id = &id;
        if !self.watches.is_current(id, generation) {
            return; // It was sent before the watch was removed or restarted.
        }
        let is_response = !matches!(
            signal,
            Signal::ListBegins | Signal::Failed(_) | Signal::Refused(_)
        );
        if is_response && self.status.recovered(id) {
            tracing::info!(watch = %id, "the watch reports again");
        }
        let changes = match signal {
            Signal::ListBegins => {
                write(&self.cache).begin_list(id);
                Vec::new()
            }
            Signal::Object { entry, is_listed } => {
                let put = write(&self.cache).put_watched(id, entry, is_listed);
                self.kept(id, put)
            }
            Signal::ListEnds => {
                let changes = write(&self.cache).end_list(id);
                self.status.synced(id);
                self.observe(&changes);
                self.listed(id);
                Vec::new()
            }
            Signal::Deleted { key, uid, version } => {
                let change = write(&self.cache).delete_watched(id, &key, &uid, version);
                change.into_iter().collect()
            }
            Signal::Invalid { error, is_listed } => {
                self.metrics.invalid(id);
                tracing::warn!(watch = %id, "ignored an object: {error}");
                if is_listed {
                    write(&self.cache).keep_listed(id, &error.key);
                }
                Vec::new()
            }
            Signal::WentBack => {
                self.relist(&id.cluster);
                Vec::new()
            }
            Signal::Refused(reason) if self.is_optional(id) => {
                tracing::debug!(watch = %id, "not watched: {reason}");
                Vec::new()
            }
            Signal::Failed(reason) | Signal::Refused(reason) => {
                self.metrics.watch_failed(id);
                if self.status.failed(id, &reason) {
                    tracing::warn!(watch = %id, "failed to watch, and retries: {reason}");
                }
                Vec::new()
            }
        };
        self.observe(&changes);
        let usage = self.cache.read().usage(&id.cluster);
        self.metrics.usage(&id.cluster, usage);
        self.start_workers();
    }

    fn kept(&self, id: &WatchId, put: Result<Option<Changed>, CacheLimits>) -> Vec<Changed> {
        match put {
            Ok(change) => change.into_iter().collect(),
            Err(limits) => {
                self.metrics.rejected(&id.cluster);
                tracing::debug!(watch = %id, ?limits, "ignored an object: the cluster has too many");
                Vec::new()
            }
        }
    }

    /// Starts the controllers whose watches have been listed.
    pub(super) fn start_workers(&mut self) {
        let cache = self.cache.read();
        for hosted in self.workers.iter_mut().filter(|it| !it.is_started) {
            let may_start = !hosted.is_cold || self.elections.is_held(hosted.election);
            if may_start && hosted.required.iter().all(|id| cache.is_synced(id)) {
                tracing::info!(controller = hosted.worker.name(), "all objects are listed");
                hosted.start(&cache);
            }
        }
    }

    fn listed(&mut self, id: &WatchId) {
        let (cache, now) = (self.cache.read(), Instant::now());
        for hosted in self.workers.iter_mut().filter(|it| it.is_started) {
            if hosted.resources.contains(&id.resource) {
                hosted.worker.listed(id, &cache, now);
            }
        }
    }

    pub(super) fn take_response(&mut self, response: Response) {
        let (request, outcome) = (&response.request, &response.outcome);
        self.admission.ended(request);
        self.metrics.requested(request, outcome, response.duration);
        log(request, outcome);
        let changes = self.cache_answer(request.object(), request, outcome);
        self.observe(&changes);
        let cache = self.cache.read();
        let worker = &mut self.workers[response.worker].worker;
        let effects = worker.complete(response.id, outcome, &cache, Instant::now());
        drop(cache);
        self.carry_out(response.worker, effects);
    }

    /// Puts an answer into the cache, so that the next plan knows what was written.
    fn cache_answer(&self, object: &Ref, request: &Request, outcome: &Outcome) -> Vec<Changed> {
        let change = match (outcome, request) {
            (Outcome::Stored(entry) | Outcome::AlreadyExists(Some(entry)), _) => {
                let mut cache = write(&self.cache);
                let put = cache.put_answer(&object.cluster, &object.resource, entry.clone());
                put.ok().flatten()
            }
            // Only a deletion names the UID of the deleted object; after other writes the watch reports the
            // deletion.
            (Outcome::Gone, Request::Write(gone)) if gone.action == Action::Delete => {
                let uid = gone.uid.as_deref();
                uid.and_then(|uid| write(&self.cache).delete_answer(object, uid))
            }
            _ => None,
        };

        change.into_iter().collect()
    }
}

fn log(request: &Request, outcome: &Outcome) {
    let Request::Write(write) = request else {
        return;
    };
    let (object, verb) = (&write.object, request.verb());
    match outcome {
        Outcome::Stored(_) | Outcome::Answer(_) | Outcome::Gone => {
            tracing::info!(%object, verb, subresource = write.subresource, "written");
        }
        Outcome::Refused(status) if is_terminating(status) => {
            tracing::debug!(%object, verb, "not written: {}", status.message);
        }
        Outcome::Refused(status) | Outcome::Conflict(status) => {
            tracing::warn!(%object, verb, "failed to write: {}", status.message);
        }
        Outcome::AlreadyExists(_) => tracing::debug!(%object, verb, "exists already"),
        Outcome::TimedOut => tracing::warn!(%object, verb, "the API server did not answer in time"),
        Outcome::Failed(reason) => tracing::warn!(%object, verb, "failed to write: {reason}"),
        Outcome::NotLeader => {}
    }
}

/// Returns whether a write was refused because its namespace is being deleted.
fn is_terminating(status: &kube::core::Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|it| it.reason == "NamespaceTerminating")
}
