//! The upper bound of what all ResourceSlices of a consumer get together, from its TenantPolicy.
//!
//! Older ResourceSlices come first. One that does not fit gets nothing, and younger ones that fit are granted. The decisions
//! depend on the objects only, so all leaders decide alike, and a bound that is lowered later applies to present
//! ResourceSlices: the youngest ones lose their resources.

use super::item::WorkItem;
use super::objects::{Local, origin};
use super::verdict::{self, is_default_class};
use control_api::authentication::resource_slice::{
    ResourceSliceConditionStatus as Status, ResourceSliceConditionType as Type,
};
use control_api::quantity::{self, Amount};
use control_api::{ResourceSlice, Tenant, TenantPolicy};
use control_runtime::{Change, Key, Plan};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Amounts of resources by name.
type Resources = BTreeMap<String, Quantity>;

/// The ResourceSlices that exceed the bound of their consumer, by tenant namespace.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    /// Message by name of the ResourceSlice.
    excess: BTreeMap<String, BTreeMap<String, String>>,
    /// Namespaces in which nothing has changed since the decision.
    fresh: BTreeSet<String>,
}

impl Budgets {
    /// Notes the namespaces that a change concerns.
    pub(super) fn observe(&mut self, change: &Change<'_>) {
        let key = &change.object.key;
        if change.is::<TenantPolicy>() {
            self.fresh.clear();
        } else if change.is::<ResourceSlice>() {
            if change.before().map(claim) != change.after().map(claim) {
                self.fresh.remove(&key.namespace);
            }
        } else if change.is::<Tenant>() {
            self.fresh.remove(&key.namespace);
        } else if change.is::<Namespace>() {
            self.fresh.remove(&key.name);
        }
    }

    /// Decides again about the ResourceSlices of a namespace if something has changed, and plans those whose decision differs.
    pub(super) fn refresh(
        &mut self,
        local: &Local<'_>,
        defaults: &Resources,
        namespace: &str,
        plan: &mut Plan<WorkItem>,
    ) {
        if !self.fresh.insert(namespace.to_owned()) {
            return;
        }
        let before = self.excess.remove(namespace).unwrap_or_default();
        let after = excess(local, defaults, namespace);
        let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        for name in names {
            if before.get(name) != after.get(name) {
                let key = Key::new(namespace, name.as_str());
                plan.requeue
                    .push((Duration::ZERO, WorkItem::ResourceSlice(key)));
            }
        }
        if !after.is_empty() {
            self.excess.insert(namespace.to_owned(), after);
        }
        if local.slices.within(namespace).next().is_none() {
            self.fresh.remove(namespace);
        }
    }

    /// Returns why a ResourceSlice exceeds the bound; `None` if it fits.
    pub(super) fn excess(&self, key: &Key) -> Option<&str> {
        let message = self.excess.get(&key.namespace)?.get(&key.name)?;
        Some(message)
    }
}

/// Returns the fields of a ResourceSlice that the decisions depend on.
fn claim(slice: &ResourceSlice) -> impl PartialEq + use<> {
    (
        is_decided_elsewhere(slice).then(|| granted(slice).cloned()),
        slice.spec.resources.clone(),
        origin(&slice.metadata).map(str::to_owned),
        slice.metadata.uid.clone(),
    )
}

/// Returns whether a ResourceSlice keeps what its status grants: another controller decides about its class, or it is being
/// deleted.
fn is_decided_elsewhere(slice: &ResourceSlice) -> bool {
    !is_default_class(slice) || slice.metadata.deletion_timestamp.is_some()
}

/// Returns what the status of a ResourceSlice grants.
fn granted(slice: &ResourceSlice) -> Option<&Resources> {
    let status = slice.status.as_ref()?;
    let mut conditions = status.conditions.iter();
    let is_accepted =
        conditions.any(|it| it.type_ == Type::Resources && it.status == Status::Accepted);

    is_accepted.then_some(&status.resources)
}

/// Returns the ResourceSlices of a namespace that exceed the bound, with the message.
fn excess(local: &Local<'_>, defaults: &Resources, namespace: &str) -> BTreeMap<String, String> {
    let peer = local.peer_of(namespace);
    let policy = peer.and_then(|peer| local.policy(peer));
    let bounds = policy.and_then(|(name, policy)| Some((name, policy.spec.resources.as_ref()?)));
    let Some((policy, bounds)) = bounds else {
        return BTreeMap::new();
    };
    let slices = local.slices.within(namespace);
    let slices = slices.filter(|(_, slice)| origin(&slice.metadata) == peer);
    let (decided, mut open): (Vec<_>, Vec<_>) =
        slices.partition(|(_, slice)| is_decided_elsewhere(slice));
    let mut left = Left::new(policy, bounds);
    for (_, slice) in decided {
        left.take(granted(slice).unwrap_or(&Resources::new()));
    }
    open.sort_by_key(|(key, slice)| {
        let created = slice.metadata.creation_timestamp.as_ref();
        (created.map(|time| time.0), *key)
    });
    let mut excess = BTreeMap::new();
    for (key, slice) in open {
        if verdict::check(&slice.spec.resources).is_err() {
            continue; // It is denied anyway.
        }
        let requested = verdict::with_defaults(defaults, &slice.spec.resources);
        match left.exceeded(&requested) {
            Some(message) => {
                excess.insert(key.name.clone(), message);
            }
            None => left.take(&requested),
        }
    }

    excess
}

/// The remainder of a bound.
struct Left<'a> {
    /// Name of the TenantPolicy.
    policy: &'a str,
    /// The bound, and what is left of it, by resource. An invalid bound is zero.
    resources: BTreeMap<&'a str, (&'a Quantity, Amount)>,
}

impl<'a> Left<'a> {
    fn new(policy: &'a str, bounds: &'a Resources) -> Self {
        let bound = |(name, bound): (&'a String, &'a Quantity)| {
            let amount = quantity::amount(&bound.0).unwrap_or_default();
            (name.as_str(), (bound, amount))
        };
        Self {
            policy,
            resources: bounds.iter().map(bound).collect(),
        }
    }

    /// Returns the message about the first resource of which less is left; `None` if there is enough of each.
    fn exceeded(&self, requested: &Resources) -> Option<String> {
        self.resources.iter().find_map(|(name, (bound, left))| {
            let requested = requested.get(*name)?;
            let amount = quantity::amount(&requested.0);
            let is_exceeded = amount.is_none_or(|amount| amount > *left);
            is_exceeded.then(|| {
                format!(
                    "spec.resources.{name} is {}, which exceeds what the provider's TenantPolicy {} permits: {left} is \
                     left of {} for all ResourceSlices of this consumer",
                    requested.0, self.policy, bound.0
                )
            })
        })
    }

    fn take(&mut self, granted: &Resources) {
        for (name, (_, left)) in &mut self.resources {
            let taken = granted.get(*name).and_then(|it| quantity::amount(&it.0));
            *left = left.saturating_sub(taken.unwrap_or_default());
        }
    }
}
