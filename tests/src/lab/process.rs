//! Starts, stops and measures processes in the namespaces of a laboratory.

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

/// A process that can be killed and restarted. Dropping the value kills the process, unless
/// [`Process::release`] was called.
#[derive(Debug)]
pub struct Process {
    name: String,
    netns: Netns,
    program: PathBuf,
    args: Vec<OsString>,
    log: PathBuf,
    child: Option<Child>,
}

/// Resources that a process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Current resident memory in bytes.
    pub resident_bytes: u64,
    /// Maximum resident memory since the start, in bytes.
    pub peak_bytes: u64,
    /// Sum of user and system CPU time since the start.
    pub processor: Duration,
}

impl Process {
    /// Describes a process without starting it. The process will write its standard output and
    /// standard error to the file `log`.
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

    /// Returns the name of the process. For gateways and route agents, this is the instance name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Appends a command-line argument, which takes effect at the next start.
    pub fn push_arg(&mut self, arg: impl Into<OsString>) {
        self.args.push(arg.into());
    }

    /// Starts the process, unless it is running.
    ///
    /// # Errors
    ///
    /// Returns an error if the program is missing, or if the log file cannot be opened.
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

    /// Returns whether the process is running.
    pub fn is_running(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Returns the process id, `None` if the process is not running.
    pub fn pid(&mut self) -> Option<u32> {
        self.is_running()
            .then(|| self.child.as_ref().map(Child::id))
            .flatten()
    }

    /// Sends SIGKILL, and waits until the process has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses to signal or to wait.
    pub fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        child.kill().context("failed to kill")?;
        child.wait().context("failed to wait")?;

        Ok(())
    }

    /// Sends SIGTERM, and waits until the process has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the process was not started, or does not end within `timeout`.
    pub fn stop(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        let Some(child) = self.child.as_mut() else {
            bail!("{} is not running", self.name);
        };
        let pid = Pid::from_raw(child.id().cast_signed());
        kill(pid, Signal::SIGTERM).with_context(|| format!("failed to stop {}", self.name))?;

        wait::value(timeout, &what, || Ok(child.try_wait()?))
    }

    /// Sends SIGTERM, and returns without waiting.
    ///
    /// # Errors
    ///
    /// Returns an error if the process is not running.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Suspends the process (SIGSTOP) until [`Process::resume`] is called.
    ///
    /// # Errors
    ///
    /// Returns an error if the process is not running.
    pub fn hang(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Resumes a suspended process (SIGCONT).
    ///
    /// # Errors
    ///
    /// Returns an error if the process is not running.
    pub fn resume(&mut self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        let pid = self.pid().context("the process is not running")?;
        kill(Pid::from_raw(pid.cast_signed()), signal)
            .with_context(|| format!("failed to send {signal} to {}", self.name))
    }

    /// Kills the process, and starts it again.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Process::kill`] and [`Process::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.start()
    }

    /// Keeps the process running after this value is dropped.
    pub fn release(&mut self) {
        self.child = None;
    }

    /// Returns the output that the process has written so far.
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Returns the path of the file with the output of the process.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Returns the memory and the CPU time that the process uses.
    ///
    /// # Errors
    ///
    /// Returns an error if the process is not running.
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
    // The second field is the name in parentheses, which may contain spaces. Parse the fields after
    // it.
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

/// Unit of CPU times in `/proc`: `USER_HZ`, which is 100 on every architecture that Liqo supports.
const TICKS_PER_SECOND: u64 = 100;
