//! Runs the components of a node: which are due, which ended, which may not run.
//!
//! The decisions are synchronous functions over values; time and the outcome of a look
//! at the world are arguments.

use super::components::{Component, Condition};
use super::control::{Answer, Request, State};
use std::time::{Duration, Instant};

/// How long a component that ended rests before it is started again.
const REST: Duration = Duration::from_secs(1);

/// How often conditions are looked at.
const LOOK: Duration = Duration::from_millis(50);

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

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Start this component.
    Start(usize),
    /// Send the process a signal.
    Signal(i32, i32),
}

impl Supervisor {
    /// All components due now.
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

    /// The component with this index.
    pub(super) fn component(&self, index: usize) -> Option<&Component> {
        self.parts.get(index).map(|part| &part.component)
    }

    /// Returns which components are to be started now; `holds` looks at the world.
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
                part.due_at = Some(now + LOOK);
            }
        }

        actions
    }

    /// When [`Supervisor::poll`] is next to be called, if nothing else happens.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.parts
            .iter()
            .filter(|part| !part.stopped)
            .filter_map(|part| part.due_at)
            .min()
    }

    /// A component was started, or could not be.
    pub(super) fn handle_start(&mut self, index: usize, pid: Option<i32>, now: Instant) {
        let Some(part) = self.parts.get_mut(index) else {
            return;
        };
        part.pid = pid;
        part.starts = part.starts.saturating_add(1);
        if pid.is_none() {
            part.due_at = Some(now + REST);
        }
    }

    /// A process ended; returns the name of the component that it was.
    pub(super) fn handle_end(&mut self, pid: i32, now: Instant) -> Option<&'static str> {
        let part = self.parts.iter_mut().find(|part| part.pid == Some(pid))?;
        part.pid = None;
        part.due_at = Some(now + REST);

        Some(part.component.name)
    }

    /// Someone asks for something.
    pub(super) fn handle_request(
        &mut self,
        request: &Request,
        now: Instant,
    ) -> (Answer, Option<Action>) {
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
            return (Answer::Error(error), None);
        };
        let action = match request {
            Request::Status => None,
            Request::Signal(_, signal) => match part.pid {
                Some(pid) => Some(Action::Signal(pid, *signal)),
                None => return (Answer::Error(format!("{name} does not run")), None),
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

    /// The processes that run, the last started first.
    pub(super) fn running(&self) -> Vec<i32> {
        self.parts
            .iter()
            .rev()
            .filter_map(|part| part.pid)
            .collect()
    }

    fn status(&self) -> Answer {
        let state = |part: &Part| State {
            name: part.component.name.to_owned(),
            pid: part.pid,
            starts: part.starts,
            stopped: part.stopped,
        };
        Answer::Components(self.parts.iter().map(state).collect())
    }
}

#[cfg(test)]
mod tests;
