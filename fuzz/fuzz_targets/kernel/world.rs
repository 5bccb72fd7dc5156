//! Tables of a gateway with two peers. Both peers have the same pod CIDR as this cluster. The eBPF
//! programs and the oracle get the same tables.

use super::{IPV4_MIN, LEN_MAX};
use ebpf::test_run::Programs;
use ebpf::{Local, Outbound, Tables, Transit};
use ipam::Remap;
use ipam::rewrite::{Gateway, Peer, RemotePod};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

const NODE: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 2);

/// The peer index, original prefix and remapped prefix of all remaps.
const REMAPS: [(u16, &str, &str); 5] = [
    (1, "10.244.0.0/16", "10.245.0.0/16"),
    (1, "10.70.0.0/16", "10.71.0.0/16"),
    (2, "10.244.0.0/16", "10.246.0.0/16"),
    (2, "10.70.0.0/16", "10.72.0.0/16"),
    (2, "192.168.7.0/24", "10.247.3.0/24"),
];

/// The prefixes of this cluster.
const OWN: [&str; 2] = ["10.244.0.0/16", "10.70.0.0/16"];

/// The destination prefixes behind the nodes of this cluster.
const LOCAL: [&str; 2] = ["10.244.0.0/16", "10.70.0.9/32"];

/// The peer index and original address of remote pods, and the addresses of their IP objects.
const MAPPED: [(u16, &str, &str); 3] = [
    (1, "10.244.5.5", "10.70.0.21"),
    (2, "10.244.5.5", "10.70.0.22"),
    (2, "192.168.7.7", "10.70.0.23"),
];

/// The address of an IP object, and the ClusterIP of its Service.
const SERVICE: (&str, &str) = ("10.70.0.24", "10.96.0.1");

/// The index of a peer, and the address that replaces the source of an ICMP error from that peer,
/// if the source is in no CIDR of the peer. The other peer has no such address.
const UNKNOWN: (u16, &str) = (1, "10.71.0.1");

/// The addresses from which a selector in the input chooses.
const ADDRESSES: [&str; 18] = [
    "10.244.1.10",
    "10.244.5.5",
    "10.245.1.10",
    "10.245.5.5",
    "10.246.1.10",
    "10.246.5.5",
    "10.247.3.7",
    "192.168.7.7",
    "10.70.0.9",
    "10.70.0.21",
    "10.70.0.22",
    "10.70.0.23",
    "10.71.0.9",
    "169.254.18.2",
    "172.18.0.2",
    "8.8.8.8",
    "10.70.0.24",
    "10.96.0.1",
];

/// Lowest selector that leaves the address in the packet unchanged.
const AS_IT_IS: u8 = 0x80;

/// Parses the input, and writes the selected addresses into the packet.
///
/// Returns `None` if the packet is too short for a test run in the kernel, or if the destination is
/// an overlay probe address, for which the oracle has no rules.
pub(crate) fn packet(input: &[u8]) -> Option<(u8, Vec<u8>)> {
    let (&[flags, selectors @ ..], packet) = input.split_first_chunk::<5>()?;
    let mut packet = packet.get(..packet.len().min(LEN_MAX))?.to_vec();
    if packet.len() < IPV4_MIN {
        return None;
    }
    let quote = usize::from(packet[0] & 0xf) * 4 + 8;
    for (selector, at) in selectors.iter().zip([12, 16, quote + 12, quote + 16]) {
        if let Some(octets) = packet.get_mut(at..at + 4)
            && *selector < AS_IT_IS
        {
            let address = ADDRESSES[usize::from(*selector) % ADDRESSES.len()];
            octets.copy_from_slice(&address_of(address).octets());
        }
    }
    if packet[16..19] == [169, 254, 19] {
        return None;
    }

    Some((flags, packet))
}

/// Loads the programs, and returns them with an oracle that has the same tables.
pub(crate) fn load() -> (Programs, Gateway) {
    let programs = Programs::load(&tables(), NODE, false);

    (programs.expect("fuzzing the kernel needs root"), gateway())
}

fn tables() -> Tables {
    let mut tables = Tables::default();
    for (peer, original, remapped) in REMAPS {
        let to = net(original);
        let route = Outbound { peer, to };
        tables.outbound.insert(net(remapped), route);
        tables.inbound.insert((peer, net(original)), net(remapped));
    }
    for local in LOCAL {
        tables.local.insert(net(local), Local::Node(NODE));
    }
    for (peer, original, address) in MAPPED {
        let (to, address) = (address_of(original), address_of(address));
        tables.transit.insert(address, Transit { peer, to });
        tables.transit_sources.insert((peer, to), address);
    }
    tables.services = [(address_of(SERVICE.0), address_of(SERVICE.1))].into();
    tables.spread = [NODE].into();
    let (peer, address) = UNKNOWN;
    tables.unknown_sources.insert(peer, address_of(address));
    tables.sources = OWN.map(net).into();
    tables.nodes = [NODE].into();

    tables
}

fn gateway() -> Gateway {
    let peer = |number| Peer {
        remaps: (REMAPS.iter())
            .filter(|(peer, ..)| *peer == number)
            .map(|(_, from, to)| Remap::new(net(from), net(to)).expect("equal lengths"))
            .collect(),
        unknown_source: (UNKNOWN.0 == number).then(|| address_of(UNKNOWN.1)),
    };
    let pod = |(peer, original, address): (u16, &str, &str)| {
        let original = address_of(original);
        (address_of(address), RemotePod { peer, original })
    };

    Gateway {
        peers: [(1, peer(1)), (2, peer(2))].into(),
        sources: OWN.map(net).into(),
        local: LOCAL.map(net).into(),
        mapped_pods: MAPPED.map(pod).into(),
        services: [(address_of(SERVICE.0), address_of(SERVICE.1))].into(),
    }
}

fn net(text: &str) -> Ipv4Net {
    text.parse().expect("a prefix")
}

fn address_of(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}
