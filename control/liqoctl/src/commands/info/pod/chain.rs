//! The chain from a pod to its remote pod: its links, and how they are shown. PURE.

use super::facts::Facts;
use super::link::{Link, State};
use super::{local, provider, remote};
use crate::commands::info::boxes::{Item, draw};
use serde_json::{Value, json};

/// The links of a pod, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// Namespace and name of the pod.
    pod: (String, String),
    pub(super) links: Vec<Link>,
}

impl Chain {
    /// Derives the chain.
    pub(super) fn of(facts: &Facts) -> Self {
        let scheduling = local::scheduling(facts);
        let is_offloaded = scheduling.state == State::Whole;
        let further: [fn(&Facts) -> Link; 7] = [
            local::virtual_node,
            provider::provider,
            local::namespace,
            provider::tokens,
            provider::shadow_pod,
            remote::pod,
            remote::network,
        ];
        let further = further.into_iter().filter(|_| is_offloaded);
        let links = [local::pod(facts), scheduling];
        Self {
            pod: (facts.namespace().to_owned(), facts.name().to_owned()),
            links: links
                .into_iter()
                .chain(further.map(|link| link(facts)))
                .collect(),
        }
    }

    /// Returns the first link that is broken, else the first one that could not be examined.
    pub(super) fn end(&self) -> Option<&Link> {
        let find = |is: fn(State) -> bool| self.links.iter().find(|link| is(link.state));
        find(|it| it == State::Broken).or_else(|| find(|it| it != State::Whole))
    }

    /// Returns what interrupts the chain, in a sentence.
    pub(super) fn summary(&self) -> Option<String> {
        let end = self.end()?;
        let (namespace, name) = &self.pod;
        let what = match end.state {
            State::Broken => "is broken at",
            State::Whole | State::Unknown | State::NotReached => "is unknown from",
        };
        Some(format!(
            "the chain of pod {namespace}/{name} {what}: {}: {}",
            end.title, end.reason
        ))
    }

    /// Returns the chain for `-o` and `--get`.
    pub(super) fn value(&self) -> Value {
        let (namespace, name) = &self.pod;
        let mut value = json!({
            "pod": {"namespace": namespace, "name": name},
            "whole": self.end().is_none(),
            "chain": self.links.iter().map(Link::value).collect::<Vec<_>>(),
        });
        if let Some(end) = self.end() {
            value["end"] = end.value();
        }
        value
    }

    /// Returns the chain as a box of text.
    pub(super) fn boxes(&self) -> String {
        let (namespace, name) = &self.pod;
        let items: Vec<Item> = self.links.iter().map(Link::item).collect();
        draw(&format!("Pod {namespace}/{name}"), &items)
    }
}
