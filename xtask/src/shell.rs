//! Runs other programs, and ends them when a signal stops this process.
//!
//! Each program runs in its own process group. So Ctrl-C, SIGTERM and SIGHUP reach only this
//! process. This process then ends the program's group. The caller receives [`Interrupted`], and
//! can clean up.

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal as UnixSignal, killpg};
use nix::unistd::Pid;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;
use tokio::process::Child;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};

/// Time between SIGTERM and SIGKILL for an interrupted program. The laboratories remove their
/// namespaces within a second.
const GRACE: Duration = Duration::from_secs(3);

/// Time between SIGTERM and SIGKILL for a program that must end other programs and remove clusters.
const GRACE_CLEAN_UP: Duration = Duration::from_secs(60);

/// The error of an operation that SIGINT, SIGTERM or SIGHUP has interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Runs other programs, one at a time.
#[derive(Debug)]
pub(crate) struct Shell {
    runtime: Runtime,
    stops: [Signal; 3],
}

impl Shell {
    /// Installs handlers for SIGINT, SIGTERM and SIGHUP.
    pub(crate) fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to start a runtime")?;
        let _entered = runtime.enter();
        let stops = [
            signal(SignalKind::interrupt()),
            signal(SignalKind::terminate()),
            signal(SignalKind::hangup()),
        ];
        let [interrupt, terminate, hangup] = stops;
        let stops = [interrupt?, terminate?, hangup?];
        drop(_entered);

        Ok(Self { runtime, stops })
    }

    /// Runs a program until it ends, and returns its exit status.
    ///
    /// # Errors
    ///
    /// Returns [`Interrupted`] if a signal arrives before the program ends. Returns an error if
    /// the program cannot be started.
    pub(crate) fn status(&mut self, command: Command) -> Result<ExitStatus> {
        self.status_within(command, GRACE)
    }

    fn status_within(&mut self, mut command: Command, grace: Duration) -> Result<ExitStatus> {
        command.stdin(Stdio::null());
        let Self { runtime, stops } = self;
        runtime.block_on(async {
            let mut child = spawn(command)?;
            tokio::select! {
                biased;
                () = any(stops) => {
                    end(&mut child, grace).await;
                    Err(Interrupted.into())
                }
                status = child.wait() => status.context("failed to wait for a program"),
            }
        })
    }

    /// Runs a program, and treats a non-zero exit status as an error.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Shell::status`], and an error if the program fails.
    pub(crate) fn run(&mut self, command: Command) -> Result<()> {
        let shown = show(&command);
        let status = self.status(command)?;
        success(&shown, status)
    }

    /// Runs a program like [`Shell::run`], but gives an interrupted program more time to clean up.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Shell::run`].
    pub(crate) fn run_with_clean_up(&mut self, command: Command) -> Result<()> {
        let shown = show(&command);
        let status = self.status_within(command, GRACE_CLEAN_UP)?;
        success(&shown, status)
    }

    /// Runs a program, and returns its standard output, its standard error and its exit status.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Shell::status`].
    pub(crate) fn output(&mut self, mut command: Command) -> Result<Output> {
        command.stderr(Stdio::piped());
        self.capture(command)
    }

    /// Runs a program, and returns its standard output and its exit status. The program's standard
    /// error goes to the terminal.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Shell::status`].
    pub(crate) fn capture(&mut self, mut command: Command) -> Result<Output> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let Self { runtime, stops } = self;
        runtime.block_on(async {
            let child = spawn(command)?;
            let group = child.id();
            tokio::select! {
                biased;
                () = any(stops) => {
                    kill_group(group, UnixSignal::SIGKILL);
                    Err(Interrupted.into())
                }
                output = child.wait_with_output() => output.context("failed to read from a program"),
            }
        })
    }
}

fn success(shown: &str, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }

    Ok(())
}

/// Formats a command as a user would type it.
pub(crate) fn show(command: &Command) -> String {
    let environment = command.get_envs().filter_map(|(name, value)| {
        value.map(|value| format!("{}={}", name.display(), value.display()))
    });
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy().into_owned());

    environment
        .chain([program])
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

fn spawn(mut command: Command) -> Result<Child> {
    use std::os::unix::process::CommandExt as _;

    command.process_group(0);
    let program = command.get_program().to_string_lossy().into_owned();

    tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("failed to start {program}"))
}

async fn any(stops: &mut [Signal; 3]) {
    let [interrupt, terminate, hangup] = stops;
    tokio::select! {
        _ = interrupt.recv() => (),
        _ = terminate.recv() => (),
        _ = hangup.recv() => (),
    }
}

async fn end(child: &mut Child, grace: Duration) {
    let group = child.id();
    kill_group(group, UnixSignal::SIGTERM);
    // The result is ignored, because the rest of the process group is killed in any case.
    let _ = timeout(grace, child.wait()).await;
    kill_group(group, UnixSignal::SIGKILL);
    let _ = timeout(GRACE, child.wait()).await;
    // Wait until all processes of the group have ended. Until then, one of them may hold a
    // laboratory's lock, so the caller cannot clean up the laboratory.
    let _ = timeout(GRACE, async {
        while exists(group) {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

fn exists(group: Option<u32>) -> bool {
    group
        .and_then(|leader| i32::try_from(leader).ok())
        .is_some_and(|leader| killpg(Pid::from_raw(leader), None).is_ok())
}

fn kill_group(leader: Option<u32>, signal: UnixSignal) {
    if let Some(leader) = leader.and_then(|leader| i32::try_from(leader).ok()) {
        // The call fails only if all processes of the group have already ended.
        let _ = killpg(Pid::from_raw(leader), signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_named_with_its_arguments() {
        let mut command = Command::new("/bin/false");
        command.arg("now");

        let error = Shell::new().unwrap().run(command).unwrap_err();

        assert_eq!(
            error.to_string(),
            "`false now` failed: exit status: 1",
            "the reader must be able to repeat the command"
        );
    }

    #[test]
    fn output_is_returned_even_if_the_program_fails() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo seen; exit 3"]);

        let output = Shell::new().unwrap().output(command).unwrap();

        assert_eq!(output.stdout, b"seen\n");
        assert_eq!(output.status.code(), Some(3));
    }
}
