//! A tunnel between two processes of wireguard-go, boringtun or gotatun, which `wg` configures.
//!
//! ```text
//! client eth0 ------ eth0 server      MTU 1500 or 9000
//!         wg0 ~~~~~~ wg0              MTU 1420 or 8920
//! ```

use super::cable::{self, Cable};
use super::ends::{self, Ends};
use super::handshakes;
use super::metric::{Tunnel, Underlay};
use super::programs::Program;
use ::tests::lab::Identity;
use ::tests::lab::key::{Key, base64};
use ::tests::lab::link::ip;
use ::tests::lab::netns::Netns;
use ::tests::lab::wait;
use anyhow::{Context as _, Result, bail};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The established tunnel, which is removed on drop.
#[derive(Debug)]
pub(super) struct Wireguard {
    pub(super) ends: Ends,
    _processes: [Process; 2],
    _identity: Arc<Identity>,
}

impl Wireguard {
    /// Starts two processes of `program`, and waits until the server's end replies to a ping.
    ///
    /// # Errors
    ///
    /// Returns an error if the program does not run, or if the server's end does not reply.
    pub(super) fn start(tunnel: Tunnel, program: &Program, underlay: Underlay) -> Result<Self> {
        let identity = Identity::claim()?;
        let Cable { client, server } = Cable::new(&identity, underlay)?;

        let keys = [Key::generate()?, Key::generate()?];
        let processes = [
            Process::start(&client, program).context("the client's process")?,
            Process::start(&server, program).context("the server's process")?,
        ];
        processes[0].configure(&client, &CLIENT, &keys[0], &keys[1], &SERVER)?;
        processes[1].configure(&server, &SERVER, &keys[1], &keys[0], &CLIENT)?;
        for netns in [&client, &server] {
            let mtu = underlay.tunnel_mtu();
            ip(netns, &[format!("link set dev wg0 mtu {mtu} up")])?;
        }

        let ends = Ends {
            tunnel,
            underlay,
            client,
            server,
            server_address: SERVER.tunnel,
            gateways: [vec![processes[0].0.id()], vec![processes[1].0.id()]],
        };
        ends.wait_until_up(UP_DEADLINE)?;
        Ok(Self {
            ends,
            _processes: processes,
            _identity: identity,
        })
    }
}

/// The addresses of one end.
#[derive(Debug)]
struct End {
    /// Address on the underlay.
    underlay: Ipv4Addr,
    /// Address inside the tunnel.
    tunnel: Ipv4Addr,
}

const CLIENT: End = End {
    underlay: cable::CLIENT,
    tunnel: Ipv4Addr::new(10, 202, 0, 1),
};

const SERVER: End = End {
    underlay: cable::SERVER,
    tunnel: Ipv4Addr::new(10, 202, 0, 2),
};

const LISTEN_PORT: u16 = 51820;
const UP_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Process(Child);

impl Process {
    /// Starts the process with a private `/run`, in which it creates its control socket. The
    /// socket disappears with the process, and does not conflict with the socket of another `wg0`.
    fn start(netns: &Netns, program: &Program) -> Result<Self> {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg(r#"mount -t tmpfs none /run && exec "$0" -f "$@" wg0"#)
            .arg(&program.path)
            .args(program.arguments)
            // boringtun, gotatun and wireguard-go each read one of these two variables.
            .env("LOG_LEVEL", "error")
            .env("WG_LOG_LEVEL", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut process = Self(netns.start(&mut command)?);

        wait::until(UP_DEADLINE, "the process to accept commands", || {
            if let Some(status) = process.0.try_wait()? {
                bail!("{} ended at once ({status})", program.path.display());
            }
            let pid = process.0.id().to_string();
            let show = ["--target", &pid, "--mount", "wg", "show", "wg0"];
            Ok(netns.output("nsenter", &show, "")?.status.success())
        })?;
        Ok(process)
    }

    fn configure(
        &self,
        netns: &Netns,
        own: &End,
        key: &Key,
        peer_key: &Key,
        peer: &End,
    ) -> Result<()> {
        self.set_conf(
            netns,
            &format!(
                "[Interface]\nPrivateKey = {}\nListenPort = {LISTEN_PORT}\n\
                 [Peer]\nPublicKey = {}\nEndpoint = {}:{LISTEN_PORT}\nAllowedIPs = {}/32\n",
                base64(&key.private()),
                base64(&peer_key.public()),
                peer.underlay,
                peer.tunnel,
            ),
        )?;

        ip(netns, &[format!("addr add {}/24 dev wg0", own.tunnel)])
    }

    fn set_conf(&self, netns: &Netns, config: &str) -> Result<()> {
        let pid = self.0.id().to_string();
        let target = ["--target", &pid, "--mount"];
        let setconf = ["wg", "setconf", "wg0", "/dev/stdin"];
        netns.exec("nsenter", &[target.as_slice(), &setconf].concat(), config)?;

        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        ends::end(&mut self.0);
    }
}

/// A process that responds to the handshakes of many peers, and is killed on drop.
#[derive(Debug)]
pub(super) struct Responder {
    process: Process,
    key: [u8; 32],
}

impl Responder {
    /// Starts the process in `netns` with the peers' public keys.
    ///
    /// # Errors
    ///
    /// Returns an error if the program does not run.
    pub(super) fn start(netns: &Netns, program: &Program, peers: &[[u8; 32]]) -> Result<Self> {
        let key = Key::generate()?;
        let process = Process::start(netns, program)?;
        let mut config = format!(
            "[Interface]\nPrivateKey = {}\nListenPort = {LISTEN_PORT}\n",
            base64(&key.private())
        );
        for (place, peer) in peers.iter().enumerate() {
            let allowed = format!("10.100.{}.{}/32", place / 256, place % 256);
            let peer = base64(peer);
            config.push_str(&format!(
                "[Peer]\nPublicKey = {peer}\nAllowedIPs = {allowed}\n"
            ));
        }
        process.set_conf(netns, &config)?;
        ip(netns, &["link set dev wg0 up".to_owned()])?;

        Ok(Self {
            process,
            key: key.public(),
        })
    }
}

impl handshakes::Responder for Responder {
    fn port(&self) -> u16 {
        LISTEN_PORT
    }

    fn pid(&self) -> u32 {
        self.process.0.id()
    }

    fn key(&self, _peer: usize) -> [u8; 32] {
        self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tunnel_comes_up_and_leaves_nothing() {
        let program = Program {
            path: "wireguard-go".into(),
            ..Program::default()
        };
        let tunnel = Wireguard::start(Tunnel::WireguardGoDebian, &program, Underlay::Uso).unwrap();
        let names = [&tunnel.ends.client, &tunnel.ends.server].map(|netns| netns.name().to_owned());

        drop(tunnel);

        for name in names {
            assert!(!std::path::Path::new("/run/netns").join(name).exists());
        }
    }
}
