//! A tunnel between two processes of nebula, which authenticate with certificates.
//!
//! ```text
//! client    eth0 ------ eth0      server      MTU 1500
//!        nebula1 ~~~~~~ nebula1               MTU 1300, the default of nebula
//! ```

use super::cable::{self, Cable};
use super::ends::Ends;
use super::metric::{Tunnel, Underlay};
use super::programs::Program;
use ::tests::lab::Identity;
use ::tests::lab::netns::Netns;
use ::tests::lab::process::Process;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The established tunnel, which is removed on drop.
#[derive(Debug)]
pub(super) struct Nebula {
    pub(super) ends: Ends,
    _processes: [Process; 2],
    _identity: Arc<Identity>,
}

impl Nebula {
    /// Starts both processes, and waits until the server's end replies to a ping.
    ///
    /// # Errors
    ///
    /// Returns an error if a program does not run, or if the server's end does not reply.
    pub(super) fn start(program: &Program, underlay: Underlay) -> Result<Self> {
        let identity = Identity::claim()?;
        let Cable { client, server } = Cable::new(&identity, underlay)?;
        let folder = identity.run_dir();
        certify(&program.companion, folder)?;
        let mut processes = [
            process(program, folder, &client, [&CLIENT, &SERVER])?,
            process(program, folder, &server, [&SERVER, &CLIENT])?,
        ];

        let mut pid = |index: usize| processes[index].pid().context("nebula ended at once");
        let ends = Ends {
            tunnel: Tunnel::Nebula,
            underlay,
            gateways: [vec![pid(0)?], vec![pid(1)?]],
            client,
            server,
            server_address: SERVER.tunnel,
        };
        ends.wait_until_up(UP_DEADLINE)?;
        Ok(Self {
            ends,
            _processes: processes,
            _identity: identity,
        })
    }
}

/// The names and addresses of one end.
#[derive(Debug)]
struct End {
    name: &'static str,
    underlay: Ipv4Addr,
    tunnel: Ipv4Addr,
}

const CLIENT: End = End {
    name: "client",
    underlay: cable::CLIENT,
    tunnel: Ipv4Addr::new(10, 202, 0, 1),
};

const SERVER: End = End {
    name: "server",
    underlay: cable::SERVER,
    tunnel: Ipv4Addr::new(10, 202, 0, 2),
};

const UP_DEADLINE: Duration = Duration::from_secs(20);

fn certify(program: &Path, folder: &Path) -> Result<()> {
    let run = |arguments: &[&str]| -> Result<()> {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .output()
            .with_context(|| format!("failed to run {}", program.display()))?;
        ensure!(
            output.status.success(),
            "nebula-cert {} failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    };

    run(&["ca", "-name", "bench"])?;
    for end in [&CLIENT, &SERVER] {
        let network = format!("{}/24", end.tunnel);
        run(&["sign", "-name", end.name, "-networks", &network])?;
    }
    Ok(())
}

fn process(
    program: &Program,
    folder: &Path,
    netns: &Netns,
    [own, peer]: [&End; 2],
) -> Result<Process> {
    let config = folder.join(format!("{}.yaml", own.name));
    fs::write(&config, configuration(folder, own, peer))
        .with_context(|| format!("failed to write {}", config.display()))?;
    let log = folder.join(format!("{}.log", own.name));
    let arguments = [Path::new("-config"), &config];
    let mut process = Process::new(own.name, netns, &program.path, arguments, log);
    process.start()?;

    Ok(process)
}

fn configuration(folder: &Path, own: &End, peer: &End) -> String {
    let (folder, name) = (folder.display(), own.name);
    format!(
        "\
pki: {{ca: {folder}/ca.crt, cert: {folder}/{name}.crt, key: {folder}/{name}.key}}
static_host_map: {{'{}': ['{}:4242']}}
lighthouse: {{am_lighthouse: false}}
listen: {{host: 0.0.0.0, port: 4242}}
tun: {{dev: nebula1}}
logging: {{level: error}}
firewall:
  outbound: [{{port: any, proto: any, host: any}}]
  inbound: [{{port: any, proto: any, host: any}}]
",
        peer.tunnel, peer.underlay
    )
}
