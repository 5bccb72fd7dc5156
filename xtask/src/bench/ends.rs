//! The two ends of a tunnel, and the tools that run there.

use super::metric::{Tunnel, Underlay};
use ::tests::lab::netns::Netns;
use ::tests::lab::wait;
use anyhow::{Context as _, Result, bail};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A tunnel that is up: where its ends are, and what carries it.
#[derive(Debug)]
pub(super) struct Ends {
    /// Which one it is.
    pub(super) tunnel: Tunnel,
    /// Over which network it runs.
    pub(super) underlay: Underlay,
    /// Where the client runs.
    pub(super) near: Netns,
    /// Where the server runs.
    pub(super) far: Netns,
    /// The server's address, as the client sees it.
    pub(super) far_address: Ipv4Addr,
    /// The processes that encrypt and decrypt: the client's, the server's.
    pub(super) gateways: [u32; 2],
}

impl Ends {
    /// Runs `iperf3` for `seconds` and returns its JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if server or client fail.
    pub(super) fn iperf3(&self, arguments: &[&str], seconds: u32) -> Result<String> {
        let _server = Server::start(&self.far)?;
        let time = seconds.to_string();
        let limit = (seconds + SLACK_SECONDS).to_string();
        let address = self.far_address.to_string();
        let mut all = vec![
            limit.as_str(),
            "iperf3",
            "--client",
            &address,
            "--json",
            "--time",
            &time,
        ];
        all.extend(arguments);

        // iperf3 says in its JSON what failed, so its exit code tells nothing more.
        let output = self.near.output("timeout", &all, "")?;
        if output.stdout.is_empty() {
            bail!(
                "iperf3 {} failed ({}): {}",
                arguments.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim(),
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `ping` with a packet every `interval` for `duration`.
    ///
    /// # Errors
    ///
    /// Returns an error if `ping` cannot run; unanswered packets are none.
    pub(super) fn ping(&self, interval: Duration, duration: Duration) -> Result<String> {
        let count = duration.as_micros() / interval.as_micros().max(1);
        let count = count.max(1).to_string();
        let interval = format!("{:.3}", interval.as_secs_f64());
        let address = self.far_address.to_string();
        let arguments = ["-n", "-i", &interval, "-c", &count, "-W", "1", &address];

        let output = self.near.output("ping", &arguments, "")?;
        if output.stdout.is_empty() {
            bail!(
                "ping failed ({}): {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim(),
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until the far end answers.
    ///
    /// # Errors
    ///
    /// Returns an error that names both ends if it does not answer in time.
    pub(super) fn wait_until_up(&self, deadline: Duration) -> Result<()> {
        let what = format!(
            "{} to answer at {} through {}",
            self.far.name(),
            self.far_address,
            self.tunnel.name()
        );
        let address = self.far_address.to_string();

        wait::until(deadline, &what, || {
            let ping = self
                .near
                .output("ping", &["-n", "-c1", "-W1", &address], "")?;
            Ok(ping.status.success())
        })
    }
}

/// What the end of a measurement may take longer than the measurement: closing
/// behind a full queue, on a machine that has no core left.
const SLACK_SECONDS: u32 = 20;

/// An iperf3 server for one client.
#[derive(Debug)]
struct Server(Child);

impl Server {
    fn start(netns: &Netns) -> Result<Self> {
        let mut command = Command::new("iperf3");
        command
            .args(["--server", "--one-off"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = Self(netns.start(&mut command)?);

        wait::until(START_DEADLINE, "the iperf3 server to listen", || {
            if let Some(status) = server.0.try_wait()? {
                bail!("the iperf3 server ended at once ({status})");
            }
            let listening = netns.exec("ss", &["-Hltn", "sport", "=", PORT], "")?;
            Ok(!listening.trim().is_empty())
        })?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Ends a process, if it still runs, and forgets it.
pub(super) fn end(child: &mut Child) {
    // Both fail only if the process has ended, which is the purpose.
    let _ = child.kill();
    let _ = child.wait();
}

/// Where iperf3 listens if not told otherwise.
const PORT: &str = "5201";

const START_DEADLINE: Duration = Duration::from_secs(5);

/// Tells which version of a tool is used: the first line that it prints.
///
/// # Errors
///
/// Returns an error if it cannot run.
pub(super) fn version(program: &str) -> Result<String> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .with_context(|| {
            format!("failed to run {program}; `cargo xtask setup` installs the tools")
        })?;
    let text = String::from_utf8_lossy(&output.stdout);

    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}
