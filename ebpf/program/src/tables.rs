//! Looks up entries in the eBPF maps, which user space inserts and removes.

use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::macros::map;
use aya_ebpf::maps::lpm_trie::Key;
use aya_ebpf::maps::{HashMap, LpmTrie, PerCpuArray};
use ebpf_common::counter::Counter;
use ebpf_common::maps::{
    CAPACITY, Inbound, Local, Outbound, PEER_BITS, PeerAddress, Source, Unknown, V4,
};
use ebpf_common::probe::{Heartbeat, LastRequest};

#[map]
static OUTBOUND_V4: LpmTrie<V4, Outbound> = LpmTrie::with_max_entries(CAPACITY, BPF_F_NO_PREALLOC);

#[map]
static INBOUND_V4: LpmTrie<PeerAddress, Inbound> =
    LpmTrie::with_max_entries(CAPACITY, BPF_F_NO_PREALLOC);

#[map]
static LOCAL_V4: LpmTrie<V4, Local> = LpmTrie::with_max_entries(CAPACITY, BPF_F_NO_PREALLOC);

#[map]
static SOURCES_V4: LpmTrie<V4, Source> = LpmTrie::with_max_entries(CAPACITY, BPF_F_NO_PREALLOC);

#[map]
static TRANSIT_SOURCES_V4: HashMap<PeerAddress, V4> =
    HashMap::with_max_entries(CAPACITY, BPF_F_NO_PREALLOC);

#[map]
static UNKNOWN_SOURCES_V4: HashMap<[u8; 2], Unknown> =
    HashMap::with_max_entries(CAPACITY, BPF_F_NO_PREALLOC);

#[map]
static NODES_V4: HashMap<V4, u8> = HashMap::with_max_entries(CAPACITY, BPF_F_NO_PREALLOC);

#[map]
static SIGHTINGS_V4: HashMap<V4, LastRequest> =
    HashMap::with_max_entries(CAPACITY, BPF_F_NO_PREALLOC);

/// The heartbeat is in a hash map, because an update of a hash map replaces the whole value
/// atomically. An update of an array does not.
#[map]
static HEARTBEAT: HashMap<u32, Heartbeat> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC);

#[map]
static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Counter::ALL.len() as u32, 0);

/// Returns the peer to which a remapped destination belongs, and the original prefix.
#[inline(always)]
pub(crate) fn outbound(destination: u32) -> Option<&'static Outbound> {
    OUTBOUND_V4.get(Key::new(32, destination.to_ne_bytes()))
}

/// Returns the remapped prefix of a peer's source address.
#[inline(always)]
pub(crate) fn inbound(peer: [u8; 2], source: u32) -> Option<&'static Inbound> {
    INBOUND_V4.get(Key::new(PEER_BITS + 32, peer_address(peer, source)))
}

/// Returns the node or remote pod to which the destination of a packet from a peer belongs.
#[inline(always)]
pub(crate) fn local(destination: u32) -> Option<&'static Local> {
    LOCAL_V4.get(Key::new(32, destination.to_ne_bytes()))
}

/// Returns the address at which peers reach an inner source address of this cluster: the address of
/// the IP object for a ClusterIP, otherwise the source itself.
///
/// Returns `None` if the source does not belong to this cluster.
#[inline(always)]
pub(crate) fn source(source: u32) -> Option<u32> {
    let entry = SOURCES_V4.get(Key::new(32, source.to_ne_bytes()))?;
    Some(match u32::from_ne_bytes(entry.to) {
        0 => source,
        to => to,
    })
}

/// Returns the address of the IP object that stands for the peer's pod with this address.
#[inline(always)]
pub(crate) fn transit_source(peer: [u8; 2], source: u32) -> Option<u32> {
    let address = TRANSIT_SOURCES_V4.get_ptr(peer_address(peer, source))?;
    // SAFETY: A value lives until the program returns. An update allocates a new value, so no other
    // CPU writes this value.
    Some(u32::from_ne_bytes(unsafe { *address }))
}

/// Returns the address that replaces the source of an ICMP error from the peer, if that source is
/// in no CIDR of the peer.
#[inline(always)]
pub(crate) fn unknown_source(peer: [u8; 2]) -> Option<u32> {
    let unknown = UNKNOWN_SOURCES_V4.get_ptr(peer)?;
    // SAFETY: The reasons given in `transit_source` apply.
    Some(u32::from_ne_bytes(unsafe { (*unknown).address }))
}

/// Returns whether an outer source address, in host byte order, belongs to a node.
#[inline(always)]
pub(crate) fn is_node(outer: u32) -> bool {
    NODES_V4.get_ptr(outer.to_be_bytes()).is_some()
}

/// Returns a pointer to the stored request of the node at `outer`, an address in host byte order.
#[inline(always)]
pub(crate) fn last_request(outer: u32) -> Option<*mut LastRequest> {
    SIGHTINGS_V4.get_ptr_mut(outer.to_be_bytes())
}

/// Returns the engine's last heartbeat, or `None` before the first one.
#[inline(always)]
pub(crate) fn heartbeat() -> Option<&'static Heartbeat> {
    let heartbeat = HEARTBEAT.get_ptr(0)?;
    // SAFETY: The reasons given in `transit_source` apply.
    Some(unsafe { &*heartbeat })
}

#[inline(always)]
pub(crate) fn count(counter: Counter) {
    if let Some(count) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: The value belongs to this CPU, and tc programs on one CPU do not preempt each
        // other.
        unsafe { *count += 1 };
    }
}

#[inline(always)]
const fn peer_address(peer: [u8; 2], address: u32) -> PeerAddress {
    PeerAddress {
        peer,
        padding: [0; 2],
        address: address.to_ne_bytes(),
    }
}
