//! Takes what watches and requests report.

use super::{Report, Response, Runtime, write};
use crate::controller::{Gate, Outcome, Request};
use crate::entry::Signal;
use crate::execute::enter;
use control_client::object::Cluster;
use control_client::watch::WatchId;
use std::time::Instant;

impl Runtime {
    pub(super) fn take_signal(&mut self, (id, generation, signal): Report) {
        let id = &id;
        if !self.watches.is_current(id, generation) {
            return; // It was sent before the watch was removed or restarted.
        }
        self.note(id, &signal);
        let ends_list = matches!(signal, Signal::ListEnds);
        let is_refused = matches!(signal, Signal::Refused(_));
        if matches!(signal, Signal::WentBack) {
            self.watches.went_back(&id.cluster, Instant::now());
        }
        let changes = write(&self.cache).take_signal(id, signal);
        // An object beyond the limits of its cluster is counted.
        let changes = changes.unwrap_or_default();
        self.observe(&changes);
        if ends_list {
            self.status.synced(id);
            self.listed(id);
        }
        if is_refused {
            self.refused(id);
        }
        self.report_usage(&id.cluster);
        self.start_workers();
    }

    fn report_usage(&self, cluster: &Cluster) {
        let mut cache = write(&self.cache);
        if let Some(rejections) = cache.take_rejections(cluster) {
            self.metrics
                .usage(cluster, cache.usage(cluster), rejections);
        }
    }

    /// Reports a signal in status, metrics and log.
    fn note(&self, id: &WatchId, signal: &Signal) {
        match signal {
            Signal::ListBegins => return,
            Signal::Refused(reason) if self.is_optional(id) => {
                return tracing::debug!(watch = %id, "not watched: {reason}");
            }
            Signal::Failed(reason) | Signal::Refused(reason) => {
                self.metrics.watch_failed(id);
                if self.status.failed(id, reason) {
                    tracing::warn!(watch = %id, "failed to watch, and retries: {reason}");
                }
                return;
            }
            Signal::Object {
                object: Err(error), ..
            } => {
                self.metrics.invalid(id);
                tracing::warn!(watch = %id, "ignored an object: {error}");
            }
            Signal::Object { object: Ok(_), .. }
            | Signal::Deleted { .. }
            | Signal::Bookmark
            | Signal::ListEnds
            | Signal::WentBack => {}
        }
        if self.status.recovered(id) {
            tracing::info!(watch = %id, "the watch reports again");
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

    fn refused(&mut self, id: &WatchId) {
        let (cache, now) = (self.cache.read(), Instant::now());
        for hosted in self.workers.iter_mut().filter(|it| it.is_started) {
            if hosted.resources.contains(&id.resource) {
                hosted.worker.refused(id, &cache, now);
            }
        }
    }

    pub(super) fn take_response(&mut self, response: Response) {
        let (request, outcome) = (&response.request, &response.outcome);
        self.in_flight.ended(&(response.worker, response.id));
        self.metrics.requested(request, outcome, response.duration);
        log(request, outcome);
        let changes = enter(&mut write(&self.cache), request, outcome);
        self.observe(changes.as_slice());
        self.report_usage(request.cluster());
        self.complete(response.worker, response.id, outcome);
    }
}

fn log(request: &Request, outcome: &Outcome) {
    let Request::Write(write) = request else {
        return;
    };
    let (object, verb) = (&write.object, request.verb());
    if write.gate == Gate::Always {
        // All replicas may send it at any rate. The controller reports failures that matter.
        return tracing::debug!(%object, verb, subresource = write.subresource, ?outcome, "sent");
    }
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
        Outcome::Failed(reason) | Outcome::Untrusted(reason) => {
            tracing::warn!(%object, verb, "failed to write: {reason}")
        }
        Outcome::NotLeader => {}
    }
}

/// Returns whether a write was refused because its namespace is being deleted.
fn is_terminating(status: &kube::core::Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|it| it.reason == "NamespaceTerminating")
}
