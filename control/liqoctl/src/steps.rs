//! Idempotent steps, of which every command that changes clusters consists.
//!
//! A step observes first and writes only what differs, so a command that failed or was
//! interrupted is completed by running it again:
//!
//! ```text
//! Blocked (being deleted) -> Pending (absent or different) -> apply -> Waiting -> Ready
//! ```

pub(crate) use object::{ObjectStep, Progress};

use crate::progress::{self, Activity, begin};
use crate::state::State;
use crate::wait::{Deadline, Found, PERIOD};
use anyhow::{Result, anyhow};
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use std::cell::RefCell;

/// Returns start and end of a part of [`Lines`].
pub(crate) fn lines(start: &str, done: &str) -> Option<(String, String)> {
    Some((start.to_owned(), done.to_owned()))
}

/// Progress lines of a step.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// `local`, `remote` or empty: the cluster of the step.
    pub(crate) scope: &'static str,
    /// Start and end of the part that writes; none for a step that writes nothing.
    pub(crate) apply: Option<(String, String)>,
    /// Start and end of the part that waits for a controller; none if it is not shown.
    pub(crate) wait: Option<(String, String)>,
    /// The step as in "GOAL took longer than 2m0s".
    pub(crate) goal: &'static str,
}

/// An idempotent change of one cluster, or a condition that a cluster must fulfil.
pub(crate) trait Step {
    /// Input from earlier steps or flags.
    type Desired: ?Sized;
    /// Output for later steps.
    type Output;

    /// Returns the lines of progress.
    fn lines(&self) -> Lines;

    /// Reads the cluster, and returns the progress of the step.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server fails, or if the step can never complete.
    async fn observe(&self, desired: &Self::Desired) -> Result<State<Self::Output>>;

    /// Writes the desired objects. Not called for a step that is never [`State::Pending`].
    ///
    /// # Errors
    ///
    /// Returns an error if the API server refuses an object.
    async fn apply(&self, _: &Self::Desired) -> Result<()> {
        Ok(())
    }

    /// Waits until the objects may have changed since the last observation.
    async fn changed(&self) {
        tokio::time::sleep(PERIOD).await;
    }

    /// Returns the removal of the objects, or none if they must not be removed.
    fn undo(&self) -> Option<Box<dyn Undo + '_>> {
        None
    }
}

/// The removal of the objects that a step has written.
pub(crate) trait Undo {
    /// Returns `local` or `remote`: the cluster of the objects.
    fn scope(&self) -> &'static str;

    /// Returns the objects as in "Deleting gateway client".
    fn noun(&self) -> &'static str;

    /// Deletes the objects. Returns whether there were any.
    fn delete(&self) -> LocalBoxFuture<'_, Result<bool>>;

    /// Returns the reason why an object still exists, or none if all are deleted.
    fn remaining(&self) -> LocalBoxFuture<'_, Result<Option<String>>>;

    /// Waits until the objects may have changed since they were last read.
    fn changed(&self) -> LocalBoxFuture<'_, ()> {
        tokio::time::sleep(PERIOD).boxed_local()
    }
}

/// Runs steps under one deadline, and records them for the error message.
#[derive(Debug)]
pub(crate) struct Runner {
    deadline: Deadline,
    completed: RefCell<Vec<String>>,
    failed: RefCell<Vec<String>>,
}

impl Runner {
    /// Runs the steps of `command`.
    ///
    /// # Errors
    ///
    /// Returns the error of `command`. If a step failed, the error also names this step, the
    /// completed steps and the remedy.
    pub(crate) async fn run<T>(
        deadline: Deadline,
        command: impl AsyncFnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        let runner = Self {
            deadline,
            completed: RefCell::default(),
            failed: RefCell::default(),
        };
        let result = command(&runner).await;
        result.map_err(|error| match runner.summary() {
            Some(summary) => anyhow!("{error:#}\n{summary}"),
            None => error,
        })
    }

    /// Completes a step: observes, applies if needed, and waits until the step is ready.
    ///
    /// # Errors
    ///
    /// Returns the error of the step, or the missing part at the deadline.
    pub(crate) async fn apply<S: Step>(&self, step: &S, desired: &S::Desired) -> Result<S::Output> {
        let lines = step.lines();
        let parts = lines.apply.as_ref().or(lines.wait.as_ref());
        let name = parts.map_or(lines.goal, |(start, _)| start);
        self.record(
            lines.scope,
            name,
            self.complete(step, &lines, desired).await,
        )
    }

    /// Completes two steps at the same time, usually one per cluster.
    ///
    /// # Errors
    ///
    /// Returns the first error, and cancels the other step.
    pub(crate) async fn both<A: Step, B: Step>(
        &self,
        (one, of_one): (&A, &A::Desired),
        (other, of_other): (&B, &B::Desired),
    ) -> Result<(A::Output, B::Output)> {
        tokio::try_join!(self.apply(one, of_one), self.apply(other, of_other))
    }

    /// Undoes steps in the reverse order. `steps` are in the order in which they are applied.
    ///
    /// The first error ends the removal, because the remaining objects may need objects of earlier
    /// steps.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server refuses a deletion or, if `wait` is set, if an object still
    /// exists at the deadline.
    pub(crate) async fn undo(
        &self,
        steps: Vec<Option<Box<dyn Undo + '_>>>,
        wait: bool,
    ) -> Result<()> {
        for step in steps.into_iter().rev().flatten() {
            let name = format!("Deleting {}", step.noun());
            self.record(
                step.scope(),
                &name,
                self.remove(step.as_ref(), &name, wait).await,
            )?;
        }
        Ok(())
    }

