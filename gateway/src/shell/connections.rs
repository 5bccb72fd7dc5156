//! Writes the status of the `Connection` of each peer to the API server.
//!
//! ```text
//! Control --note, set_..--> State --injector--+
//!                             ^               v
//! API server --watch--> Connections: observe, plan --merge patch--> API server
//! ```
//!
//! All replicas of the gateway write the same objects:
//!
//! - The module `value` decides on the field `value`. A connected replica writes `Connected`. The
//!   other replicas write `Error` only when no replica is connected.
//! - The module `condition` decides on the condition `PathHealthy`. In general, only the replica
//!   that reported a fault withdraws it.

mod condition;
mod observed;
mod state;
mod value;

use crate::engine::ConnectionState;
use crate::path::Verdict;
use control_api::{Connection, labels};
use control_runtime::{
    self as runtime, Action, Cache, Change, Cluster, Controller, Env, Gate, Injector, Outcome,
    Plan, Queue, Registration, RegistrationError, Replicas, Request, Runtime, Scope, Write,
};
use observed::Observed;
use state::State;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Index of the Connections by the cluster ID of their peer.
const BY_PEER: &str = "peer";

/// Passes the states of the engine and the results of the path checks to [`Connections`].
pub(crate) struct Reporter {
    state: Arc<Mutex<State>>,
    injector: Injector<String>,
}

impl Reporter {
    /// Adds the controller of the Connections to a runtime. `replica` is the name of this replica in
    /// the EndpointSlice.
    ///
    /// # Errors
    ///
    /// Returns [`RegistrationError`] if another controller keeps another form of Connections.
    pub(super) fn add(runtime: &mut Runtime, replica: &str) -> Result<Self, RegistrationError> {
        let state = Arc::new(Mutex::new(State::new(replica)));
        let controller = Connections(Arc::clone(&state));
        let injector = runtime.add(controller, &Replicas::Active)?;

        Ok(Self { state, injector })
    }

    /// Stores the connection state of a peer, as the engine reported it.
    pub(super) fn note(&self, cluster_id: &str, state: ConnectionState, latency: Option<Duration>) {
        self.change(|it| it.note(cluster_id, state, latency));
    }

    /// Stores the health of the path to a peer.
    pub(super) fn note_path(&self, cluster_id: String, verdict: Verdict) {
        self.change(|it| it.note_path(cluster_id, verdict));
    }

    /// Sets the names of the ready replicas. This replica may replace a condition whose reporter is
    /// not among them.
    pub(super) fn set_live(&self, live: impl IntoIterator<Item = String>) {
        self.change(|it| it.set_live(live.into_iter().collect()));
    }

    /// Sets the served peers, and the known reasons why other peers are not served.
    pub(super) fn set_peers<'a>(
        &self,
        served: impl IntoIterator<Item = &'a str>,
        causes: BTreeMap<String, String>,
    ) {
        self.change(|it| it.set_peers(served.into_iter().collect(), causes));
    }

    /// Sets the tenant namespace of each peer. Connections in other namespaces are not written.
    ///
    /// Nothing is written before the first call, which must follow those of
    /// [`set_live`](Self::set_live) and [`set_peers`](Self::set_peers).
    pub(super) fn set_tenant_namespaces(&self, namespaces: &Arc<BTreeMap<String, String>>) {
        self.change(|it| it.set_tenant_namespaces(namespaces));
    }

    /// Changes the state, and has the peers planned whose cluster IDs `change` returns.
    fn change<I: IntoIterator<Item = String>>(&self, change: impl FnOnce(&mut State) -> I) {
        let changed = change(&mut lock(&self.state));
        for cluster_id in changed {
            self.injector.push(cluster_id);
        }
    }
}

/// The controller of the Connections. Its work items are the cluster IDs of peers.
struct Connections(Arc<Mutex<State>>);

impl Controller for Connections {
    type Item = String;
    const NAME: &'static str = "connections";
    const FIELD_MANAGER: &'static str = "liqo-gateway";

    /// The Connections of different peers are written at the same time.
    fn queue(peer: &String) -> Queue {
        Queue(peer.clone())
    }

    fn resources(&self) -> Vec<Registration> {
        let connections = Registration::of(Scope::All, |it: Connection| Observed::from(it))
            .labels(labels::REMOTE_CLUSTER_ID)
            .index(BY_PEER, |it: &Observed| vec![it.cluster_id.clone()])
            .subresource("status", "patch");

        vec![connections]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<String> {
        let states = [change.before::<Observed>(), change.after()];
        let peers = states.into_iter().flatten();

        peers.map(|it| it.cluster_id.clone()).collect()
    }

    fn plan(&mut self, cluster_id: &String, cache: &Cache, env: &mut Env<'_>) -> Plan<String> {
        let mut plan = Plan::default();
        let mut state = lock(&self.0);
        let connections = cache.objects::<Observed>(&Cluster::Local);
        let connections = connections.indexed(BY_PEER, cluster_id);
        let connections: Vec<_> = connections
            .filter(|(key, it)| {
                !it.is_terminating && state.is_tenant_namespace(cluster_id, &key.namespace)
            })
            .collect();
        if connections.is_empty() {
            state.forget(cluster_id);
        }
        for (key, connection) in connections {
            let object = runtime::Ref::of::<Connection>(&Cluster::Local, key);
            let planned = state.plan(cluster_id, connection, env);
            if let Some(patch) = planned.patch {
                let mut write = Write::new(object, Action::Merge(patch)).subresource("status");
                write.gate = Gate::Always;
                if planned.is_conditional {
                    let entry = cache.entry(&write.object);
                    let version = entry.and_then(|entry| entry.version);
                    write.resource_version = version.map(|version| version.to_string());
                }
                plan.writes.push(write);
            }
            if let Some(at) = planned.due {
                let delay = at.saturating_duration_since(env.at);
                plan.requeue.push((delay, cluster_id.clone()));
            }
        }

        plan
    }

    fn done(
        &mut self,
        cluster_id: &String,
        _: &Request,
        outcome: &Outcome,
        _: &Cache,
    ) -> Vec<String> {
        lock(&self.0).written(cluster_id, outcome);

        // The runtime plans a peer again after a failure.
        Vec::new()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
