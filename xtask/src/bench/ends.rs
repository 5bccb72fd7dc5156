//! The two ends of an established tunnel, and calls of the measuring tools in their namespaces.

use super::metric::{Tunnel, Underlay};
use ::tests::lab::netns::Netns;
use ::tests::lab::wait;
use anyhow::{Context as _, Result, bail};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The two ends of an established tunnel.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) tunnel: Tunnel,
    pub(super) underlay: Underlay,
    /// The namespace of the measuring client.
    pub(super) client: Netns,
    /// The namespace of the measuring server.
    pub(super) server: Netns,
    /// The destination address with which the client reaches the server through the tunnel.
    pub(super) server_address: Ipv4Addr,
    /// The process ids of the gateways, which encrypt and decrypt: first those of the client's
    /// cluster, then those of the server's.
    pub(super) gateways: [Vec<u32>; 2],
}

impl Ends {
    /// Runs `iperf3` for `seconds` and returns its JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if the iperf3 server or client fails.
    pub(super) fn iperf3(&self, arguments: &[&str], seconds: u32) -> Result<String> {
        let _server = Server::start(&self.server)?;
        let time = seconds.to_string();
        let limit = (seconds + SLACK_SECONDS).to_string();
        let address = self.server_address.to_string();
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

        // iperf3 reports errors in its JSON, which the caller parses. So the exit code is ignored.
        let output = self.client.output("timeout", &all, "")?;
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

    /// Runs `ping` for `duration`, with one echo request per `interval`.
    ///
    /// # Errors
    ///
    /// Returns an error if `ping` cannot run. Lost packets are no error.
    pub(super) fn ping(&self, interval: Duration, duration: Duration) -> Result<String> {
        let count = duration.as_micros() / interval.as_micros().max(1);
        let count = count.max(1).to_string();
        let interval = format!("{:.3}", interval.as_secs_f64());
        let address = self.server_address.to_string();
        let arguments = ["-n", "-i", &interval, "-c", &count, "-W", "1", &address];

        let output = self.client.output("ping", &arguments, "")?;
        if output.stdout.is_empty() {
            bail!(
                "ping failed ({}): {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim(),
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until the server's end replies to a ping.
    ///
    /// # Errors
    ///
    /// Returns an error that names the server and the tunnel if there is no reply within
    /// `deadline`.
    pub(super) fn wait_until_up(&self, deadline: Duration) -> Result<()> {
        let what = format!(
            "{} to reply at {} through {}",
            self.server.name(),
            self.server_address,
            self.tunnel.name()
        );
        let address = self.server_address.to_string();

        wait::until(deadline, &what, || {
            let ping = self
                .client
                .output("ping", &["-n", "-c1", "-W1", &address], "")?;
            Ok(ping.status.success())
        })
    }
}

/// Time limit for an iperf3 client to end after the measurement, in seconds. Before it ends, the
/// client sends its queued data, which takes long on a machine without an idle core.
const SLACK_SECONDS: u32 = 20;

/// An `iperf3 --server --one-off`, which ends after one client.
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

/// Kills a process if it still runs, and reaps the process.
pub(super) fn end(child: &mut Child) {
    // Both calls fail only if the process has already ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// The default port of iperf3.
const PORT: &str = "5201";

const START_DEADLINE: Duration = Duration::from_secs(5);

/// Returns the first line that `program --version` prints.
///
/// # Errors
///
/// Returns an error if `program` cannot run.
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