    async fn complete<S: Step>(
        &self,
        step: &S,
        lines: &Lines,
        desired: &S::Desired,
    ) -> Result<S::Output> {
        let applying = start(lines.scope, &lines.apply);
        let waiting = match applying {
            Some(_) => None,
            None => start(lines.scope, &lines.wait),
        };
        let mut writer = Writer::new(lines.scope);
        let written = self
            .deadline
            .until_changed(
                lines.goal,
                async || writer.write(step, desired).await,
                async || step.changed().await,
            )
            .await?;
        end(applying, &lines.apply);

        let waiting = waiting.or_else(|| start(lines.scope, &lines.wait));
        let output = match written {
            Written::Ready(output) => output,
            Written::Waiting(_) => {
                let observe = async || {
                    Ok(match writer.write(step, desired).await? {
                        Found::Ready(Written::Ready(output)) => Found::Ready(output),
                        Found::Ready(Written::Waiting(missing)) | Found::Missing(missing) => {
                            Found::Missing(missing)
                        }
                    })
                };
                self.deadline
                    .until_changed(lines.goal, observe, async || step.changed().await)
                    .await?
            }
        };
        end(waiting, &lines.wait);
        Ok(output)
    }

    async fn remove(&self, step: &dyn Undo, name: &str, wait: bool) -> Result<()> {
        let deleting = begin(step.scope(), name);
        let existed = step.delete().await?;
        if wait {
            let observe = async || {
                let remaining = step.remaining().await?;
                Ok(remaining.map_or(Found::Ready(()), Found::Missing))
            };
            let goal = format!("deleting the {}", step.noun());
            let changed = async || step.changed().await;
            self.deadline.until_changed(&goal, observe, changed).await?;
        }
        deleting.done(removed(step.noun(), existed));
        Ok(())
    }

    fn record<T>(&self, scope: &str, name: &str, result: Result<T>) -> Result<T> {
        let list = match &result {
            Ok(_) => &self.completed,
            Err(_) => &self.failed,
        };
        list.borrow_mut().push(progress::scoped(scope, name));
        result
    }

    /// Returns the failed and the completed steps, or none if no step failed.
    fn summary(&self) -> Option<String> {
        let (failed, completed) = (self.failed.borrow(), self.completed.borrow());
        if failed.is_empty() {
            return None;
        }
        let completed = match completed.as_slice() {
            [] => "none".to_owned(),
            names => names.join("; "),
        };
        Some(format!(
            "failed step: {}\ncompleted steps: {completed}\nto continue, remove the cause and run the same command again: it skips completed steps",
            failed.join("; "),
        ))
    }
}

/// A step whose objects are written.
enum Written<T> {
    Waiting(String),
    Ready(T),
}

/// Writes the objects of a step.
///
/// Objects that are deleted while the step waits are written again. Objects that never become equal
/// to the desired ones are not written again, because two writers would overwrite each other in a
/// loop.
struct Writer {
    /// Cluster of the step, for messages.
    scope: &'static str,
    is_written: bool,
    /// Whether the reason why the step is blocked was printed.
    is_reported: bool,
}

impl Writer {
    fn new(scope: &'static str) -> Self {
        Self {
            scope,
            is_written: false,
            is_reported: false,
        }
    }

    /// Observes a step, applies it if needed, and returns whether its objects are written.
    async fn write<S: Step>(
        &mut self,
        step: &S,
        desired: &S::Desired,
    ) -> Result<Found<Written<S::Output>>> {
        let mut state = step.observe(desired).await?;
        if matches!(state, State::Pending) && !self.is_written {
            step.apply(desired).await?;
            self.is_written = true;
            state = step.observe(desired).await?;
        }
        if matches!(state, State::Blocked(_) | State::Waiting(_)) {
            self.is_written = false;
        }
        if let State::Blocked(reason) = &state
            && !std::mem::replace(&mut self.is_reported, true)
        {
            let text = format!("Waiting: {reason}");
            progress::info(progress::scoped(self.scope, text));
        }
        Ok(match state {
            State::Ready(output) => Found::Ready(Written::Ready(output)),
            State::Waiting(missing) => Found::Ready(Written::Waiting(missing)),
            State::Blocked(reason) => Found::Missing(reason),
            State::Pending => Found::Missing(
                "the objects differ from the written ones: does a webhook or another controller change them?"
                    .to_owned(),
            ),
        })
    }
}

fn start(scope: &'static str, part: &Option<(String, String)>) -> Option<Activity> {
    let start = part.as_ref().map(|(start, _)| start);
    start.map(|start| begin(scope, start))
}

fn end(activity: Option<Activity>, part: &Option<(String, String)>) {
    if let (Some(activity), Some((_, done))) = (activity, part) {
        activity.done(done);
    }
}

/// Returns the line for the end of a removal.
pub(crate) fn removed(noun: &str, existed: bool) -> String {
    let adverb = if existed { "correctly" } else { "already" };
    let mut letters = noun.chars();
    let first = letters.next().map(char::to_uppercase);
    let capitalized: String = first.into_iter().flatten().chain(letters).collect();
    format!("{capitalized} {adverb} deleted")
}

mod object;

#[cfg(test)]
mod tests;
