//! Status of the provider's object -> status of this cluster's object, for kinds whose flag says so.

use super::desired::{Desired, View};
use super::events::About;
use super::item::WorkItem;
use super::kind::Kind;
use super::memory::Memory;
use super::namespaces::State;
use super::other::{STATUS, local_status};
use super::present::Present;
use super::summary::{OtherState, Summary};
use control_runtime::{Cluster, Digest, Entry, Key, Plan, Ref};
use kube::api::DynamicObject;
use std::time::Instant;

/// Plans the status of the object `key`. `remote` is the namespace of the provider that is followed.
pub(super) fn plan(
    view: &View<'_>,
    (kind, key): (Kind, &Key),
    remote: Option<&str>,
    (memory, now): (&mut Memory, Instant),
) -> Plan<WorkItem> {
    let item = WorkItem::Status(kind, key.clone());
    let mut plan = Plan::default();
    let pair = remote.and_then(|remote| Pair::find(view, (kind, key), (remote, memory)));
    let Some(pair) = pair else {
        memory.forget(&item);
        return plan;
    };
    let about = About {
        kind,
        key,
        destination: &view.settings.peering.destination,
        name: view.kind_name(kind, key),
    };
    if let Some(message) = memory.take_refusal(&item) {
        plan.events.push(about.status_refused(&message));
    }
    let is_stored =
        pair.present == pair.desired || memory.is_settled(&item, &pair.desired, &pair.present);
    if is_stored {
        let rest = memory.calm(&item, now);
        plan.requeue.extend(rest.map(|rest| (rest, item)));
        return plan;
    }
    if let Some(rest) = memory.wait(&item, &pair.desired, now) {
        plan.requeue.push((rest, item.clone()));
        match memory.other_manager(&item) {
            Some(other_manager) => plan.events.push(about.contested_status(other_manager)),
            // The object names its field managers.
            None => plan.reads.push(pair.local),
        }
        return plan;
    }
    let full = view.carried.get::<DynamicObject>(&item);
    match full.and_then(|it| local_status(it, pair.generation)) {
        Some(status) => {
            memory.send(&item, (&pair.desired, Some(&pair.present)), now);
            plan.apply(pair.local, status);
            if let Some(write) = plan.writes.last_mut() {
                write.subresource = Some(STATUS);
                write.uid = Some(pair.uid.to_owned());
            }
        }
        None => plan.reads.push(pair.remote),
    }

    plan
}

/// An object of this cluster, and the reflected one.
struct Pair<'a> {
    local: Ref,
    remote: Ref,
    /// UID of the object of this cluster.
    uid: &'a str,
    /// Status that the object of this cluster should have.
    desired: Status,
    present: Status,
    /// Generation of the object of this cluster that the desired status is about.
    generation: Option<i64>,
}

/// Digest of a status, and how many generations of its object it does not know yet.
pub(super) type Status = (Option<Digest>, Option<i64>);

/// Returns the status of an object.
pub(super) fn status(entry: &Entry) -> Option<Status> {
    let state = state(entry)?;
    Some((state.status, state.lag))
}

fn state(entry: &Entry) -> Option<&OtherState> {
    let summary = entry.get::<Summary<DynamicObject>>()?;
    summary.other.as_deref()
}

impl<'a> Pair<'a> {
    /// Returns the pair; `None` if one of the objects does not exist, or the provider's has no status.
    fn find(
        view: &View<'a>,
        (kind, key): (Kind, &Key),
        (remote, memory): (&str, &Memory),
    ) -> Option<Self> {
        let (cache, settings) = (view.cache, view.settings);
        let map = settings.map();
        let is_accepted = State::in_cache(cache, &map, &key.namespace) == State::Accepted(remote);
        let peering = &settings.peering;
        let remote_key = kind.remote_key(remote, &key.name, &peering.origin);
        let remote = Ref::new(&peering.cluster(), &kind.remote(), &remote_key);
        let local = Ref::new(&Cluster::Local, &kind.local(), key);
        let present = Present::find(cache, peering, (kind, &remote_key))?;
        if !is_accepted || !present.is_reflected || present.is_terminating {
            return None;
        }
        let (here, there) = (cache.entry(&local)?, cache.entry(&remote)?);
        let (local_state, remote_state) = (state(here)?, state(there)?);
        let is_current = match view.desired(kind, key) {
            Desired::Present { fingerprint, .. } => {
                let item = WorkItem::Object(kind, key.clone());
                *fingerprint == *present.fingerprint
                    || memory.is_settled(&item, &*fingerprint, present.fingerprint)
            }
            Desired::Absent(_) => false,
        };
        // Until the provider has the change of this cluster, its status is about an earlier generation.
        let lag = match (remote_state.lag, is_current) {
            (Some(_), false) => Some(local_state.lag.unwrap_or(1)),
            (lag, _) => lag,
        };

        Some(Self {
            uid: &here.uid,
            desired: (Some(remote_state.status?), lag),
            present: (local_state.status, local_state.lag),
            generation: lag.map(|lag| local_state.generation.saturating_sub(lag)),
            local,
            remote,
        })
    }
}
