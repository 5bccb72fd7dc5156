//! Decides which components of a node to start, restart and stop.
//!
//! The functions do no IO and read no clock. The caller passes the time and the state of
//! conditions, and carries out the actions.

use super::components::{Component, Condition};
use super::control::{Reply, Request, State};
use std::time::{Duration, Instant};

/// The delay before a component is restarted.
const BACKOFF: Duration = Duration::from_secs(1);

/// The interval at which the conditions of a component are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The supervised components of a node, in the order of their start.
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

/// An action that process 1 carries out for the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Starts the component with this index.
    Start(usize),
    /// Sends a signal to a process. The fields are the process id and the signal's number.
    Signal(i32, i32),
}

impl Supervisor {
    /// Creates a supervisor that starts all components at `now`, once their conditions hold.
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

    /// Returns the components to start. `holds` returns whether a condition holds.
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

    /// Returns the time at which [`Supervisor::poll`] must be called next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.parts
            .iter()
            .filter(|part| !part.stopped)
            .filter_map(|part| part.due_at)
            .min()
    }

    /// Records that a component was started. `pid` is `None` if the start failed.
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

    /// Records that a process has ended, and returns the name of its component.
    pub(super) fn handle_end(&mut self, pid: i32, now: Instant) -> Option<&'static str> {
        let part = self.parts.iter_mut().find(|part| part.pid == Some(pid))?;
        part.pid = None;
        part.due_at = Some(now + BACKOFF);

        Some(part.component.name)
    }

    /// Handles a request. Returns the reply, and the action that the request needs.
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

    /// Returns the ids of the running processes, in reverse order of their start.
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
