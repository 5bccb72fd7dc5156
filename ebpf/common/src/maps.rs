//! Names, keys, values and limits of the maps.
//!
//! A key of a longest-prefix map is the part that follows the prefix length. The IPv6
//! types fix the layout of future maps: the programs do not rewrite IPv6 yet.

/// Revision of names, keys and values; pinned maps of another revision are not adopted.
pub const LAYOUT: u32 = 3;

/// Most entries of each table; user space enforces it.
pub const ENTRIES_MAX: u32 = 65_536;

/// Capacity of the kernel's maps: an update inserts before it deletes.
pub const CAPACITY: u32 = 2 * ENTRIES_MAX;

/// Buckets of a spread destination: a hash of the source selects one.
pub const SPREAD_BUCKETS: usize = 16;

/// Longest-prefix match from the remapped destination to [`Outbound`].
pub const OUTBOUND_V4: &str = "OUTBOUND_V4";

/// Longest-prefix match from [`PeerAddress`] to [`Inbound`].
pub const INBOUND_V4: &str = "INBOUND_V4";

/// Longest-prefix match from the inner destination to [`Local`].
pub const LOCAL_V4: &str = "LOCAL_V4";

/// Longest-prefix match whose keys are the inner sources accepted from the overlay.
pub const SOURCES_V4: &str = "SOURCES_V4";

/// Hash from [`PeerAddress`] to the address of its IP object.
pub const TRANSIT_SOURCES_V4: &str = "TRANSIT_SOURCES_V4";

/// Hash from peer index, in network order, to [`Unknown`].
pub const UNKNOWN_SOURCES_V4: &str = "UNKNOWN_SOURCES_V4";

/// Hash whose keys are the outer sources accepted on the overlay.
pub const NODES_V4: &str = "NODES_V4";

/// Hash from a node's outer address to its [`crate::probe::Sighting`]; the kernel writes the values.
pub const SIGHTINGS_V4: &str = "SIGHTINGS_V4";

/// Hash with the one [`crate::probe::Heartbeat`] under key 0.
pub const HEARTBEAT: &str = "HEARTBEAT";

/// Array from lane to its [`ActiveWorker`]; user space maps it into its memory.
pub const ACTIVE_WORKERS: &str = "ACTIVE_WORKERS";

/// Array from CPU to the worker that serves it, the same in all lanes, or [`NO_WORKER`].
pub const WORKERS: &str = "WORKERS";

/// Length of [`WORKERS`].
pub const CPUS_MAX: u32 = 1024;

/// The entry of [`WORKERS`] for a CPU that no worker serves.
pub const NO_WORKER: u32 = u32::MAX;

/// Hash from peer index, in network order, to a bitmap of the lanes that may carry packets to it.
pub const LANES: &str = "LANES";

/// The most lanes of one engine.
pub const LANES_MAX: u32 = 16;

/// The worker that receives a lane's packets now.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActiveWorker {
    /// Time of the last packet, by `bpf_ktime_get_ns`; written by the kernel.
    pub last: u64,
    /// The value of `last` up to which the worker has read everything; written by user space.
    pub taken: u64,
    /// Index of the worker; written by the kernel.
    pub worker: u32,
    /// Zero.
    pub padding: u32,
}

/// Counters per CPU, indexed by [`crate::counter::Counter`].
pub const COUNTERS: &str = "COUNTERS";

/// An IPv4 address in network order.
pub type V4 = [u8; 4];

/// An IPv6 address in network order.
pub type V6 = [u8; 16];

/// An original address of a peer. The peer comes first, so that it is part of every prefix.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerAddress<A = V4> {
    /// The peer's index, in network order.
    pub peer: [u8; 2],
    /// Zero; the kernel compares the IPv4 key as one 64-bit word.
    pub padding: [u8; 2],
    /// The address.
    pub address: A,
}

/// A MAC address, aligned so that it is copied word by word.
#[repr(C, align(2))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

/// Bits of a [`PeerAddress`] before the address.
pub const PEER_BITS: u32 = 32;

