//! Keys and values of the entries of the maps.

use super::Prefix;
use crate::error::Error;
use crate::spread::Buckets;
use crate::tables::{Tables, Transit};
use ebpf_common::maps::{
    self, Inbound, LOCAL_NODE, LOCAL_SERVICE, LOCAL_SPREAD, LOCAL_TRANSIT, Mac, Outbound,
    PEER_BITS, PeerAddress, SPREAD_BUCKETS, TunnelKey, V4,
};
use ebpf_common::settings::Settings;
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

pub(super) fn outbound(
    tables: &Tables,
    settings: &Settings,
) -> Result<Vec<(Prefix<V4>, Outbound)>, Error> {
    (tables.outbound.iter())
        .map(|(from, route)| {
            let (to, host_mask) = remap(*from, route.to)?;
            let value = Outbound {
                to,
                host_mask,
                mac: Mac(settings.peer_mac(route.peer)),
                mss: mss(tables, route.peer),
            };
            Ok((prefix(*from), value))
        })
        .collect()
}

pub(super) fn inbound(tables: &Tables) -> Result<Vec<(Prefix<PeerAddress>, Inbound)>, Error> {
    (tables.inbound.iter())
        .map(|(key, to)| {
            let (peer, from) = *key;
            let (to, host_mask) = remap(from, *to)?;
            let value = Inbound {
                to,
                host_mask,
                mss: mss(tables, peer),
                padding: [0; 2],
            };
            Ok((inbound_key(key), value))
        })
        .collect()
}

pub(super) fn node_entry(node: Ipv4Addr, settings: &Settings) -> maps::Local {
    maps::Local {
        kind: LOCAL_NODE,
        key: TunnelKey::new(settings.overlay_vni, node.to_bits()),
        spread: [0; SPREAD_BUCKETS],
        to: [0; 4],
        mac: Mac([0; 6]),
        mss: 0,
    }
}

pub(super) fn spread_entry(spread: Buckets, settings: &Settings) -> maps::Local {
    maps::Local {
        kind: LOCAL_SPREAD,
        spread,
        ..node_entry(Ipv4Addr::UNSPECIFIED, settings)
    }
}

/// Returns the selected nodes of an entry; `None` if its packets go to a single node or to a peer.
pub(super) fn buckets(entry: &maps::Local) -> Option<&Buckets> {
    [LOCAL_SPREAD, LOCAL_SERVICE]
        .contains(&entry.kind)
        .then_some(&entry.spread)
}

pub(super) fn transit_entry(
    transit: &Transit,
    tables: &Tables,
    settings: &Settings,
) -> maps::Local {
    maps::Local {
        kind: LOCAL_TRANSIT,
        to: transit.to.octets(),
        mac: Mac(settings.peer_mac(transit.peer)),
        mss: mss(tables, transit.peer),
        ..node_entry(Ipv4Addr::UNSPECIFIED, settings)
    }
}

fn mss(tables: &Tables, peer: u16) -> u16 {
    tables.mss.get(&peer).copied().unwrap_or_default()
}

/// Returns the network address of `to`, and the mask of the host bits, which a remap keeps.
fn remap(from: Ipv4Net, to: Ipv4Net) -> Result<(V4, V4), Error> {
    if from.prefix_len() != to.prefix_len() {
        return Err(Error::PrefixLengths { from, to });
    }

    Ok((to.network().octets(), to.hostmask().octets()))
}

pub(super) fn prefix(net: Ipv4Net) -> Prefix<V4> {
    (u32::from(net.prefix_len()), net.network().octets())
}

pub(super) fn host(address: Ipv4Addr) -> Prefix<V4> {
    prefix(address.into())
}

/// Inverse of [`prefix`].
pub(super) fn net((len, address): &Prefix<V4>) -> Ipv4Net {
    let len = u8::try_from(*len).unwrap_or(u8::MAX);

    Ipv4Net::new((*address).into(), len).unwrap_or_default()
}

pub(super) fn inbound_key((peer, from): &(u16, Ipv4Net)) -> Prefix<PeerAddress> {
    let len = PEER_BITS + u32::from(from.prefix_len());

    (len, peer_address(&(*peer, from.network())))
}

pub(super) fn peer_address((peer, address): &(u16, Ipv4Addr)) -> PeerAddress {
    PeerAddress {
        peer: peer.to_be_bytes(),
        padding: [0; 2],
        address: address.octets(),
    }
}
