//! The tunnel without nodes and overlay: two gateways, and traffic from TAP to TAP.
//!
//! ```text
//! client's gateway   eth0 ---------- eth0   server's gateway      MTU 1500 or 9000
//!                liqo-tap ~~~~~~~~~~ liqo-tap                     MTU 1420 or 8920
//! ```
//!
//! Normally, an eBPF program redirects decrypted packets from a gateway's TAP to the overlay
//! device. The bench detaches this program, and configures an address and a route on the TAP. So
//! the TCP stack of the gateway's namespace uses the TAP like a WireGuard device. Both gateways run
//! the binary `gateway` without special features for the bench.

mod cluster;
mod many;
mod responder;

pub(super) use many::idle as many_idle;
pub(super) use responder::Responder;

use super::cable::Cable;
use super::ends::Ends;
use super::metric::{Tunnel, Underlay};
use super::superpackets::Histogram;
use ::tests::lab::Identity;
use ::tests::lab::binaries::Binaries;
use ::tests::lab::key::Key;
use ::tests::lab::link::ip;
use ::tests::lab::netns::Netns;
use ::tests::lab::process::Process;
use ::tests::lab::{status, wait};
use anyhow::{Context as _, Result};
use cluster::{CLIENT, Cluster, PORT, Peer, SERVER};
use ebpf_common::settings::{NODE_MAC, Settings, TAP_DEVICE};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Two gateways with a session between them. The gateways are stopped on drop.
#[derive(Debug)]
pub(super) struct Gateways {
    /// The namespaces of the two TAPs, and the two gateway processes.
    pub(super) ends: Ends,
    sockets: PathBuf,
    processes: [Process; 2],
    _cable: Cable,
    _identity: Arc<Identity>,
}

impl Gateways {
    /// Starts the gateways, and waits until the server's TAP address replies to a ping.
    ///
    /// # Errors
    ///
    /// Returns an error if a gateway does not start, or if the server's end does not reply.
    pub(super) fn start(tunnel: Tunnel, underlay: Underlay) -> Result<Self> {
        let identity = Identity::claim()?;
        let mtu = underlay.tunnel_mtu();
        let cable = Cable::new(&identity, underlay)?;
        let program = Binaries::find().gateway;
        let client_key = Key::open(&key_dir(&identity, &CLIENT, SERVER.name))?.public();
        let server_key = Key::open(&key_dir(&identity, &SERVER, CLIENT.name))?.public();
        let mut processes = [
            start(
                &identity,
                &cable.client,
                &program,
                &CLIENT,
                &[SERVER.as_peer(server_key, mtu)],
            )
            .context("the client's gateway")?,
            start(
                &identity,
                &cable.server,
                &program,
                &SERVER,
                &[CLIENT.as_peer(client_key, mtu)],
            )
            .context("the server's gateway")?,
        ];
        let sockets = identity.run_dir().to_owned();
        wait::until(UP_DEADLINE, "the gateways to have a session", || {
            Ok(processes.iter().all(|process| {
                status::read(&sockets, process.name())
                    .is_ok_and(|status| !status::live_sessions(&status).is_empty())
            }))
        })?;

        let mut pid = |index: usize, cluster: &Cluster| {
            processes[index]
                .pid()
                .with_context(|| format!("the gateway of {} has ended", cluster.name))
        };
        let gateways = [vec![pid(0, &CLIENT)?], vec![pid(1, &SERVER)?]];
        let ends = Ends {
            tunnel,
            underlay,
            client: open_tap(processes[0].name(), &CLIENT, &SERVER, mtu)?,
            server: open_tap(processes[1].name(), &SERVER, &CLIENT, mtu)?,
            server_address: SERVER.address,
            gateways,
        };
        ends.wait_until_up(UP_DEADLINE)?;
        Ok(Self {
            ends,
            sockets,
            processes,
            _cable: cable,
            _identity: identity,
        })
    }

