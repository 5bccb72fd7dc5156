//! One link of the chain. PURE.

use crate::commands::info::boxes::Item;
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
    pub(super) title: String,
    details: Vec<(&'static str, String)>,
    pub(super) state: State,
    pub(super) reason: String,
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
    pub(super) fn shown(&self) -> (&'static str, State, &str) {
        (self.name, self.state, &self.reason)
    }

    #[cfg(test)]
    pub(super) fn find(&self, key: &str) -> Option<&str> {
        let mut details = self.details.iter();
        let found = details.find(|(name, _)| *name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the link for `-o` and `--get`.
    pub(super) fn value(&self) -> Value {
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

    /// Returns the link as a part of a box.
    pub(super) fn item(&self) -> Item {
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
