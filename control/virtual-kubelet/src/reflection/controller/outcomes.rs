//! Outcomes of requests, which the next plans depend on.

use super::ReflectionController;
use crate::reflection::item::WorkItem;
use crate::reflection::kind::Kind;
use crate::reflection::other::STATUS;
use crate::reflection::present::Present;
use crate::reflection::status::status;
use control_runtime::{Action, Cache, Cluster, Entry, Outcome, Ref, Write};
use kube::core::Status;
use serde_json::Value;

/// Code of the response to a write that changes an immutable field, and to others that are invalid.
const INVALID: u16 = 422;

/// Parts of the messages with which the API server refuses another value of an immutable field
/// (`ValidateImmutableField` in `apimachinery/pkg/api/validation`, `ValidateServiceUpdate` in `pkg/apis/core/validation`).
const IMMUTABLE: [&str; 2] = ["is immutable", "may not change once set"];

impl ReflectionController {
    /// Takes the outcome of a write of a status; returns whether to plan it again.
    pub(super) fn wrote_status(
        &mut self,
        item: &WorkItem,
        object: &Ref,
        outcome: &Outcome,
        cache: &Cache,
    ) -> bool {
        match outcome {
            Outcome::Stored(entry) => {
                self.carried.remove(item);
                self.memory.stored(item, &status(entry).unwrap_or_default());
            }
            Outcome::Refused(refusal) => self.memory.refuse(item, refusal),
            // The object was deleted meanwhile, or has no such subresource.
            Outcome::Gone => {
                let Some(entry) = cache.entry(object) else {
                    return false;
                };
                self.memory.stored(item, &status(entry).unwrap_or_default());
                let message = "the object has no subresource `status`";
                self.memory.refuse_with(item, message);
                return true;
            }
            Outcome::AlreadyExists(_)
            | Outcome::Answer(_)
            | Outcome::Conflict(_)
            | Outcome::TimedOut
            | Outcome::Failed(_)
            | Outcome::Untrusted(_)
            | Outcome::NotLeader => {}
        }
        false
    }

    /// Takes an object that was read for a status; returns whether the item can proceed.
    pub(super) fn read_for_status(
        &mut self,
        item: &WorkItem,
        object: &Ref,
        outcome: &Outcome,
        cache: &Cache,
    ) -> bool {
        let Outcome::Stored(entry) = outcome else {
            return false;
        };
        match &object.cluster {
            Cluster::Local => self.memory.name_other_manager(item, entry.managers(STATUS)),
            Cluster::Remote(_) => self.carry(item, (object, entry), cache),
        }
        true
    }

    /// Takes the outcome of a write of a reflected object.
    pub(super) fn written(
        &mut self,
        item: &WorkItem,
        write: &Write,
        outcome: &Outcome,
        kind: Kind,
    ) {
        match outcome {
            Outcome::Stored(entry) if write.action != Action::Delete => {
                self.carried.remove(item);
                if let Some(present) = Present::of(entry, &self.settings.peering, kind) {
                    self.memory.stored(item, present.fingerprint);
                }
            }
            Outcome::AlreadyExists(Some(entry)) => {
                let present = Present::of(entry, &self.settings.peering, kind);
                if !present.is_some_and(|it| it.is_reflected) {
                    self.memory.mark_foreign(item);
                }
            }
            Outcome::Refused(status) => {
                self.memory.refuse(item, status);
                // A webhook may refuse a change of a custom resource, which may be the only copy of data.
                if let (Action::Apply(fields), Some(uid), false) =
                    (&write.action, &write.uid, kind.is_other())
                    && (is_immutable(status) || keeps_class(kind, fields, status))
                {
                    self.memory.replace(item, uid);
                }
            }
            Outcome::Stored(_)
            | Outcome::AlreadyExists(None)
            | Outcome::Answer(_)
            | Outcome::Gone
            | Outcome::Conflict(_)
            | Outcome::TimedOut
            | Outcome::Failed(_)
            | Outcome::Untrusted(_)
            | Outcome::NotLeader => {}
        }
    }

    /// Keeps an object that was read, unless the watch has reported a later state since the request. That one is written, or read.
    fn carry(&mut self, item: &WorkItem, (object, entry): (&Ref, &Entry), cache: &Cache) {
        let watched = cache.entry(object).and_then(|it| it.version);
        if entry.version >= watched {
            self.carried.put(item.clone(), entry);
        }
    }

    /// Takes an object that was read; returns whether the item can proceed.
    pub(super) fn read(
        &mut self,
        item: &WorkItem,
        object: &Ref,
        outcome: &Outcome,
        (kind, cache): (Kind, &Cache),
    ) -> bool {
        match (outcome, &object.cluster) {
            (Outcome::Stored(entry), Cluster::Local) => {
                self.carry(item, (object, entry), cache);
                true
            }
            (Outcome::Stored(entry), Cluster::Remote(_)) => {
                let present = Present::of(entry, &self.settings.peering, kind);
                let is_ours = present.is_some_and(|it| it.is_reflected);
                if is_ours {
                    self.memory.release(item);
                    self.memory.name_other_manager(item, entry.managers(""));
                }
                is_ours
            }
            (Outcome::Gone, Cluster::Remote(_)) => {
                self.memory.release(item);
                self.memory.name_other_manager(item, []);
                true
            }
            // The watch reports the deletion.
            (_, Cluster::Local | Cluster::Remote(_)) => false,
        }
    }
}

/// Returns whether an immutable field is the reason of a refusal. After another one, such as a port that is in use, the object
/// could not be created again either.
fn is_immutable(status: &Status) -> bool {
    status.code == INVALID && IMMUTABLE.iter().any(|part| status.message.contains(part))
}

/// Returns whether an Apply without a class was refused because of the class that the object has. If its creation has set the class, an
/// Apply alone does not remove it, and the provider's policy refuses each change of an object whose class it no longer offers.
fn keeps_class(kind: Kind, fields: &Value, status: &Status) -> bool {
    let field = match kind {
        Kind::Ingress => "ingressClassName",
        Kind::Service => "loadBalancerClass",
        Kind::EndpointSlice | Kind::ConfigMap | Kind::Secret | Kind::Other(_) => return false,
    };

    fields["spec"][field].is_null() && status.message.contains(&format!("spec.{field}"))
}
