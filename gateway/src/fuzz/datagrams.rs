//! Harness that passes sequences of datagrams to engines, and advances time. The input has this
//! format:
//!
//! ```text
//! flags | action, its arguments | action, its arguments | ..
//! ```
//! Invariants:
//! - No engine panics.
//! - Each inner packet that an engine delivers was sent, and is delivered once.
//! - The engines become idle: each action causes a limited number of timeouts.
//! - If the flag [`RECOVERS`] is set, the clusters connect again after the last action, unless
//!   an action has called [`Engine::leave`](crate::engine::Engine::leave), which is irreversible.

use super::input::Input;
use super::network::{HOSTS, Network, SERVER, inner};
use crate::engine::{Nodes, PortId};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Flag: the sequence begins with established sessions.
const CONNECTED: u8 = 1;
/// Flag: the harness checks at the end that the clusters connect again.
const RECOVERS: u8 = 2;

/// Maximum number of actions per input. More actions only slow the fuzzer down.
const ACTIONS_MAX: usize = 200;
/// Limit of the virtual time that the actions of one input advance. It is longer than the lifetime
/// of WireGuard's keys. More time slows the fuzzer down, because each second causes a dozen
/// timeouts of the engines, and lost sessions cause handshakes.
const TIME_MAX: Duration = Duration::from_secs(400);
/// Maximum length of an inner packet, in bytes.
const PACKET_MAX: usize = 1_500;
/// Time limit for the clusters to connect again. It is longer than the sum of all periods and
/// timeouts of the engine.
const RECOVERY_SECONDS_MAX: u32 = 120;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let mut network = Network::new();
    if flags & CONNECTED != 0 {
        network.run(Duration::from_millis(200));
    }
    let mut time_left = TIME_MAX;
    for _ in 0..ACTIONS_MAX {
        if input.is_empty() {
            break;
        }
        act(&mut network, &mut input, &mut time_left);
    }
    if flags & RECOVERS != 0 && !network.has_left {
        recover(&mut network);
    }
}

fn act(network: &mut Network, input: &mut Input<'_>, time_left: &mut Duration) {
    match input.byte() % 12 {
        0 => network.deliver(0),
        1 => {
            network.wire.pop_front();
        }
        2 => {
            let place = input.below(network.wire.len().max(1));
            network.deliver(place);
        }
        3 => inject_copy(network, input),
        4 => {
            let (host, from) = (input.below(HOSTS), address(input));
            let mut bytes = input.chunk().to_vec();
            network.receive(host, PortId::LISTEN, from, &mut bytes);
        }
        5 => network.run(take(time_left, input.byte().into())),
        6 => network.wait(take(time_left, input.word())),
        7 => {
            let (host, len) = (input.below(HOSTS), input.below(PACKET_MAX));
            network.send(host, len);
        }
        8 => {
            let host = input.below(HOSTS);
            let packet = input.chunk();
            network.send_packet(host, &packet[..packet.len().min(PACKET_MAX)]);
        }
        9 => {
            let host = input.below(HOSTS);
            let packet = probe(host, input.chunk());
            network.send_packet(host, &packet);
        }
        10 => {
            let host = input.below(HOSTS);
            network.set_peers(host, !input.byte().is_multiple_of(4));
        }
        _ => reconfigure(network, input),
    }
}

/// Takes up to `millis` milliseconds from `time_left`, and returns the time taken.
fn take(time_left: &mut Duration, millis: u16) -> Duration {
    let time = Duration::from_millis(millis.into()).min(*time_left);
    *time_left -= time;

    time
}

/// Injects a copy of an earlier datagram, with some bytes changed.
fn inject_copy(network: &mut Network, input: &mut Input<'_>) {
    let place = input.below(network.seen.len().max(1));
    let Some(mut copy) = network.seen.get(place).cloned() else {
        return;
    };
    let shape = input.byte();
    for _ in 0..shape & 3 {
        let (at, value) = (input.below(copy.bytes.len().max(1)), input.byte());
        if let Some(byte) = copy.bytes.get_mut(at) {
            *byte ^= value;
        }
    }
    if shape & 4 != 0 {
        copy.bytes.truncate(input.below(copy.bytes.len().max(1)));
    }
    if shape & 8 != 0 {
        copy.bytes.extend(input.chunk());
    }
    if shape & 16 != 0 {
        copy.from = address(input);
    }
    let target = if shape & 32 != 0 {
        Some((input.below(HOSTS), PortId::LISTEN))
    } else {
        network.socket(copy.to)
    };
    if let Some((host, port)) = target {
        network.receive(host, port, copy.from, &mut copy.bytes);
    }
}

/// Changes the state or the configuration of an engine, except its peers.
fn reconfigure(network: &mut Network, input: &mut Input<'_>) {
    let (host, what) = (input.below(HOSTS), input.byte());
    network.has_left |= what.is_multiple_of(4);
    let (engine, now) = network.engine(host);
    match what % 4 {
        0 => engine.leave(now),
        1 => engine.set_standby(what & 4 != 0, now),
        2 => engine.set_nodes(Nodes {
            all: u32::from(input.word()),
            cut: u32::from(input.word()),
            resting: u32::from(input.word()),
            echo_responder: what & 4 != 0,
        }),
        _ => {
            let names = ["server-0", "client-0", "client-1", "other-0"];
            let names = names.iter().enumerate();
            let names = names.filter(|(bit, _)| what >> (bit + 2) & 1 == 1);
            engine.set_replicas(names.map(|(_, name)| (*name).to_owned()).collect(), now);
        }
    }
    network.drain(host);
}

/// Builds a liveness probe of a host to its peer, in upstream's format.
fn probe(host: usize, json: &[u8]) -> Vec<u8> {
    let (server, client) = ([169, 254, 18, 1], [169, 254, 18, 2]);
    let (from, to) = if host == SERVER {
        (server, client)
    } else {
        (client, server)
    };
    let json = &json[..json.len().min(PACKET_MAX)];
    let len = u16::try_from(8 + json.len()).unwrap_or(u16::MAX);
    let mut datagram = Vec::new();
    for word in [12_345, 12_345, len, 0] {
        datagram.extend(word.to_be_bytes());
    }
    datagram.extend(json);

    inner(from, to, 17, &datagram)
}

/// Returns the address of a host, of an unknown sender, or an address inside the tunnel.
fn address(input: &mut Input<'_>) -> SocketAddr {
    let (which, port) = (input.byte(), input.word());
    let ip = match which % 4 {
        0 => Ipv4Addr::new(192, 0, 2, which >> 2),
        1 => Ipv4Addr::new(203, 0, 113, which >> 2),
        2 => Ipv4Addr::new(10, 244, 1, which >> 2),
        _ => return ([0xfd, 0, 0, 0, 0, 0, 0, u16::from(which)], port).into(),
    };
    (ip, port).into()
}

/// Checks that server and clients connect again with their initial configuration.
fn recover(network: &mut Network) {
    for host in 0..HOSTS {
        network.set_peers(host, true);
        let (engine, now) = network.engine(host);
        engine.set_replicas(Vec::new(), now);
        engine.set_standby(false, now);
        network.drain(host);
    }
    for _ in 0..RECOVERY_SECONDS_MAX {
        network.run(Duration::from_secs(1));
        if (0..HOSTS).all(|host| network.is_reachable(host)) {
            return;
        }
    }
    panic!("a host has no session");
}
