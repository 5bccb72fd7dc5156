//! The containers of a namespace's pods, sampled from the containerd of each node throughout a test.

mod history;

pub use history::{Container, History, Task};

use crate::cluster::Cluster;
use crate::node::{Node, start_time};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two samples. containerd keeps a container that has ended until the kubelet removes it, so a container that
/// lives for a shorter time is seen, too.
const INTERVAL: Duration = Duration::from_secs(1);

/// Samples the containers of a namespace in a thread. Dropping the value ends the thread.
#[derive(Debug)]
pub struct Sampler {
    /// Its disconnection ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<History>>,
    known: Arc<AtomicUsize>,
}

impl Sampler {
    /// Starts to sample the containers of the pods in `namespace`.
    ///
    /// # Errors
    ///
    /// Returns an error if the containerd of a node cannot be read.
    pub fn start(cluster: &Cluster, namespace: &str) -> Result<Self> {
        let known = Arc::<AtomicUsize>::default();
        let mut sampling = Sampling {
            known: Arc::clone(&known),
            nodes: cluster.nodes(),
            filter: filter(namespace),
            labels: BTreeMap::new(),
            history: History::default(),
            start: Instant::now(),
        };
        for node in sampling.nodes.clone() {
            sampling.sample(&node)?;
        }
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(INTERVAL) {
                sampling.sample_all();
            }
            sampling.sample_all();
            sampling.history
        });

        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
            known,
        })
    }

    /// Returns the number of containers in all samples. A sample takes long if it has many new containers.
    #[must_use]
    pub fn known(&self) -> usize {
        self.known.load(Ordering::Relaxed)
    }

    /// Takes a last sample, and returns all samples.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread has panicked.
    pub fn finish(mut self) -> Result<History> {
        drop(self.stop.take());
        let thread = self.thread.take().context("the sampler has ended")?;
        thread.join().ok().context("the sampler has panicked")
    }
}

/// Returns the selector of the containers of pods, without their sandboxes.
fn filter(namespace: &str) -> String {
    format!(
        "labels.\"io.kubernetes.pod.namespace\"=={namespace},labels.\"io.cri-containerd.kind\"==container"
    )
}

struct Sampling {
    nodes: Vec<Node>,
    filter: String,
    /// The containers that a sample has contained, by their ID.
    labels: BTreeMap<String, Container>,
    /// Their number, for other threads.
    known: Arc<AtomicUsize>,
    history: History,
    start: Instant,
}

impl Sampling {
    fn sample_all(&mut self) {
        for node in self.nodes.clone() {
            // A killed node has no containerd. The history records the time without samples.
            let _ = self.sample(&node);
        }
    }

    fn sample(&mut self, node: &Node) -> Result<()> {
        let ids = node.exec("ctr", &["containers", "list", "--quiet", &self.filter])?;
        let tasks = tasks(node)?;
        let mut containers = Vec::new();
        for id in ids.split_whitespace() {
            if !self.labels.contains_key(id) {
                // The kubelet may have removed the container since the list.
                let Ok(info) = node.exec("ctr", &["containers", "info", id]) else {
                    continue;
                };
                self.labels.insert(id.to_owned(), container(&info)?);
            }
            let task = tasks.get(id).cloned();
            containers.extend(self.labels.get(id).map(|it| (it.clone(), task)));
        }
        self.known.store(self.labels.len(), Ordering::Relaxed);
        self.history
            .record(node.name(), self.start.elapsed(), containers);

        Ok(())
    }
}

/// The part of the output of `ctr containers info` that is read.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Info {
    #[serde(rename = "ID")]
    id: String,
    labels: BTreeMap<String, String>,
    created_at: String,
}

fn container(info: &str) -> Result<Container> {
    let info: Info = serde_json::from_str(info).context("ctr has printed no container")?;
    let label = |key: &str| {
        let label = info.labels.get(&format!("io.kubernetes.{key}"));
        label
            .cloned()
            .with_context(|| format!("container {} has no {key}", info.id))
    };

    Ok(Container {
        pod: label("pod.name")?,
        uid: label("pod.uid")?,
        name: label("container.name")?,
        created: info.created_at,
        id: info.id,
    })
}

/// Returns the running tasks of a node by the ID of their container.
fn tasks(node: &Node) -> Result<BTreeMap<String, Task>> {
    let pid = node.pid().context("the node does not run")?;
    let list = node.exec("ctr", &["tasks", "list"])?;
    let mut tasks = BTreeMap::new();
    for line in list.lines().skip(1) {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [id, task, status] = fields[..] else {
            continue;
        };
        ensure!(
            task.bytes().all(|it| it.is_ascii_digit()),
            "ctr has printed `{line}`"
        );
        // The process IDs are those of the node.
        let path = format!("/proc/{pid}/root/proc/{task}/stat");
        let stat = fs::read_to_string(path).unwrap_or_default();
        if let Some(started) = start_time(&stat).filter(|_| status == "RUNNING") {
            let task = Task {
                pid: task.to_owned(),
                started,
            };
            tasks.insert(id.to_owned(), task);
        }
    }

    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_the_labels_of_its_pod() {
        let info = r#"{"ID": "c0ffee", "CreatedAt": "2026-01-02T03:04:05Z", "Image": "tools", "Labels": {
            "io.kubernetes.pod.name": "web-0", "io.kubernetes.pod.uid": "u-0", "io.kubernetes.container.name": "web"}}"#;

        let container = container(info).unwrap();

        let expected = Container {
            id: "c0ffee".to_owned(),
            pod: "web-0".to_owned(),
            uid: "u-0".to_owned(),
            name: "web".to_owned(),
            created: "2026-01-02T03:04:05Z".to_owned(),
        };
        assert_eq!(container, expected);
    }
}
