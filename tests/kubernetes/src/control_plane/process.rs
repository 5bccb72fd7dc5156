//! Processes that end with the process that started them, even if that process is killed.

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;

/// The number of lines of a log that an error contains.
const LOG_LINES: usize = 5;

/// A process that can be ended, suspended and started again. Dropping the value kills the process.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    program: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Describes a process without starting it. The process will append its output to `log`.
    pub(super) fn new(
        name: &'static str,
        program: PathBuf,
        args: Vec<String>,
        log: PathBuf,
    ) -> Self {
        Self {
            name,
            program,
            args,
            log,
            child: None,
        }
    }

    /// Starts the process, unless it is running.
    ///
    /// # Errors
    ///
    /// Returns an error if the program is missing, or if the log cannot be opened.
    pub(super) fn start(&mut self) -> Result<()> {
        if self.check().is_ok() {
            return Ok(());
        }
        ensure!(
            self.program.is_file(),
            "{} is missing: build it by `cargo xtask kubernetes-binaries`",
            self.program.display()
        );
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("failed to open {}", self.log.display()))?;
        let errors = log.try_clone().context("failed to share a log")?;
        let words = ["--pdeathsig", "KILL", "--"].map(OsString::from);
        let mut command = Command::new("setpriv");
        command
            .args(words)
            .arg(&self.program)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            // Ctrl-C on a terminal signals only the process group of the tests.
            .process_group(0);
        let child = spawn(command).with_context(|| format!("failed to start {}", self.name))?;
        self.child = Some(child);

        Ok(())
    }

    /// Checks that the process is running.
    ///
    /// # Errors
    ///
    /// Returns an error with the end of the log if the process is not running.
    pub(super) fn check(&mut self) -> Result<()> {
        let Some(child) = &mut self.child else {
            bail!("{} is not running", self.name);
        };
        match child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => bail!("{} ended ({status}): {}", self.name, self.log_end()),
            Err(error) => Err(error).context("failed to get the status of a process"),
        }
    }

    /// Kills the process, and waits until it has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses to signal the process.
    pub(super) fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        // SIGKILL also ends a suspended process.
        child
            .kill()
            .and_then(|()| child.wait())
            .with_context(|| format!("failed to end {}", self.name))?;

        Ok(())
    }

    /// Suspends all threads of the process, and waits until they are suspended.
    ///
    /// # Errors
    ///
    /// Returns an error if the process is not running.
    pub(super) fn pause(&mut self) -> Result<()> {
        let pid = self.signal(Signal::SIGSTOP)?;
        let status = waitpid(pid, Some(WaitPidFlag::WUNTRACED))
            .with_context(|| format!("failed to wait for {}", self.name))?;
        ensure!(
            matches!(status, WaitStatus::Stopped(..)),
            "{} ended: {status:?}",
            self.name
        );

        Ok(())
    }

    /// Resumes a suspended process.
    ///
    /// # Errors
    ///
    /// Returns an error if the process is not running.
    pub(super) fn resume(&mut self) -> Result<()> {
        self.signal(Signal::SIGCONT).map(drop)
    }

    fn signal(&mut self, signal: Signal) -> Result<Pid> {
        self.check()?;
        let child = self.child.as_ref().context("the process is running")?;
        let pid = Pid::from_raw(child.id().cast_signed());
        kill(pid, signal).with_context(|| format!("failed to send {signal} to {}", self.name))?;

        Ok(pid)
    }

    fn log_end(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let mut lines: Vec<_> = log.lines().rev().take(LOG_LINES).collect();
        lines.reverse();
        lines.join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("error: {error:#}");
        }
    }
}

/// A command to start, and the channel for its result.
type Job = (Command, mpsc::SyncSender<io::Result<Child>>);

/// Starts a command on a thread that lives as long as this process. The parent death signal of
/// prctl(2) is sent when the thread that started a child ends, so the threads of tests cannot start
/// the processes.
fn spawn(command: Command) -> Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, reply) in jobs {
                // The receiver waits for the reply, so it exists.
                let _ = reply.send(command.spawn());
            }
        });
        sender
    });
    let (reply, child) = mpsc::sync_channel(1);
    spawner
        .send((command, reply))
        .context("the thread that starts processes has ended")?;

    Ok(child
        .recv()
        .context("the thread that starts processes has ended")??)
}
