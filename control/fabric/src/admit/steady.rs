//! Peers keep what they had while a change of theirs is being worked out.
//!
//! Whoever edits a peer's CIDRs makes its Configuration incomplete until the controller
//! manager has said how the new ones are seen here, which takes a moment, or as long as the
//! manager is away. A peer without CIDRs cannot be served; its tunnel would go down, and one
//! of another make would call again only seconds later. So it is served as before until then.

use super::super::objects::{Object, Objects};
use super::complete::is_configured;
use super::{Admission, admit};
use control_api::Configuration;
use control_api::networking::configuration::{NETWORK_CIDRS_CONFIGURED, WAITING_FOR_NETWORKS};
use std::collections::BTreeMap;

/// Remembers the last complete Configuration of each peer.
#[derive(Debug, Default)]
pub struct Steady {
    /// By namespace and name.
    complete: BTreeMap<Name, Configuration>,
}

type Name = (Option<String>, Option<String>);

impl Steady {
    /// As [`admit`], with what was known before in the place of what is being worked out.
    pub fn admit(&mut self, objects: Objects) -> Admission {
        if !self.learn(&objects) {
            return admit(objects);
        }
        let mut bridged = objects.clone();
        self.bridge(&mut bridged);
        let (steady, given) = (admit(bridged), admit(objects));
        // What was known before may be another's by now: nobody is refused for its sake.
        let harms_nobody = steady.refused.iter().all(|it| given.refused.contains(it));

        if steady.fabric.is_ok() && harms_nobody {
            steady
        } else {
            given
        }
    }

    /// Remembers what is complete, or was and is being worked out, and nothing else; returns
    /// whether there is any of the latter.
    fn learn(&mut self, objects: &Objects) -> bool {
        let mut before = std::mem::take(&mut self.complete);
        let mut is_any = false;
        for configuration in objects.of::<Configuration>() {
            let name = name(configuration);
            let known = before.remove(&name);
            let kept = if is_configured(configuration) {
                let unchanged = known.filter(|known| known == configuration);
                unchanged.unwrap_or_else(|| configuration.clone())
            } else {
                let Some(known) = known.filter(|known| is_worked_out(configuration, known)) else {
                    continue;
                };
                is_any = true;
                known
            };
            self.complete.insert(name, kept);
        }

        is_any
    }

    /// Puts what is remembered into the place of what is not complete.
    fn bridge(&self, objects: &mut Objects) {
        for object in objects.iter_mut() {
            if let Object::Configuration(configuration) = object
                && let Some(known) = self.complete.get(&name(configuration))
            {
                configuration.clone_from(known);
            }
        }
    }
}

fn name(configuration: &Configuration) -> Name {
    let metadata = &configuration.metadata;
    (metadata.namespace.clone(), metadata.name.clone())
}

/// Whether it will be complete soon: the manager has not looked at it yet, or makes its networks;
/// `known` is what it was, unless that was another object of its name.
fn is_worked_out(configuration: &Configuration, known: &Configuration) -> bool {
    let metadata = &configuration.metadata;
    let status = configuration.status.as_ref();
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    let verdict = conditions.find(|condition| condition.type_ == NETWORK_CIDRS_CONFIGURED);

    metadata.uid == known.metadata.uid
        && metadata.deletion_timestamp.is_none()
        && verdict.is_none_or(|verdict| {
            verdict.observed_generation != metadata.generation
                || verdict.reason == WAITING_FOR_NETWORKS
        })
}
