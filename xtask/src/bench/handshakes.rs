//! The rate of handshakes that a gateway completes, and the processor time of each.
//!
//! ```text
//! near eth0 ------ eth0 far
//! 256 peers, an address each       a gateway with these peers
//! ```
//!
//! Known peers initiate handshakes again and again, each from its own address, as after a restart
//! of the gateway or at a rekey. Unknown initiators are not measured: budgets limit them. One thread
//! sends all initiations and uses as much processor time as the gateway, so the cost of a handshake
//! says more than their rate.

use super::cable::{self, Cable};
use super::gateways;
use super::measure::{Values, named};
use super::metric::{self, Tunnel, Underlay};
use super::peers::Programs;
use super::process;
use super::wireguard;
use ::tests::lab::Identity;
use ::tests::lab::key::Key;
use ::tests::lab::link::ip;
use ::tests::traffic::handshakes::{Initiators, Peer};
use anyhow::{Context as _, Result};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// The responder under test; killed when dropped.
pub(super) trait Responder {
    /// Its endpoint.
    fn port(&self) -> u16;
    fn pid(&self) -> u32;
    /// Its public key for the peer with this index.
    fn key(&self, peer: usize) -> [u8; 32];
}

/// The number of peers.
const PEERS: usize = 256;

/// The peers' addresses, reserved for benchmarks (RFC 2544, appendix C.2.2).
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const ADDRESSES: &str = "198.18.0.0/16";

/// The limit on the first handshakes of all peers.
const MEETING: Duration = Duration::from_secs(30);

/// Measures one tunnel's gateway.
///
/// # Errors
///
/// Returns an error if it does not run, or does not respond to a peer.
pub(super) fn measure(tunnel: Tunnel, programs: &Programs, seconds: u32) -> Result<Values> {
    let identity = Identity::claim()?;
    let cable = Cable::lay(&identity, Underlay::Uso)?;
    ip(
        &cable.near,
        &[format!("route add local {ADDRESSES} dev lo")],
    )?;
    let back = format!("route add {ADDRESSES} via {}", cable::NEAR);
    ip(&cable.far, &[back])?;

    let keys = (0..PEERS).map(|_| Key::generate());
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let public: Vec<_> = keys.iter().map(Key::public).collect();
    let responder: Box<dyn Responder> = if tunnel.is_ours() {
        Box::new(gateways::Responder::start(&identity, &cable.far, &public)?)
    } else {
        let program = programs.get(&tunnel).context("its program was not built")?;
        Box::new(wireguard::Responder::start(&cable.far, program, &public)?)
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
    let target = SocketAddrV4::new(cable::FAR, responder.port());
    let mut initiators = Initiators::new(&cable.near, target, &peers)?;
    initiators.complete_all(MEETING)?;

    let before = process::cpu_seconds(responder.pid())?;
    let outcome = initiators.run(Duration::from_secs(seconds.into()))?;
    let used = process::cpu_seconds(responder.pid())? - before;

    Ok(named([
        (metric::HANDSHAKES, outcome.per_second()),
        (
            metric::HANDSHAKE_CPU,
            used * 1e6 / outcome.answered.max(1) as f64,
        ),
        (metric::UNANSWERED, outcome.unanswered_percent()),
    ]))
}