/// The peer to which a remapped destination belongs.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound<A = V4> {
    /// The original prefix, host bits zero.
    pub to: A,
    /// Mask of the host part, which stays.
    pub host_mask: A,
    /// The MAC address that names the peer at the TAP.
    pub mac: Mac,
    /// Largest TCP segment towards and from the peer, in host order; zero for no limit.
    pub mss: u16,
}

/// The remapping of a peer's source.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound<A = V4> {
    /// The remapped prefix, host bits zero.
    pub to: A,
    /// Mask of the host part, which stays.
    pub host_mask: A,
    /// Largest TCP segment towards and from the peer, in host order; zero for no limit.
    pub mss: u16,
    /// Zero.
    pub padding: [u8; 2],
}

/// The address to which a peer's unknown sources are mapped.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown<A = V4> {
    /// The address.
    pub address: A,
}

/// [`Local::kind`] of a node: `key` is complete.
pub const LOCAL_NODE: u32 = 0;

/// [`Local::kind`] of a node selected by hash of the source, out of `spread`.
pub const LOCAL_SPREAD: u32 = 1;

/// [`Local::kind`] of a pod of another peer: `to` and `mac` identify it.
pub const LOCAL_TRANSIT: u32 = 2;

/// The node or pod to which an inner destination belongs.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local<A = V4> {
    /// [`LOCAL_NODE`], [`LOCAL_SPREAD`] or [`LOCAL_TRANSIT`].
    pub kind: u32,
    /// For a node, its outer address; for a spread, the template of the key.
    pub key: TunnelKey,
    /// For a spread, outer addresses in host order, as in the kernel's tunnel key.
    pub spread: [u32; SPREAD_BUCKETS],
    /// For a transit, the original address.
    pub to: A,
    /// For a transit, the MAC address that names the peer at the TAP.
    pub mac: Mac,
    /// For a transit, the largest TCP segment of that peer, in host order; zero for no limit.
    pub mss: u16,
}

/// The kernel's `struct bpf_tunnel_key` up to and without `local_ipv4`, a size that it accepts.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelKey {
    /// VXLAN network identifier, in host order.
    pub id: u32,
    /// Outer address of the remote end, in host order; the other three words are for IPv6.
    pub remote: [u32; 4],
    /// Outer type of service.
    pub tos: u8,
    /// Outer time to live.
    pub ttl: u8,
    /// Zero.
    pub ext: u16,
    /// Zero; the flow label of IPv6.
    pub label: u32,
}

impl TunnelKey {
    /// Outer time to live: the default of Linux.
    pub const TTL: u8 = 64;

    /// Creates the key for `remote`, an IPv4 address in host order.
    pub const fn new(id: u32, remote: u32) -> Self {
        Self {
            id,
            remote: [remote, 0, 0, 0],
            tos: 0,
            ttl: Self::TTL,
            ext: 0,
            label: 0,
        }
    }
}

const _: () = {
    assert!(size_of::<PeerAddress<V4>>() == 8);
    assert!(size_of::<PeerAddress<V6>>() == 20);
    assert!(size_of::<Mac>() == 6);
    assert!(size_of::<Outbound<V4>>() == 16);
    assert!(size_of::<Outbound<V6>>() == 40);
    assert!(size_of::<Inbound<V4>>() == 12);
    assert!(size_of::<Inbound<V6>>() == 36);
    assert!(size_of::<Unknown<V4>>() == 4);
    assert!(size_of::<TunnelKey>() == 28);
    assert!(size_of::<ActiveWorker>() == 24);
    assert!(size_of::<Local<V4>>() == 108);
    assert!(size_of::<Local<V6>>() == 120);
};

/// Returns the bucket of a spread destination for a source, in network order.
///
/// The source is the remapped one, so that all replicas select the same bucket.
#[inline(always)]
pub const fn spread_bucket(source: V4) -> usize {
    // Fibonacci hashing: the upper bits depend on all bits of the address.
    let hash = u32::from_be_bytes(source).wrapping_mul(0x9e37_79b1);
    (hash >> 28) as usize
}

const _: () = assert!(
    SPREAD_BUCKETS == 1 << 4,
    "`spread_bucket` returns four bits"
);
