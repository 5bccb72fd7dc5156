//! How the machine talks to a node's process 1: one request and one answer, a line of
//! JSON each, over a Unix socket.

use crate::place;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How long process 1 may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest line, in bytes: neither side sends more.
pub(super) const LINE_MAX: u64 = 64 * 1024;

/// What process 1 is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Tell of all components.
    Status,
    /// Send a component a signal, by number; it is started again if it ends of it.
    Signal(String, i32),
    /// Ask a component to end, and do not start it again.
    Stop(String),
    /// Start a stopped component.
    Start(String),
}

/// What process 1 says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// All components, in the order in which they were started.
    Components(Vec<State>),
    /// It could not be done.
    Error(String),
}

/// One component now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Its name.
    pub name: String,
    /// Its process id inside the node, while it runs.
    pub pid: Option<i32>,
    /// How often it was started.
    pub starts: u32,
    /// Whether it was asked to stop.
    pub stopped: bool,
}

/// Where the socket of a node is: outside its folder, since the path of a socket must
/// be shorter than 108 bytes.
pub fn socket(node: &str) -> PathBuf {
    place::state().join("run").join(node)
}

/// Asks process 1 of `node`, and returns the components.
///
/// # Errors
///
/// Returns an error if the node does not run, or what process 1 says is wrong.
pub fn ask(node: &str, request: &Request) -> Result<Vec<State>> {
    let mut stream = UnixStream::connect(socket(node))
        .with_context(|| format!("node {node} does not answer"))?;
    stream
        .set_read_timeout(Some(PATIENCE))
        .context("failed to set a limit on waiting")?;
    let mut line = serde_json::to_string(request).context("a request is JSON")?;
    line.push('\n');
    stream
        .write_all(line.as_bytes())
        .with_context(|| format!("failed to ask node {node}"))?;

    let mut answer = String::new();
    BufReader::new(std::io::Read::take(stream, LINE_MAX))
        .read_line(&mut answer)
        .with_context(|| format!("node {node} gave no answer"))?;
    match serde_json::from_str(&answer).context("process 1 gave no sensible answer")? {
        Answer::Components(states) => Ok(states),
        Answer::Error(error) => bail!("node {node}: {error}"),
    }
}
