//! What passes a device, as tcpdump sees it: a witness that is not ours.

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tests::lab::wait;

/// A capture in progress; it ends when dropped.
#[derive(Debug)]
pub(super) struct Capture {
    tcpdump: Child,
    lines: Option<JoinHandle<Vec<String>>>,
}

/// How long tcpdump may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

impl Capture {
    /// Captures on `device` in the network namespace `netns` the first packet that
    /// matches `filter` (pcap-filter(7)), and returns once every later one is seen.
    ///
    /// # Errors
    ///
    /// Returns what tcpdump says if it does not start.
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

        let mut said = String::new();
        let mut errors = BufReader::new(tcpdump.stderr.take().context("no standard error")?);
        while !said.contains("listening on") {
            if errors.read_line(&mut said).unwrap_or_default() == 0 {
                bail!("tcpdump on {device} in {netns}: {}", said.trim());
            }
        }
        // Nobody reads it, but a closed pipe would end tcpdump.
        thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let output = tcpdump.stdout.take().context("no standard output")?;

        Ok(Self {
            tcpdump,
            lines: Some(thread::spawn(move || read(output))),
        })
    }

    /// Ends the capture and returns one line for each packet.
    ///
    /// # Errors
    ///
    /// Returns an error if tcpdump does not end.
    pub(super) fn finish(mut self) -> Result<Vec<String>> {
        let pid = i32::try_from(self.tcpdump.id()).context("not a process id")?;
        // Interrupted, it writes out what it still holds.
        if self.tcpdump.try_wait()?.is_none() {
            kill(Pid::from_raw(pid), Signal::SIGINT).context("failed to interrupt tcpdump")?;
        }
        let tcpdump = &mut self.tcpdump;
        wait::until(PATIENCE, "tcpdump to end", || {
            Ok(tcpdump.try_wait()?.is_some())
        })?;

        let lines = self.lines.take().context("lines are collected once")?;

        Ok(lines
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
    }
}

fn read(output: ChildStdout) -> Vec<String> {
    BufReader::new(output)
        .lines()
        .map_while(Result::ok)
        .map(|line| line.trim().to_owned())
        // tcpdump ends the line of an interrupted terminal, even without one.
        .filter(|line| !line.is_empty())
        .collect()
}
