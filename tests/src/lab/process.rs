//! Processes in the namespaces of a laboratory.

use super::netns::Netns;
use super::wait;
use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// A process that can be killed and restarted. It is killed when this is dropped,
/// unless it was [released](Process::release).
#[derive(Debug)]
pub struct Process {
    name: String,
    netns: Netns,
    program: PathBuf,
    args: Vec<OsString>,
    log: PathBuf,
    child: Option<Child>,
}

/// Resources that a process has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory now, in bytes.
    pub resident_bytes: u64,
    /// The peak of resident memory, in bytes.
    pub peak_bytes: u64,
    /// CPU time, user and system.
    pub processor: Duration,
}

impl Process {
    /// Describes a process without starting it; its output goes to the file `log`.
    pub fn new<A: Into<OsString>>(
        name: impl Into<String>,
        netns: &Netns,
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = A>,
        log: impl Into<PathBuf>,
    ) -> Self {
        Self {
            name: name.into(),
            netns: netns.clone(),
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            log: log.into(),
            child: None,
        }
    }

    /// Its name; that of a gateway or route agent is its instance name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds an argument for the next start.
    pub fn push_arg(&mut self, arg: impl Into<OsString>) {
        self.args.push(arg.into());
    }

    /// Starts it unless it runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the program or the log file is missing.
    pub fn start(&mut self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }

        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("failed to open {:?}", self.log))?;
        let errors = log.try_clone().context("failed to share a log file")?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors);
        self.child = Some(self.netns.start(&mut command)?);

        Ok(())
    }

    /// Returns whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Its process id, while it runs.
    pub fn pid(&mut self) -> Option<u32> {
        self.is_running()
            .then(|| self.child.as_ref().map(Child::id))
            .flatten()
    }

    /// Kills it (SIGKILL), and waits for its end.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be waited for.
    pub fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        child.kill().context("failed to kill")?;
        child.wait().context("failed to wait")?;

        Ok(())
    }

    /// Sends SIGTERM, and waits for its end.
    ///
    /// # Errors
    ///
    /// Returns an error if it did not run or does not end in time.
    pub fn stop(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        let Some(child) = self.child.as_mut() else {
            bail!("{} is not running", self.name);
        };
        let pid = Pid::from_raw(child.id().cast_signed());
        kill(pid, Signal::SIGTERM).with_context(|| format!("failed to stop {}", self.name))?;

        wait::value(timeout, &what, || Ok(child.try_wait()?))
    }

    /// Sends SIGTERM, and returns at once.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not run.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Suspends it (SIGSTOP) until [`Process::resume`].
    ///
    /// # Errors
    ///
    /// Returns an error if it does not run.
    pub fn hang(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Resumes it (SIGCONT).
    ///
    /// # Errors
    ///
    /// Returns an error if it does not run.
    pub fn resume(&mut self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        let pid = self.pid().context("the process is not running")?;
        kill(Pid::from_raw(pid.cast_signed()), signal)
            .with_context(|| format!("failed to send {signal} to {}", self.name))
    }

    /// Kills it and starts it again.
    ///
    /// # Errors
    ///
    /// As [`Process::kill`] and [`Process::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.start()
    }

    /// Leaves it running after this value is dropped.
    pub fn release(&mut self) {
        self.child = None;
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The file with its output.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The resources that it has used so far.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not run.
    pub fn usage(&mut self) -> Result<Usage> {
        let pid = self.pid().context("the process is not running")?;
        usage(pid).with_context(|| format!("failed to read the usage of {}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::warn!(name = self.name, %error, "failed to end a process");
        }
    }
}

fn usage(pid: u32) -> Result<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let bytes = |key: &'static str| -> Result<u64> {
        let kilobytes: u64 = status
            .lines()
            .find_map(|line| line.strip_prefix(key)?.split_whitespace().next())
            .context(key)?
            .parse()?;
        Ok(kilobytes << 10)
    };

    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may contain spaces; fields are counted after it.
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();

    Ok(Usage {
        resident_bytes: bytes("VmRSS:")?,
        peak_bytes: bytes("VmHWM:")?,
        processor: Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND),
    })
}

/// `USER_HZ`, which is 100 on every architecture that Liqo supports.
const TICKS_PER_SECOND: u64 = 100;
