//! Settings that the loader writes into the programs before the kernel verifies them.
//!
//! Integers that the programs compare with header fields are in network byte order.

use aya_ebpf::Global;

/// Number of lanes of the engine, at least 1.
#[unsafe(no_mangle)]
static LANE_COUNT: Global<u32> = Global::new(1);

/// Interface index of the overlay device.
#[unsafe(no_mangle)]
static OVERLAY_IFINDEX: Global<u32> = Global::new(0);

/// Interface index of the TAP.
#[unsafe(no_mangle)]
static TAP_IFINDEX: Global<u32> = Global::new(0);

/// VXLAN network identifier in host byte order, as in the kernel's tunnel key.
#[unsafe(no_mangle)]
static OVERLAY_VNI: Global<u32> = Global::new(0);

/// First four bytes of the peers' MAC addresses on the TAP.
#[unsafe(no_mangle)]
static PEER_MAC_PREFIX: Global<[u8; 4]> = Global::new([0; 4]);

/// MAC address of the nodes' overlay devices, followed by two zero bytes.
#[unsafe(no_mangle)]
static NODE_MAC: Global<u64> = Global::new(0);

/// MAC address of the gateways' overlay devices, followed by two zero bytes.
#[unsafe(no_mangle)]
static GATEWAY_MAC: Global<u64> = Global::new(0);

/// Network that contains the overlay probe addresses.
#[unsafe(no_mangle)]
static PROBE_NET: Global<u32> = Global::new(u32::MAX);

/// Network mask of `PROBE_NET`.
#[unsafe(no_mangle)]
static PROBE_MASK: Global<u32> = Global::new(u32::MAX);

/// UDP port of the overlay probe, in network byte order.
#[unsafe(no_mangle)]
static PROBE_PORT: Global<u16> = Global::new(0);

/// Outer source address in host byte order for `BPF_PROG_TEST_RUN`, whose packets have no tunnel
/// key.
///
/// The value is zero outside of tests, so the verifier removes the code that uses it.
#[unsafe(no_mangle)]
static TEST_OUTER: Global<u32> = Global::new(0);

#[inline(always)]
pub(crate) fn lane_count() -> u32 {
    LANE_COUNT.load().max(1)
}

#[inline(always)]
pub(crate) fn overlay_ifindex() -> u32 {
    OVERLAY_IFINDEX.load()
}

#[inline(always)]
pub(crate) fn tap_ifindex() -> u32 {
    TAP_IFINDEX.load()
}

#[inline(always)]
pub(crate) fn overlay_vni() -> u32 {
    OVERLAY_VNI.load()
}

#[inline(always)]
pub(crate) fn peer_mac_prefix() -> [u8; 4] {
    PEER_MAC_PREFIX.load()
}

#[inline(always)]
pub(crate) fn node_mac() -> [u8; 6] {
    mac(NODE_MAC.load())
}

#[inline(always)]
pub(crate) fn gateway_mac() -> [u8; 6] {
    mac(GATEWAY_MAC.load())
}

#[inline(always)]
pub(crate) fn is_probe_address(address: u32) -> bool {
    address & PROBE_MASK.load() == PROBE_NET.load()
}

#[inline(always)]
pub(crate) fn probe_port() -> u16 {
    PROBE_PORT.load()
}

#[inline(always)]
pub(crate) fn test_outer() -> u32 {
    TEST_OUTER.load()
}

#[inline(always)]
fn mac(bytes: u64) -> [u8; 6] {
    let [a, b, c, d, e, f, _, _] = bytes.to_ne_bytes();
    [a, b, c, d, e, f]
}
