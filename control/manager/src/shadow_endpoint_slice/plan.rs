//! Plans the EndpointSlice of a ShadowEndpointSlice.
//!
//! Its deletion with the ShadowEndpointSlice is the garbage collector's. An EndpointSlice of another owner is never changed.

use super::addresses::Addresses;
use super::content::{ADDRESS_TYPE, Content, Readiness};
use super::direct::{Direct, DirectError};
use super::dropped::Dropped;
use super::item::WorkItem;
use super::mapping::NotMapped;
use super::objects::Local;
use crate::authentication::{controller_reference, label, warn};
use control_api::{ShadowEndpointSlice, labels};
use control_runtime::{Action, Cluster, Digest, Entry, Key, Plan, Ref, Write, merge_patch};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use std::time::Duration;

/// Interval at which an EndpointSlice of another owner is read, which no watch reports.
const FOREIGN_READ_INTERVAL: Duration = Duration::from_secs(30);

/// Longest note of an Event about content of the consumer, in bytes. The limit of the API is 1024.
const NOTE_LEN_MAX: usize = 512;

/// Why a ShadowEndpointSlice has no EndpointSlice.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(
        "namespace {0} was not created for a consumer: ShadowEndpointSlices have an effect in the namespaces that a \
         NamespaceMap requests"
    )]
    Namespace(String),
    #[error(
        "the label {key} is {found:?}, and the namespace is of consumer {peer}: set the label to the cluster ID of the consumer",
        key = labels::ORIGIN
    )]
    Origin { found: String, peer: String },
    #[error(
        "spec.template.addressType is {0:?}: only {ADDRESS_TYPE} is supported, so remove the slice"
    )]
    AddressType(String),
    #[error("it is being deleted")]
    Terminating,
    #[error(transparent)]
    Direct(#[from] DirectError),
    #[error("ForeignCluster {0} does not exist, or has no status: the EndpointSlice waits for it")]
    ForeignCluster(String),
    #[error("{0}: the EndpointSlice waits for it")]
    Mapping(#[from] NotMapped),
}

impl Refusal {
    /// Returns the reason of the Event; `None` for a state that passes.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Namespace(_) => Some("NotANamespaceOfAConsumer"),
            Self::Origin { .. } => Some("OtherOrigin"),
            Self::AddressType(_) => Some("UnsupportedAddressType"),
            Self::Direct(_) => Some("InvalidDirectConnections"),
            Self::ForeignCluster(_) => Some("ForeignClusterMissing"),
            Self::Mapping(NotMapped::Missing) => Some("ConfigurationMissing"),
            Self::Mapping(NotMapped::Pending) | Self::Terminating => None,
        }
    }

    /// Returns whether an EndpointSlice of earlier stays as it is.
    fn is_waiting(&self) -> bool {
        match self {
            Self::ForeignCluster(_) | Self::Mapping(_) => true,
            Self::Namespace(_)
            | Self::Origin { .. }
            | Self::AddressType(_)
            | Self::Terminating
            | Self::Direct(_) => false,
        }
    }
}

/// The plan of an EndpointSlice.
#[derive(Default)]
pub(super) struct Planned {
    pub(super) plan: Plan<WorkItem>,
    /// Parts of the ShadowEndpointSlice that the slice lacks.
    pub(super) dropped: Dropped,
    /// The desired fields of the slice; `None` if there is none, or it stays as it is.
    pub(super) state: Option<Digest>,
}

