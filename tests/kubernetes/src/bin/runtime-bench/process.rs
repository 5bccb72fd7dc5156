//! A measured process: its output, memory, CPU time and connections.

use anyhow::{Context as _, Result, bail};
use kubernetes_lab::wait::SOON;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// State of an established connection in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// A process that is measured. Dropping the value kills it.
pub(crate) struct Process {
    child: Child,
    pid: u32,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) started: Instant,
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) peak: u64,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let program = format!("{}", command.as_std().get_program().display());
        let started = Instant::now();
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.with_context(|| format!("failed to start {program}"))?;
        let output = child.stdout.take().context("the output is a pipe")?;

        Ok(Self {
            pid: child.id().context("the process has ended")?,
            child,
            lines: BufReader::new(output).lines(),
            started,
        })
    }

    /// Waits for a line of the output that starts with `prefix`.
    pub(crate) async fn until_prints(&mut self, prefix: &str) -> Result<()> {
        let found = async {
            while let Some(line) = self.lines.next_line().await? {
                if line.starts_with(prefix) {
                    return Ok(());
                }
            }
            bail!("the process has ended")
        };
        let found = timeout(SOON, found).await;
        found.with_context(|| format!("no line `{prefix}`"))?
    }

    /// Asks the process to stop, and waits until it has.
    pub(crate) async fn stop(mut self) -> Result<()> {
        kill(Pid::from_raw(self.pid.cast_signed()), Signal::SIGTERM)
            .context("failed to send a signal")?;
        let ended = timeout(SOON, self.child.wait()).await;
        ended.context("the process does not stop")??;

        Ok(())
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let text = self.read("status")?;
        let bytes = |key: &'static str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            let kilobytes = line.and_then(|line| line.split_whitespace().next());
            Ok(kilobytes.context(key)?.parse::<u64>()? << 10)
        };

        Ok(Memory {
            resident: bytes("VmRSS:")?,
            peak: bytes("VmHWM:")?,
        })
    }

    /// Returns the CPU time of all threads, in user and kernel mode.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        let mut nanoseconds = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            let spent = text.split_whitespace().next();
            nanoseconds += spent.context("schedstat is empty")?.parse::<u64>()?;
        }

        Ok(Duration::from_nanos(nanoseconds))
    }

    /// Returns the number of established TCP connections to this port.
    pub(crate) fn connections(&self, port: u16) -> Result<usize> {
        let mut own = BTreeSet::new();
        for entry in fs::read_dir(format!("/proc/{}/fd", self.pid))? {
            // A file may be closed meanwhile.
            let Ok(target) = fs::read_link(entry?.path()) else {
                continue;
            };
            own.insert(target.to_string_lossy().into_owned());
        }
        let table = fs::read_to_string("/proc/net/tcp")?;
        let remote = format!(":{port:04X}");
        let is_own = |line: &&str| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let [_, _, peer, state, _, _, _, _, _, inode, ..] = fields[..] else {
                return false;
            };
            peer.ends_with(&remote)
                && state == ESTABLISHED
                && own.contains(&format!("socket:[{inode}]"))
        };

        Ok(table.lines().filter(is_own).count())
    }

    fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid)).context("the process has ended")
    }
}
