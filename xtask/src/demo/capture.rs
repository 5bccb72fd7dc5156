//! Captures packets at a device with tcpdump, whose results do not depend on this project's code.

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tests::lab::wait;

/// A running tcpdump, which is killed on drop.
#[derive(Debug)]
pub(super) struct Capture {
    tcpdump: Child,
    lines: Option<JoinHandle<Vec<String>>>,
}

/// Time limit for tcpdump to end after SIGINT.
const END_TIMEOUT: Duration = Duration::from_secs(5);

impl Capture {
    /// Starts a capture of the first packet on `device` that matches `filter` (pcap-filter(7)).
    /// `netns` is the name of the device's network namespace. The capture has started when this
    /// function returns.
    ///
    /// # Errors
    ///
    /// Returns tcpdump's standard error if it does not start.
    pub(super) fn first(
        netns: &str,
        device: &str,
        filter: &str,
        arguments: &[&str],
    ) -> Result<Self> {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", netns, "tcpdump", "-i", device])
            .args(["-n", "-t", "-l", "--immediate-mode", "-c", "1"])
            .args(arguments)
            .arg(filter)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut tcpdump = command.spawn().context("failed to start tcpdump")?;

        let mut messages = String::new();
        let mut errors = BufReader::new(tcpdump.stderr.take().context("no standard error")?);
        while !messages.contains("listening on") {
            if errors.read_line(&mut messages).unwrap_or_default() == 0 {
                bail!("tcpdump on {device} in {netns}: {}", messages.trim());
            }
        }
        // The rest of standard error is read and discarded, because tcpdump ends when it writes to
        // a closed pipe.
        thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let output = tcpdump.stdout.take().context("no standard output")?;

        Ok(Self {
            tcpdump,
            lines: Some(thread::spawn(move || read(output))),
        })
    }

    /// Ends the capture, and returns tcpdump's output: the line of the first packet, or no line if
    /// no packet matched.
    ///
    /// # Errors
    ///
    /// Returns an error if tcpdump does not end in time.
    pub(super) fn finish(mut self) -> Result<Vec<String>> {
        let pid = i32::try_from(self.tcpdump.id()).context("not a process id")?;
        // tcpdump prints its buffered packets when it receives SIGINT.
        if self.tcpdump.try_wait()?.is_none() {
            kill(Pid::from_raw(pid), Signal::SIGINT).context("failed to interrupt tcpdump")?;
        }
        let tcpdump = &mut self.tcpdump;
        wait::until(END_TIMEOUT, "tcpdump to end", || {
            Ok(tcpdump.try_wait()?.is_some())
        })?;

        let lines = self.lines.take().context("`finish` consumes the capture")?;

        Ok(lines
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Both calls fail only if tcpdump has already ended.
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
    }
}

fn read(output: ChildStdout) -> Vec<String> {
    BufReader::new(output)
        .lines()
        .map_while(Result::ok)
        .map(|line| line.trim().to_owned())
        // tcpdump prints an empty line when it receives SIGINT.
        .filter(|line| !line.is_empty())
        .collect()
}