/// Plans an EndpointSlice. `unwatched` is one of its name that no watch reports.
pub(super) fn plan(
    local: &Local<'_>,
    item: &WorkItem,
    unwatched: Option<&Entry>,
    now: Timestamp,
) -> Planned {
    let mut planned = Planned::default();
    let Planned {
        plan,
        dropped,
        state,
    } = &mut planned;
    let key = &item.key;
    let Some(shadow) = local.shadows.get(key) else {
        return planned;
    };
    let present = Present::of(local, key, unwatched);
    if present.as_ref().is_some_and(|it| !it.is_of(key)) {
        taken(item, unwatched.is_some(), plan);
        return planned;
    }
    match desired(local, (key, shadow), present.is_some(), now, dropped) {
        Ok((content, rest)) => {
            plan.requeue.extend(rest.map(|it| (it, item.clone())));
            if let Some(note) = dropped.message() {
                warn(plan, reference(key), ("PartsLeftOut", note));
            }
            let new = fields(
                &content.labels,
                &content.annotations,
                json!([owner(shadow)]),
                (json!(content.endpoints), json!(content.ports)),
            );
            *state = Some(Digest::of(&new));
            match present {
                Some(present) => present.change(key, &new, plan),
                None => create(local, key, new, plan),
            }
        }
        Err(refusal) => {
            if let Some(reason) = refusal.reason() {
                let mut note = refusal.to_string();
                note.truncate(note.floor_char_boundary(NOTE_LEN_MAX));
                warn(plan, reference(key), (reason, note));
            }
            if let Some(present) = present.filter(|_| !refusal.is_waiting()) {
                present.delete(key, plan);
            }
        }
    }

    planned
}

/// Returns the content of the EndpointSlice, and for how long it is valid.
fn desired(
    local: &Local<'_>,
    (key, shadow): (&Key, &ShadowEndpointSlice),
    is_present: bool,
    now: Timestamp,
    dropped: &mut Dropped,
) -> Result<(Content, Option<Duration>), Refusal> {
    if shadow.metadata.deletion_timestamp.is_some() {
        // A finalizer of the consumer would keep endpoints that are not updated any more.
        return Err(Refusal::Terminating);
    }
    let peer = local
        .consumer(&key.namespace)
        .ok_or_else(|| Refusal::Namespace(key.namespace.clone()))?;
    let origin = label(&shadow.metadata, labels::ORIGIN).unwrap_or_default();
    if origin != peer {
        return Err(Refusal::Origin {
            found: origin.to_owned(),
            peer: peer.to_owned(),
        });
    }
    let template = shadow.spec.template.as_ref();
    let address_type = template.and_then(|it| it.address_type.as_deref());
    if address_type != Some(ADDRESS_TYPE) {
        return Err(Refusal::AddressType(
            address_type.unwrap_or_default().to_owned(),
        ));
    }
    let direct = Direct::of(&shadow.metadata)?;
    let health = local
        .health(peer)
        .ok_or_else(|| Refusal::ForeignCluster(peer.to_owned()))?;
    let addresses = Addresses::new(local, (peer, health), &direct)?;
    if addresses.is_waiting() && !is_present {
        return Err(NotMapped::Missing.into());
    }

    let grace = local.settings.api_server_grace_period;
    let (is_reached, rest) = health.is_ready(grace, now);
    let (is_current, of_direct) = health.is_current(grace, now);
    let of_direct = of_direct.filter(|_| direct.clusters().next().is_some());
    let readiness = Readiness {
        is_reached,
        is_current,
    };

    Ok((
        Content::of(shadow, (peer, readiness), &addresses, dropped),
        rest.into_iter().chain(of_direct).min(),
    ))
}

/// Plans the Event of a name that an EndpointSlice of another owner has.
fn taken(item: &WorkItem, is_unwatched: bool, plan: &mut Plan<WorkItem>) {
    let note = format!(
        "an EndpointSlice {} of another owner exists, which is not changed: delete it, or rename the one of the consumer",
        item.key
    );
    warn(plan, reference(&item.key), ("NameTaken", note));
    if is_unwatched {
        plan.reads.push(slice_of(&item.key));
        plan.requeue.push((FOREIGN_READ_INTERVAL, item.clone()));
    }
}

