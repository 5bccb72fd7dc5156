//! The containers that samples have seen, and the judgement about them, without clock and containerd.

use anyhow::{Context as _, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The ID in containerd.
    pub id: String,
    /// The name of the pod.
    pub pod: String,
    /// The UID of the pod.
    pub uid: String,
    /// The name of the container in the pod.
    pub name: String,
    /// The time at which containerd created the container.
    pub created: String,
}

/// The process of a running container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The process ID inside the node.
    pub pid: String,
    /// The start time in clock ticks since the boot of the machine.
    pub started: String,
}

/// All samples of a test. Times are those since the start of the sampler.
#[derive(Debug, Default)]
pub struct History {
    nodes: BTreeMap<String, Samples>,
    /// The containers in the order of their first sample.
    runs: Vec<Run>,
}

/// The samples of a node.
#[derive(Debug)]
struct Samples {
    first: Duration,
    last: Duration,
    /// The longest time between two samples.
    longest_gap: Duration,
}

/// A container in the samples of its node.
#[derive(Debug)]
struct Run {
    container: Container,
    node: String,
    /// The task that was seen first. `None` if the container was never seen running.
    task: Option<Task>,
    /// The times of the first and last sample in which the container ran.
    running: Option<(Duration, Duration)>,
    /// The time of the first sample in which the container no longer ran, or had another process.
    interrupted: Option<Duration>,
}

impl History {
    /// Adds a sample of a node, with the task of each running container.
    pub fn record(&mut self, node: &str, at: Duration, containers: Vec<(Container, Option<Task>)>) {
        let samples = self.nodes.entry(node.to_owned()).or_insert(Samples {
            first: at,
            last: at,
            longest_gap: Duration::ZERO,
        });
        samples.longest_gap = samples.longest_gap.max(at.saturating_sub(samples.last));
        samples.last = at;

        let mut seen = BTreeSet::new();
        for (container, task) in containers {
            seen.insert(container.id.clone());
            let known = self.runs.iter_mut().find(|it| it.container == container);
            match known {
                Some(run) => run.observe(task, at),
                None => self.runs.push(Run::new(container, node, task, at)),
            }
        }
        let removed = self
            .runs
            .iter_mut()
            .filter(|run| run.node == node && !seen.contains(&run.container.id));
        removed.for_each(|run| run.observe(None, at));
    }

    /// Returns the longest time without a sample of a node.
    pub fn longest_gap(&self) -> Duration {
        let gaps = self.nodes.values().map(|it| it.longest_gap);
        gaps.max().unwrap_or_default()
    }

    /// Returns the names of the pods with a container.
    pub fn pods(&self) -> BTreeSet<&str> {
        self.runs
            .iter()
            .map(|it| it.container.pod.as_str())
            .collect()
    }

    /// Checks that a pod had the same containers and processes in all samples of its node, from the first to the last.
    ///
    /// # Errors
    ///
    /// Returns an error that shows the containers of the pod.
    pub fn ensure_unchanged(&self, pod: &str) -> Result<()> {
        let runs: Vec<_> = self.runs_of(pod).collect();
        ensure!(!runs.is_empty(), "no container of {pod} was seen");
        let names: BTreeSet<_> = runs.iter().map(|it| &it.container.name).collect();
        ensure!(
            names.len() == runs.len(),
            "a container of {pod} was restarted or doubled: {runs:#?}"
        );
        for run in runs {
            let samples = self.nodes.get(&run.node).context("the node has samples")?;
            let throughout = Some((samples.first, samples.last));
            ensure!(
                run.running == throughout && run.interrupted.is_none(),
                "a container of {pod} did not run from {:?} to {:?}: {run:#?}",
                samples.first,
                samples.last
            );
        }

        Ok(())
    }

    /// Checks that no container of a pod ran twice at the same time.
    ///
    /// # Errors
    ///
    /// Returns an error that shows two containers.
    pub fn ensure_none_doubled(&self) -> Result<()> {
        for (index, run) in self.runs.iter().enumerate() {
            for other in &self.runs[index + 1..] {
                let key = |it: &Run| (it.container.pod.clone(), it.container.name.clone());
                let (Some(one), Some(two)) = (run.running, other.running) else {
                    continue;
                };
                if key(run) == key(other) && one.0 <= two.1 && two.0 <= one.1 {
                    bail!("two containers ran at the same time: {run:#?} {other:#?}");
                }
            }
        }

        Ok(())
    }

    /// Checks that no container was restarted in its pod.
    ///
    /// # Errors
    ///
    /// Returns an error that shows the containers.
    pub fn ensure_none_restarted(&self) -> Result<()> {
        let mut first = BTreeMap::new();
        for run in &self.runs {
            let Container { uid, name, .. } = &run.container;
            if let Some(other) = first.insert((uid, name), run) {
                bail!("a container was restarted: {other:#?} {run:#?}");
            }
        }

        Ok(())
    }

    /// Checks that no container ran in the last sample of its node.
    ///
    /// # Errors
    ///
    /// Returns an error that shows a running container.
    pub fn ensure_none_left(&self) -> Result<()> {
        for run in &self.runs {
            let last = self.nodes.get(&run.node).map(|it| it.last);
            let is_left = run.running.is_some_and(|(_, end)| Some(end) == last);
            ensure!(!is_left, "a container is left: {run:#?}");
        }

        Ok(())
    }

    fn runs_of<'a>(&'a self, pod: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |it| it.container.pod == pod)
    }
}

impl Run {
    fn new(container: Container, node: &str, task: Option<Task>, at: Duration) -> Self {
        Self {
            container,
            node: node.to_owned(),
            running: task.as_ref().map(|_| (at, at)),
            task,
            interrupted: None,
        }
    }

    fn observe(&mut self, task: Option<Task>, at: Duration) {
        match (&self.task, task) {
            (None, None) => {}
            // The container was created before its process started.
            (None, Some(task)) => {
                self.task = Some(task);
                self.running = Some((at, at));
            }
            (Some(before), task) => {
                if task.as_ref() != Some(before) {
                    self.interrupted.get_or_insert(at);
                }
                if let (Some(_), Some((_, end))) = (task, &mut self.running) {
                    *end = at;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
