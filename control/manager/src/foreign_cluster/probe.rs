//! Probes of the API servers of providers, with the credentials of this cluster's control plane there, as upstream's.

use super::condition::{Line, Status, Type};
use super::item::WorkItem;
use super::objects::Local;
use super::peer::Peer;
use control_api::ForeignCluster;
use control_runtime::{Cluster, Key, Outcome, Plan, Probe};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Path of upstream's probes. Kubernetes permits it to all authenticated users.
const PATH: &str = "/livez";

/// Time between two probes of a peer: four a minute.
const INTERVAL: Duration = Duration::from_secs(15);

/// Time between two probes of a peer that did not respond. `liqoctl unpeer` waits for 6 s, with [`TIMEOUT`], until a
/// provider that has returned is known to be reached.
const RETRY: Duration = Duration::from_secs(3);

/// Time after which an API server counts as not ready.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Time from the credentials to the first probe. The replication controller connects to the API server meanwhile, and the
/// result is written together with the other changes of a new peer. Upstream waits for two seconds.
const FIRST: Duration = Duration::from_millis(250);

/// The providers that are probed, by cluster ID.
#[derive(Debug, Default)]
pub(super) struct Probes {
    providers: BTreeMap<String, Provider>,
}

#[derive(Clone, Copy, Debug)]
struct Provider {
    /// When the next probe is due.
    due: Instant,
    /// Whether the API server responded to the last probe; `None` before the first result.
    is_ready: Option<bool>,
    /// Whether a user has declared that the provider never responds again.
    is_declared_dead: bool,
}

impl Probes {
    /// Plans the next probe of a peer. A peer without credentials is not probed.
    pub(super) fn plan(&mut self, local: Local<'_>, id: &str, now: Instant) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        if !local.is_peer(id) || Peer::find(local, id).secret.is_none() {
            self.providers.remove(id);
            return plan;
        }
        let foreign = local.objects::<ForeignCluster>().get(&Key::cluster(id));
        let is_declared_dead = foreign.is_some_and(ForeignCluster::is_declared_dead);
        let provider = self.providers.entry(id.to_owned());
        let provider = provider.or_insert(Provider {
            due: now + FIRST,
            is_ready: None,
            is_declared_dead,
        });
        let is_new = is_declared_dead && !provider.is_declared_dead;
        if is_new && provider.is_ready != Some(false) {
            // Deletions wait until it is known that the provider does not respond.
            provider.due = now;
        }
        provider.is_declared_dead = is_declared_dead;
        if provider.is_ready == Some(false) {
            provider.due = provider.due.min(now + RETRY);
        }
        let mut wait = provider.due.saturating_duration_since(now);
        if wait.is_zero() {
            provider.due = now + INTERVAL;
            wait = INTERVAL;
            plan.probes.push(Probe {
                cluster: Cluster::remote(id),
                path: PATH,
                timeout: TIMEOUT,
            });
        }
        plan.requeue.push((wait, WorkItem::Probe(id.to_owned())));

        plan
    }

    /// Takes the result of a probe. Returns whether it differs from the one before.
    pub(super) fn take(&mut self, id: &str, outcome: &Outcome) -> bool {
        let Some(provider) = self.providers.get_mut(id) else {
            return false;
        };
        let before = provider.is_ready;
        let is_ready = matches!(outcome, Outcome::Answer(_));
        // Another replica leads, and knows the result.
        let is_known = !matches!(outcome, Outcome::NotLeader);
        provider.is_ready = is_known.then_some(is_ready);

        before != provider.is_ready
    }

    /// Returns the result of the last probe; `None` before the first result, as after a change of the leader.
    pub(super) fn is_ready(&self, id: &str) -> Option<bool> {
        self.providers.get(id)?.is_ready
    }
}

/// Returns the condition of an API server.
pub(super) fn line(is_ready: bool) -> Line<'static> {
    let part = Type::APIServerStatus;
    if is_ready {
        (
            part,
            Status::Established,
            "APIServerReady",
            "The foreign cluster API Server is ready",
        )
    } else {
        (
            part,
            Status::Error,
            "APIServerNotReady",
            "The foreign cluster API Server is not ready",
        )
    }
}