fn create(local: &Local<'_>, key: &Key, mut object: Value, plan: &mut Plan<WorkItem>) {
    if local.is_terminating(&key.namespace) {
        return;
    }
    object["metadata"]["name"] = json!(key.name);
    object["metadata"]["namespace"] = json!(key.namespace);
    object["addressType"] = json!(ADDRESS_TYPE);
    plan.writes
        .push(Write::new(slice_of(key), Action::Create(object)));
}

/// An EndpointSlice with the name of a ShadowEndpointSlice.
struct Present<'a> {
    slice: &'a EndpointSlice,
    version: Option<String>,
}

impl<'a> Present<'a> {
    fn of(local: &Local<'a>, key: &Key, unwatched: Option<&'a Entry>) -> Option<Self> {
        if let Some(slice) = local.slices.get(key) {
            let version = local.version(key);
            return Some(Self { slice, version });
        }
        let entry = unwatched?;

        Some(Self {
            slice: entry.get()?,
            version: entry.version.map(|version| version.to_string()),
        })
    }

    /// Returns whether it belongs to a ShadowEndpointSlice of its name.
    fn is_of(&self, key: &Key) -> bool {
        is_owned(self.slice, key)
    }

    /// Plans the change to the desired fields.
    fn change(&self, key: &Key, new: &Value, plan: &mut Plan<WorkItem>) {
        let slice = self.slice;
        if slice.metadata.deletion_timestamp.is_some() {
            return;
        }
        let old = fields(
            &slice.metadata.labels.clone().unwrap_or_default(),
            &slice.metadata.annotations.clone().unwrap_or_default(),
            json!(slice.metadata.owner_references.clone().unwrap_or_default()),
            (
                json!(slice.endpoints.clone().unwrap_or_default()),
                json!(slice.ports.clone().unwrap_or_default()),
            ),
        );
        if slice.address_type != ADDRESS_TYPE {
            // The field is immutable. The slice is created again when its deletion is observed.
            self.delete(key, plan);
        } else if let Some(patch) = merge_patch(&old, new) {
            let mut write = Write::new(slice_of(key), Action::Merge(patch));
            write.uid = slice.uid();
            // Another leader may have decided since.
            write.resource_version.clone_from(&self.version);
            plan.writes.push(write);
        }
    }

    fn delete(&self, key: &Key, plan: &mut Plan<WorkItem>) {
        if self.slice.metadata.deletion_timestamp.is_none() {
            plan.delete(slice_of(key), self.slice.uid().unwrap_or_default());
        }
    }
}

/// Returns whether an EndpointSlice belongs to a ShadowEndpointSlice of the same name, also to an earlier one.
pub(super) fn is_owned(slice: &EndpointSlice, key: &Key) -> bool {
    let owners = slice.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.any(|owner| {
        let group = owner
            .api_version
            .split_once('/')
            .map_or("", |(group, _)| group);
        group == ShadowEndpointSlice::group(&())
            && owner.kind == ShadowEndpointSlice::kind(&())
            && owner.name == key.name
    })
}

/// Returns the fields of an EndpointSlice that this controller writes.
fn fields(
    labels: &impl serde::Serialize,
    annotations: &impl serde::Serialize,
    owners: Value,
    (endpoints, ports): (Value, Value),
) -> Value {
    json!({
        "metadata": {"labels": labels, "annotations": annotations, "ownerReferences": owners},
        "endpoints": endpoints,
        "ports": ports,
    })
}

fn owner(shadow: &ShadowEndpointSlice) -> Option<OwnerReference> {
    serde_json::from_value(controller_reference(shadow)).ok()
}

/// Returns the reference to a ShadowEndpointSlice.
pub(super) fn reference(key: &Key) -> Ref {
    Ref::of::<ShadowEndpointSlice>(&Cluster::Local, key)
}

/// Returns the reference to an EndpointSlice.
pub(super) fn slice_of(key: &Key) -> Ref {
    Ref::of::<EndpointSlice>(&Cluster::Local, key)
}
