//! Status of the provider's object -> status of this cluster's object, for kinds whose flag says so.

use super::desired::View;
use super::events::About;
use super::item::WorkItem;
use super::kind::Kind;
use super::memory::Memory;
use super::namespaces::State;
use super::other::{STATUS, local_status};
use super::present::Present;
use super::summary::Summary;
use control_runtime::{Cluster, Digest, Key, Plan, Ref};
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
    let pair = remote.and_then(|remote| Pair::find(view, (kind, key), remote));
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
    let is_current = pair.present == Some(pair.desired)
        || memory.is_settled(&item, &Some(pair.desired), &pair.present);
    if is_current {
        let rest = memory.calm(&item, now);
        plan.requeue.extend(rest.map(|rest| (rest, item)));
        return plan;
    }
    if let Some(rest) = memory.wait(&item, &Some(pair.desired), now) {
        plan.requeue.push((rest, item.clone()));
        match memory.rival(&item) {
            Some(rival) => plan.events.push(about.contested_status(rival)),
            // The object names its field managers.
            None => plan.reads.push(pair.local),
        }
        return plan;
    }
    let full = view.carried.get::<DynamicObject>(&item);
    match full.and_then(local_status) {
        Some(status) => {
            memory.send(&item, &Some(pair.desired), now);
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
    /// Status of the provider's object.
    desired: Digest,
    /// Status of the object of this cluster.
    present: Option<Digest>,
}

impl<'a> Pair<'a> {
    /// Returns the pair; `None` if one of the objects does not exist, or the provider's has no status.
    fn find(view: &View<'a>, (kind, key): (Kind, &Key), remote: &str) -> Option<Self> {
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
        let status = |object: &Ref| {
            let summary = cache.entry(object)?.get::<Summary<DynamicObject>>()?;
            summary.other.as_ref()?.status
        };

        Some(Self {
            uid: &cache.entry(&local)?.uid,
            desired: status(&remote)?,
            present: status(&local),
            local,
            remote,
        })
    }
}
