//! Decides which components of a node are started, restarted and stopped.
//!
//! The decisions are synchronous functions over values; the time and the state of conditions are
//! arguments.

use super::components::{Component, Condition};
use super::control::{Reply, Request, State};
use std::time::{Duration, Instant};

/// The backoff before a component is restarted.
const BACKOFF: Duration = Duration::from_secs(1);

/// The interval of checks of conditions.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// All components of a node.
#[derive(Debug)]
pub(super) struct Supervisor {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    component: Component,
    pid: Option<i32>,
    starts: u32,
    stopped: bool,
    due_at: Option<Instant>,
}

/// An action of the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Start the component with this index.
    Start(usize),
    /// Send a signal to a process.
    Signal(i32, i32),
}

impl Supervisor {
    /// Creates a supervisor whose components are all due.
    pub(super) fn new(components: Vec<Component>, now: Instant) -> Self {
        let part = |component| Part {
            component,
            pid: None,
            starts: 0,
            stopped: false,
            due_at: Some(now),
        };
        Self {
            parts: components.into_iter().map(part).collect(),
        }
    }

    pub(super) fn component(&self, index: usize) -> Option<&Component> {
        self.parts.get(index).map(|part| &part.component)
    }

    /// Returns the components to start; `holds` checks a condition.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        mut holds: impl FnMut(&Condition) -> bool,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        for (index, part) in self.parts.iter_mut().enumerate() {
            if part.stopped || part.pid.is_some() || part.due_at.is_none_or(|at| at > now) {
                continue;
            }
            if part.component.after.iter().all(&mut holds) {
                part.due_at = None;
                actions.push(Action::Start(index));
            } else {
                part.due_at = Some(now + CHECK_INTERVAL);
            }
        }

        actions
    }

    /// The time of the next call of [`Supervisor::poll`].
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.parts
            .iter()
            .filter(|part| !part.stopped)
            .filter_map(|part| part.due_at)
            .min()
    }

    /// Handles the start of a component, which failed if `pid` is `None`.
    pub(super) fn handle_start(&mut self, index: usize, pid: Option<i32>, now: Instant) {
        let Some(part) = self.parts.get_mut(index) else {
            return;
        };
        part.pid = pid;
        part.starts = part.starts.saturating_add(1);
        if pid.is_none() {
            part.due_at = Some(now + BACKOFF);
        }
    }

    /// Handles the end of a process; returns the name of its component.
    pub(super) fn handle_end(&mut self, pid: i32, now: Instant) -> Option<&'static str> {
        let part = self.parts.iter_mut().find(|part| part.pid == Some(pid))?;
        part.pid = None;
        part.due_at = Some(now + BACKOFF);

        Some(part.component.name)
    }

    /// Handles a request; returns its reply, and an action.
    pub(super) fn handle_request(
        &mut self,
        request: &Request,
        now: Instant,
    ) -> (Reply, Option<Action>) {
        let name = match request {
            Request::Status => return (self.status(), None),
            Request::Signal(name, _) | Request::Stop(name) | Request::Start(name) => name,
        };
        let Some(part) = self
            .parts
            .iter_mut()
            .find(|part| part.component.name == name)
        else {
            let known: Vec<_> = self.parts.iter().map(|part| part.component.name).collect();
            let error = format!("no component {name:?}: there are {}", known.join(", "));
            return (Reply::Error(error), None);
        };
        let action = match request {
            Request::Status => None,
            Request::Signal(_, signal) => match part.pid {
                Some(pid) => Some(Action::Signal(pid, *signal)),
                None => return (Reply::Error(format!("{name} does not run")), None),
            },
            Request::Stop(_) => {
                part.stopped = true;
                part.pid.map(|pid| Action::Signal(pid, nix::libc::SIGTERM))
            }
            Request::Start(_) => {
                part.stopped = false;
                if part.pid.is_none() {
                    part.due_at = Some(now);
                }
                None
            }
        };

        (self.status(), action)
    }

    /// The running processes, in reverse order of start.
    pub(super) fn running(&self) -> Vec<i32> {
        self.parts
            .iter()
            .rev()
            .filter_map(|part| part.pid)
            .collect()
    }

    fn status(&self) -> Reply {
        let state = |part: &Part| State {
            name: part.component.name.to_owned(),
            pid: part.pid,
            starts: part.starts,
            stopped: part.stopped,
        };
        Reply::Components(self.parts.iter().map(state).collect())
    }
}

#[cfg(test)]
mod tests;
