//! The chain from a pod to its remote pod: its links, and how they are shown. PURE.

use super::facts::Facts;
use super::{local, provider, remote};
use crate::commands::info::boxes::{Item, draw};
use crate::printable::printable;
use serde_json::{Map, Value, json};

/// Width of a reason within a box, in characters.
const REASON_WIDTH: usize = 70;

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It works.
    Whole,
    /// It does not work, for the reason of the link.
    Broken,
    /// It cannot be examined, for the reason of the link.
    Unknown,
    /// It was not examined, because an earlier link does not work.
    NotReached,
}

/// A part of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Name for `-o` and `--get`.
    name: &'static str,
    title: String,
    details: Vec<(&'static str, String)>,
    state: State,
    reason: String,
}

impl Link {
    /// Creates a link that works.
    pub(super) fn new(name: &'static str, title: impl AsRef<str>) -> Self {
        Self {
            name,
            title: printable(title.as_ref()),
            details: Vec::new(),
            state: State::Whole,
            reason: String::new(),
        }
    }

    /// Adds a detail, unless it is empty.
    pub(super) fn detail(mut self, key: &'static str, value: impl AsRef<str>) -> Self {
        let value = printable(value.as_ref());
        if !value.trim().is_empty() {
            self.details.push((key, value));
        }
        self
    }

    /// Marks the link as broken.
    pub(super) fn broken(self, reason: impl AsRef<str>) -> Self {
        self.with_state(State::Broken, reason)
    }

    /// Marks the link as one that cannot be examined.
    pub(super) fn unknown(self, reason: impl AsRef<str>) -> Self {
        self.with_state(State::Unknown, reason)
    }

    /// Marks the link as one that is not examined.
    pub(super) fn not_reached(self) -> Self {
        self.with_state(State::NotReached, "")
    }

    /// Marks the link as broken if there is a reason.
    pub(super) fn broken_if(self, reason: Option<String>) -> Self {
        match reason {
            Some(reason) => self.broken(reason),
            None => self,
        }
    }

    fn with_state(mut self, state: State, reason: impl AsRef<str>) -> Self {
        self.state = state;
        self.reason = printable(reason.as_ref());
        self
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> (&'static str, State, &str) {
        (self.name, self.state, &self.reason)
    }

    #[cfg(test)]
    pub(super) fn find(&self, key: &str) -> Option<&str> {
        let mut details = self.details.iter();
        let found = details.find(|(name, _)| *name == key);
        found.map(|(_, value)| value.as_str())
    }

    fn value(&self) -> Value {
        let details: Map<String, Value> = self
            .details
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_str().into()))
            .collect();
        let mut value = json!({
            "link": self.name,
            "title": self.title,
            "state": format!("{:?}", self.state),
            "details": details,
        });
        if !self.reason.is_empty() {
            value["reason"] = self.reason.as_str().into();
        }
        value
    }

    fn item(&self) -> Item {
        let mark = match self.state {
            State::Whole => "✔",
            State::Broken => "✖",
            State::Unknown => "?",
            State::NotReached => "-",
        };
        let details = self.details.iter();
        let mut items: Vec<Item> = details
            .map(|(key, value)| Item::entry(key, value))
            .collect();
        items.extend(wrapped(&self.reason).into_iter().map(Item::Line));
        Item::section(format!("{mark}    {}", self.title), items)
    }
}

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

/// Returns a text in lines of at most [`REASON_WIDTH`] characters, if its words are not longer.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < REASON_WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}
