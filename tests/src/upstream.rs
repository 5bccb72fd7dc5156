//! A gateway that behaves like a gateway of upstream Liqo. It has one key and one session, and its
//! liveness probes lack this project's extensions.

use crate::lab::Lab;
use crate::lab::netns::Netns;
use crate::lab::underlay::Host;
use crate::wireguard::WireguardGo;
use anyhow::{Context as _, Result};
use ebpf_common::settings::{LIVENESS_CLIENT, LIVENESS_PORT, LIVENESS_SERVER};
use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The configuration of an [`Upstream`] gateway, which peers with a cluster under test.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Cluster ID of the cluster under test.
    pub remote_id: String,
    /// WireGuard public key of the cluster under test.
    pub remote_key: [u8; 32],
    /// Endpoint of the cluster under test. With `None`, this gateway has the server role.
    pub endpoint: Option<SocketAddrV4>,
    /// Address of the simulated pod in the gateway's namespace.
    pub pod: Ipv4Addr,
    /// Original CIDRs of the cluster under test.
    pub remote_prefixes: Vec<Ipv4Net>,
}

/// A running gateway that behaves like a gateway of upstream Liqo. A simulated pod is in the same
/// namespace.
#[derive(Debug)]
pub struct Upstream {
    /// The WireGuard interface of the gateway.
    pub wireguard: WireguardGo,
    /// The network namespace of the gateway and its pod.
    pub netns: Netns,
    pings: Arc<AtomicU64>,
    pongs: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Upstream {
    /// Configures `wireguard`, which must run on `host`, and starts the liveness probes.
    ///
    /// # Errors
    ///
    /// Returns an error if the interface cannot be configured, or if the port of the probes is in
    /// use.
    pub fn start(wireguard: WireguardGo, host: &Host, setting: &Setting) -> Result<Self> {
        let (own, remote) = match setting.endpoint {
            Some(_) => (LIVENESS_CLIENT, LIVENESS_SERVER),
            None => (LIVENESS_SERVER, LIVENESS_CLIENT),
        };
        let addresses = [Ipv4Net::new_assert(own, 30), setting.pod.into()];
        wireguard.configure(MTU, &addresses, &setting.remote_prefixes)?;
        wireguard.set_peer(setting.remote_key, setting.endpoint)?;

        let socket = host
            .netns
            .run(|| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, LIVENESS_PORT))?;
                socket.set_read_timeout(Some(TICK))?;
                Ok::<_, io::Error>(socket)
            })
            .context("failed to bind the port of the liveness probe")?;
        let probe = Probe {
            socket,
            remote: SocketAddrV4::new(remote, LIVENESS_PORT),
            remote_id: setting.remote_id.clone(),
            pings: Arc::default(),
            pongs: Arc::default(),
            stop: Arc::default(),
        };

        Ok(Self {
            wireguard,
            netns: host.netns.clone(),
            pings: Arc::clone(&probe.pings),
            pongs: Arc::clone(&probe.pongs),
            stop: Arc::clone(&probe.stop),
            worker: Some(thread::spawn(move || probe.run())),
        })
    }

    /// Returns the number of PINGs to which the gateway has replied.
    pub fn pings(&self) -> u64 {
        self.pings.load(Ordering::Relaxed)
    }

    /// Returns the number of PONGs that the gateway has received.
    pub fn pongs(&self) -> u64 {
        self.pongs.load(Ordering::Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

impl Lab {
    /// Adds a host on which `wireguard-go` listens on Liqo's default port. `number` must be unique
    /// in the laboratory.
    ///
    /// # Errors
    ///
    /// Returns an error if the host cannot be built or the program is missing.
    pub fn add_wireguard(&mut self, number: u8) -> Result<(Host, WireguardGo)> {
        let host = self.add_host()?;
        let port = crate::lab::spec::GATEWAY_PORT;
        let wireguard = WireguardGo::start(self.identity(), &host.netns, number, port)?;

        Ok((host, wireguard))
    }
}

/// Sends upstream's liveness probes, and replies to those of the peer.
struct Probe {
    socket: UdpSocket,
    remote: SocketAddrV4,
    remote_id: String,
    pings: Arc<AtomicU64>,
    pongs: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Probe {
    fn run(&self) {
        let mut buffer = [0; MESSAGE_MAX];
        let mut next_ping = Instant::now() + INTERVAL;
        while !self.stop.load(Ordering::Relaxed) {
            if Instant::now() >= next_ping {
                next_ping += INTERVAL;
                self.ping();
            }
            if let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
                self.handle(&buffer[..length], from);
            }
        }
    }

    fn ping(&self) {
        let ping = json!({
            "clusterID": self.remote_id,
            "msgType": "PING",
            "timeStamp": "2026-01-02T03:04:05.678901234Z",
        });
        // Sending fails while the peer is not reachable. Ignore the error.
        let _ = self
            .socket
            .send_to(ping.to_string().as_bytes(), self.remote);
    }

    /// Counts a PONG, and replies to a PING with a PONG.
    ///
    /// The PONG contains only the keys that upstream's decoder supports.
    fn handle(&self, message: &[u8], from: SocketAddr) {
        let Ok(message) = serde_json::from_slice::<Value>(message) else {
            return;
        };
        if message["msgType"] == "PONG" {
            self.pongs.fetch_add(1, Ordering::Relaxed);
            return;
        }

        self.pings.fetch_add(1, Ordering::Relaxed);
        let pong = json!({
            "clusterID": message["clusterID"],
            "msgType": "PONG",
            "timeStamp": message["timeStamp"],
        });
        let _ = self.socket.send_to(pong.to_string().as_bytes(), from);
    }
}

/// MTU of upstream's tunnel interface in bytes.
const MTU: u16 = 1340;

/// Interval between upstream's liveness probes.
const INTERVAL: Duration = Duration::from_secs(2);

/// Maximum size in bytes of a probe message that upstream reads.
const MESSAGE_MAX: usize = 1024;

const TICK: Duration = Duration::from_millis(20);
