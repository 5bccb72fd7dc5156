//! The protocol between the machine and process 1 of a node. A request is a line of JSON on a Unix
//! socket. The reply is another line of JSON.

use crate::place;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The time-out of a reply.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of a line, in bytes.
pub(super) const LINE_MAX: u64 = 64 * 1024;

/// A request to process 1 of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Returns the states of all components.
    Status,
    /// Sends a signal, given by its number, to a component. Process 1 restarts the component if it
    /// ends.
    Signal(String, i32),
    /// Stops a component, which process 1 does not restart.
    Stop(String),
    /// Starts a component that was stopped.
    Start(String),
}

/// A reply of process 1 of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The states of all components, in the order of their start.
    Components(Vec<State>),
    /// The request failed.
    Error(String),
}

/// The state of a component in a reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The name of the component, such as `kubelet`.
    pub name: String,
    /// The process id inside the node. `None` if the component does not run.
    pub pid: Option<i32>,
    /// The number of times that the component was started.
    pub starts: u32,
    /// Whether a request has stopped the component.
    pub stopped: bool,
}

/// Returns the path of a node's control socket. It is not in the node's folder, since the path of a
/// socket must be shorter than 108 bytes.
pub fn socket(node: &str) -> PathBuf {
    place::state().join("run").join(node)
}

/// Sends a request to process 1 of `node`, and returns the states of its components.
///
/// # Errors
///
/// Returns an error if the node does not run, or if process 1 refuses the request.
pub fn send(node: &str, request: &Request) -> Result<Vec<State>> {
    let mut stream = UnixStream::connect(socket(node))
        .with_context(|| format!("process 1 of {node} is unreachable"))?;
    stream
        .set_read_timeout(Some(TIMEOUT))
        .context("failed to set a time-out")?;
    let mut line = serde_json::to_string(request).context("a request is JSON")?;
    line.push('\n');
    stream
        .write_all(line.as_bytes())
        .with_context(|| format!("failed to send a request to process 1 of {node}"))?;

    let mut reply = String::new();
    BufReader::new(std::io::Read::take(stream, LINE_MAX))
        .read_line(&mut reply)
        .with_context(|| format!("process 1 of {node} sent no reply"))?;
    match serde_json::from_str(&reply).context("the reply of process 1 is invalid")? {
        Reply::Components(states) => Ok(states),
        Reply::Error(error) => bail!("node {node}: {error}"),
    }
}
