//! Measures how many handshakes a gateway completes per second, and the processor time per
//! handshake.
//!
//! ```text
//! client: 256 peers with one address each   eth0 ------ eth0   server: a gateway of these peers
//! ```
//!
//! Each peer initiates handshakes repeatedly from its own address. A gateway receives a similar
//! load after its restart, when all peers initiate handshakes at once. Initiators that are no peers
//! are not measured, because the gateway rate-limits them.
//!
//! One thread of the client sends all initiations, and uses about as much processor time as the
//! gateway. This thread can limit the rate of handshakes, so the processor time per handshake is
//! more meaningful than the rate.

use super::cable::{self, Cable};
use super::gateways;
use super::measure::{Values, named};
use super::metric::{self, Tunnel, Underlay};
use super::process;
use super::programs::Programs;
use super::wireguard;
use ::tests::lab::Identity;
use ::tests::lab::key::Key;
use ::tests::lab::link::ip;
use ::tests::traffic::handshakes::{Initiators, Peer};
use anyhow::{Context as _, Result};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// The process under test, which responds to handshakes and is killed on drop.
pub(super) trait Responder {
    /// Returns the UDP port of the responder.
    fn port(&self) -> u16;
    fn pid(&self) -> u32;
    /// Returns the public key with which the responder authenticates to a peer. `peer` is the
    /// index of the peer.
    fn key(&self, peer: usize) -> [u8; 32];
}

const PEERS: usize = 256;

/// The address of the first peer; the other peers have the following addresses. The addresses are
/// reserved for benchmarks (RFC 2544, appendix C.2.2).
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const ADDRESSES: &str = "198.18.0.0/16";

/// Time limit for one handshake of each peer before the measurement.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Measures the handshakes that the gateway or wireguard-go process of `tunnel` completes.
///
/// # Errors
///
/// Returns an error if the process does not run, or does not respond to a peer.
pub(super) fn measure(tunnel: Tunnel, programs: &Programs, seconds: u32) -> Result<Values> {
    let identity = Identity::claim()?;
    let cable = Cable::new(&identity, Underlay::Uso)?;
    ip(
        &cable.client,
        &[format!("route add local {ADDRESSES} dev lo")],
    )?;
    let back = format!("route add {ADDRESSES} via {}", cable::CLIENT);
    ip(&cable.server, &[back])?;

    let keys = (0..PEERS).map(|_| Key::generate());
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let public: Vec<_> = keys.iter().map(Key::public).collect();
    let responder: Box<dyn Responder> = if tunnel.is_ours() {
        Box::new(gateways::Responder::start(
            &identity,
            &cable.server,
            &public,
        )?)
    } else {
        let program = programs.get(&tunnel).context("its program was not built")?;
        Box::new(wireguard::Responder::start(
            &cable.server,
            program,
            &public,
        )?)
    };

    let peers: Vec<_> = (0_u32..)
        .zip(&keys)
        .enumerate()
        .map(|(place, (number, key))| Peer {
            private: key.private(),
            responder: responder.key(place),
            address: Ipv4Addr::from_bits(FIRST.to_bits() + number),
        })
        .collect();
    let target = SocketAddrV4::new(cable::SERVER, responder.port());
    let mut initiators = Initiators::new(&cable.client, target, &peers)?;
    initiators.complete_all(TIMEOUT)?;

    let before = process::cpu_seconds(&[responder.pid()])?;
    let outcome = initiators.run(Duration::from_secs(seconds.into()))?;
    let used = process::cpu_seconds(&[responder.pid()])? - before;

    Ok(named([
        (metric::HANDSHAKES, outcome.per_second()),
        (
            metric::HANDSHAKE_CPU,
            used * 1e6 / outcome.answered.max(1) as f64,
        ),
        (metric::UNANSWERED, outcome.unanswered_percent()),
    ]))
}
