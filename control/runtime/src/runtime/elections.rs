//! The elections of the controllers, one per Lease.

use super::Runtime;
use crate::controller::Outcome;
use control_client::election::{Candidate, ElectionEvent, Leadership, LeaseSettings};
use control_client::object::Cluster;
use std::collections::BTreeSet;
use std::time::Instant;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

#[derive(Default)]
pub(super) struct Elections(Vec<Election>);

struct Election {
    lease: LeaseSettings,
    leadership: Leadership,
    /// Whether the Lease is held, as far as the controllers know.
    is_held: bool,
}

impl Elections {
    /// Returns the number of the election of a Lease, which is added unless it exists.
    pub(super) fn join(&mut self, lease: &LeaseSettings) -> usize {
        let id = |lease: &LeaseSettings| (lease.namespace.clone(), lease.name.clone());
        let known = self.0.iter().position(|it| id(&it.lease) == id(lease));
        known.unwrap_or_else(|| {
            self.0.push(Election {
                lease: lease.clone(),
                leadership: Leadership::default(),
                is_held: false,
            });
            self.0.len() - 1
        })
    }

    /// Returns the right to write of a controller with this election.
    pub(super) fn leadership(&self, election: Option<usize>) -> Leadership {
        let election = election.and_then(|number| self.0.get(number));
        election.map_or_else(Leadership::permanent, |it| it.leadership.clone())
    }

    pub(super) fn is_held(&self, election: Option<usize>) -> bool {
        let election = election.and_then(|number| self.0.get(number));
        election.is_none_or(|it| it.is_held)
    }
}

impl Runtime {
    /// Starts to take part in the elections.
    pub(super) fn elect(
        &self,
        election_events: &mpsc::Sender<(usize, ElectionEvent)>,
        stop: &watch::Receiver<bool>,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for (number, election) in self.elections.0.iter().enumerate() {
            let candidate = Candidate {
                lease: election.lease.clone(),
                election: number,
                identity: self.settings.identity.clone(),
                events: election_events.clone(),
            };
            if let Some(client) = self.clusters.client(&Cluster::Local) {
                tasks.spawn(candidate.run(client.clone(), stop.clone()));
            }
        }

        tasks
    }

    pub(super) fn take_election_event(&mut self, election: usize, event: ElectionEvent) {
        let Some(changed) = self.elections.0.get_mut(election) else {
            return;
        };
        let (is_held, leadership) = match event {
            ElectionEvent::Leads(leadership) => (true, leadership),
            ElectionEvent::StandsBy => (false, Leadership::default()),
            ElectionEvent::WentBack => {
                return self.watches.went_back(&Cluster::Local, Instant::now());
            }
            ElectionEvent::Access(access) => {
                return self.status.lease(&changed.lease.name, access.err());
            }
        };
        let lease = changed.lease.name.as_str();
        if is_held {
            tracing::info!(lease, "this replica is the leader");
        } else {
            tracing::warn!(
                lease,
                "this replica is no longer the leader, and writes nothing"
            );
        }
        self.status.lead(lease, is_held);
        self.metrics.leads(lease, is_held);
        (changed.is_held, changed.leadership) = (is_held, leadership);
        // They were planned before another replica may have changed the objects.
        self.drop_waiting(election);
        self.restart(election, is_held);
    }

    /// Ends the requests that wait and that only the leader sends.
    fn drop_waiting(&mut self, election: usize) {
        let workers = &self.workers;
        let dropped = self.in_flight.remove(|(worker, _), request| {
            workers[*worker].election == Some(election) && request.is_of_leader()
        });
        for (worker, id) in dropped {
            self.complete(worker, id, &Outcome::NotLeader);
        }
    }

    /// Has the controllers of an election plan everything anew, and starts or stops those that run
    /// only on the leader.
    fn restart(&mut self, election: usize, is_held: bool) {
        let mut watches = BTreeSet::new();
        for (number, hosted) in self.workers.iter_mut().enumerate() {
            if hosted.election != Some(election) {
                continue;
            }
            if hosted.is_started && is_held {
                // A standby has planned, too, but its writes were dropped.
                hosted.start(&self.cache.read());
            } else if hosted.is_cold && is_held {
                // Watches that other controllers need may be listed already.
                let cache = self.cache.read();
                let missing = hosted.required.iter().filter(|id| !cache.is_synced(id));
                self.status.expect(&missing.cloned().collect::<Vec<_>>());
                watches.extend(self.watches.of(number));
            } else if hosted.is_cold {
                hosted.stop();
                watches.extend(self.watches.of(number));
                // It plans the others again when it leads, but those that it needs by then.
                let registrations = hosted.worker.registrations().iter();
                let registered: BTreeSet<_> =
                    registrations.filter_map(|it| it.watch_id()).collect();
                self.watches.release_others(number, &registered);
            }
        }
        for id in watches {
            self.sync_watch(&id);
        }
        self.start_workers();
    }
}
