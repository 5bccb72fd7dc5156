//! How many handshakes a gateway answers, and what each costs.
//!
//! ```text
//! near eth0 ------ eth0 far
//! 256 peers, an address each       a gateway that has them as peers
//! ```
//!
//! Peers that are known call again and again, as after a restart of the gateway or when keys are
//! renewed: each from an address of its own and as one that was there before. What strangers cost is
//! another matter, which limits bound. One thread asks, and takes as much of the processor as the gateway does:
//! the cost of a handshake tells more than their rate.

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

/// One that the peers call; ends when dropped.
pub(super) trait Responder {
    /// Where it listens.
    fn port(&self) -> u16;
    /// Its process.
    fn pid(&self) -> u32;
    /// Its public key, as the peer of this number knows it.
    fn key(&self, peer: usize) -> [u8; 32];
}

/// How many peers there are.
const PEERS: usize = 256;

/// The peers' addresses: for benchmarks (RFC 2544, appendix C.2.2).
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const ADDRESSES: &str = "198.18.0.0/16";

/// How long it may take until each peer was answered once.
const MEETING: Duration = Duration::from_secs(30);

/// Measures one tunnel's gateway.
///
/// # Errors
///
/// Returns an error if it does not run or leaves a peer without an answer.
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
    let asked = initiators.run(Duration::from_secs(seconds.into()))?;
    let used = process::cpu_seconds(responder.pid())? - before;

    Ok(named([
        (metric::HANDSHAKES, asked.per_second()),
        (
            metric::HANDSHAKE_CPU,
            used * 1e6 / asked.answered.max(1) as f64,
        ),
        (metric::UNANSWERED, asked.unanswered_percent()),
    ]))
}
