//! Compares the eBPF programs with the reference model (*oracle*) in `ipam::rewrite`, packet by
//! packet. The target runs the programs in the kernel of this machine, so it needs root.
//!
//! The input has this format:
//!
//! ```text
//! flags | 4 selectors of addresses | IPv4 packet
//! ```
//! Flags and selectors are one byte each. A selector replaces one address by an address of the test
//! network, unless it is 0x80 or more: source and destination of the packet, and of the packet that
//! an ICMP error quotes.
//!
//! The target checks that the programs and the oracle forward the same packets, with the same
//! addresses. The programs may change no other fields than these addresses, the TTL and checksums.
//! A checksum must stay correct if it was correct, and must stay wrong by the same difference if it
//! was wrong.

#![no_main]

use ebpf::test_run::{DROP, Programs, REDIRECT};
use ebpf_common::settings::{GATEWAY_MAC, NODE_MAC, Settings};
use fields::Fields;
use ipam::rewrite::{Gateway, Packet, Verdict};
use std::cell::OnceCell;

#[path = "kernel/fields.rs"]
mod fields;
#[path = "kernel/world.rs"]
mod world;

/// Flag of a packet from a node. Without the flag, the packet comes from a peer.
const FROM_NODE: u8 = 1;

/// Bits of the flags that contain the index of the peer, for a packet from a peer.
const PEER: u8 = 0b110;

/// Longest packet, in bytes. In a test run, the packet and the kernel's metadata must fit into one
/// page.
const LEN_MAX: usize = 2_000;
const IPV4_MIN: usize = 20;
const ETHERNET: usize = 14;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some((flags, packet)) = world::packet(input) {
        thread_local!(static UNDER_TEST: OnceCell<(Programs, Gateway)> = const { OnceCell::new() });
        UNDER_TEST.with(|it| {
            let (programs, oracle) = it.get_or_init(world::load);
            run(programs, oracle, flags, &packet);
        });
    }
});

fn run(programs: &Programs, oracle: &Gateway, flags: u8, packet: &[u8]) {
    let peer = u16::from(flags & PEER) >> 1;
    let is_from_node = flags & FROM_NODE != 0;
    let (run, verdict) = if is_from_node {
        let run = programs.overlay(&frame(GATEWAY_MAC, NODE_MAC, packet));
        (run, Packet::parse(packet).map(|it| oracle.from_node(&it)))
    } else {
        let run = programs.tap(&frame(NODE_MAC, peer_mac(peer), packet));
        let verdict = Packet::parse(packet).map(|it| oracle.from_peer(peer, &it));
        (run, verdict)
    };

    let (destination, forwarded) = match verdict {
        Ok(Verdict::ToPeer(peer, forwarded)) => (peer_mac(peer), forwarded),
        Ok(Verdict::ToNode(forwarded)) => (NODE_MAC, forwarded),
        Ok(Verdict::Drop(refusal)) => return assert_eq!(run.verdict, DROP, "{refusal:?}"),
        Err(malformed) => return assert_eq!(run.verdict, DROP, "{malformed:?}"),
    };
    assert_eq!(run.verdict, REDIRECT);
    assert_eq!(run.frame[..6], destination);
    check(packet, &run.frame[ETHERNET..], &forwarded);
}

/// Checks that a program made exactly the changes that the oracle expects.
fn check(before: &[u8], after: &[u8], expected: &Packet) {
    assert_eq!(Packet::parse(after).as_ref(), Ok(expected));
    let fields = Fields::of(before);
    for (at, (old, new)) in before.iter().zip(after).enumerate() {
        assert!(old == new || fields.may_change(at), "byte {at} changed");
    }
    assert_eq!(before.len(), after.len());
    assert_eq!(fields.residues(before), fields.residues(after));
}

fn frame(destination: [u8; 6], source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &[0x08, 0x00], packet].concat()
}

fn peer_mac(peer: u16) -> [u8; 6] {
    Settings::default().peer_mac(peer)
}