    /// Returns two histograms of packet sizes: packets that the client's gateway has read from its
    /// TAP, and packets that the server's gateway has written to its TAP.
    ///
    /// # Errors
    ///
    /// Returns an error if a gateway's status cannot be read.
    pub(super) fn super_packets(&self) -> Result<[Histogram; 2]> {
        let [client, server] = &self.processes;
        let client = status::read(&self.sockets, client.name())?;
        let server = status::read(&self.sockets, server.name())?;

        Ok([Histogram::read(&client)?, Histogram::written(&server)?])
    }
}

/// The index of the peer, which is part of the peer's MAC address on the TAP. Each gateway has one
/// peer, whose index is 0.
const PEER: u16 = 0;

const UP_DEADLINE: Duration = Duration::from_secs(20);

/// The folder of the BPF file system in which each gateway instance has a folder with its pinned
/// programs.
const PINS: &str = "/sys/fs/bpf/liqo";
const TAP_PIN: &str = "tap";

fn start(
    identity: &Arc<Identity>,
    netns: &Netns,
    program: &Path,
    own: &Cluster,
    peers: &[Peer<'_>],
) -> Result<Process> {
    let fabric = identity.run_dir().join(format!("{}.yaml", own.name));
    let objects = cluster::objects(own).into_iter();
    let objects = objects.chain(peers.iter().flat_map(Peer::objects));
    let documents: Vec<String> = objects.map(|object| object.to_string()).collect();
    fs::write(&fabric, documents.join("\n---\n"))
        .with_context(|| format!("failed to write {}", fabric.display()))?;
    run(Command::new(program).arg("plan").arg(&fabric))?;

    let instance = identity.qualify(own.name);
    let arguments: Vec<OsString> = vec![
        "run".into(),
        "--config".into(),
        fabric.into(),
        "--keys".into(),
        key_dirs(identity, own).into(),
        "--replica".into(),
        own.name.into(),
        "--instance".into(),
        instance.clone().into(),
        "--run-dir".into(),
        identity.run_dir().into(),
        "--listen-port".into(),
        PORT.to_string().into(),
    ];
    let log = identity.run_dir().join(format!("{}.log", own.name));
    let mut process = Process::new(instance, netns, program, arguments, log);
    process.start()?;

    Ok(process)
}

fn key_dirs(identity: &Identity, own: &Cluster) -> PathBuf {
    identity.run_dir().join(own.name).join("keys")
}

fn key_dir(identity: &Identity, own: &Cluster, peer: &str) -> PathBuf {
    key_dirs(identity, own).join(format!("gw-{peer}"))
}

/// Detaches the eBPF program from a gateway's TAP, and configures an address and a route on the
/// TAP. Returns the namespace of the TAP.
fn open_tap(instance: &str, own: &Cluster, peer: &Cluster, mtu: u16) -> Result<Netns> {
    let pin = Path::new(PINS).join(instance).join(TAP_PIN);
    run(Command::new("bpftool")
        .args(["link", "detach", "pinned"])
        .arg(&pin))
    .context("failed to detach the program from a gateway's TAP")?;

    let name = format!("liqo-{instance}");
    let path = Path::new("/run/netns").join(&name);
    let file = File::open(&path).with_context(|| format!("failed to open {}", path.display()))?;
    let netns = Netns::adopt(&name, file);
    // The gateway writes decrypted packets with the destination MAC address `NODE_MAC`, so the TAP
    // gets this address. A packet to encrypt must have the peer's MAC address as destination.
    let own_mac = mac(NODE_MAC);
    let peer_mac = mac(Settings::default().peer_mac(PEER));
    ip(
        &netns,
        &[
            format!("link set dev {TAP_DEVICE} mtu {mtu} address {own_mac}"),
            format!("addr add {}/32 dev {TAP_DEVICE}", own.address),
            format!(
                "neigh replace {} lladdr {peer_mac} nud permanent dev {TAP_DEVICE}",
                peer.address
            ),
            format!(
                "route add {} dev {TAP_DEVICE} src {}",
                peer.address, own.address
            ),
        ],
    )?;
    Ok(netns)
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| {
        format!(
            "failed to run {}; `cargo xtask setup` installs the tools",
            command.get_program().display()
        )
    })?;
    anyhow::ensure!(
        output.status.success(),
        "`{}` failed: {}",
        crate::shell::show(command),
        String::from_utf8_lossy(&output.stderr).trim()
    );

    Ok(())
}
