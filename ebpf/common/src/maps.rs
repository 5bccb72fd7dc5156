//! Names, keys, values and limits of the maps.
//!
//! Keys of longest-prefix maps are what follows the prefix length. The IPv6
//! types have the layout their maps will have; the programs do not rewrite
//! IPv6 yet, so no such map is made.

/// A revision of names, keys and values; pinned maps of another one are not adopted.
pub const LAYOUT: u32 = 3;

/// Most entries of each table; what user space enforces.
pub const ENTRIES_MAX: u32 = 65_536;

/// Capacity of the kernel's maps: an update inserts before it deletes.
pub const CAPACITY: u32 = 2 * ENTRIES_MAX;

/// Number of nodes a spread destination chooses among, by hash of the source.
pub const SPREAD_BUCKETS: usize = 16;

/// Longest-prefix match from the destination as seen here to [`Outbound`].
pub const OUTBOUND_V4: &str = "OUTBOUND_V4";

/// Longest-prefix match from [`PeerAddress`] to [`Inbound`].
pub const INBOUND_V4: &str = "INBOUND_V4";

/// Longest-prefix match from the inner destination to [`Local`].
pub const LOCAL_V4: &str = "LOCAL_V4";

/// Longest-prefix match whose keys are the inner sources accepted from the overlay.
pub const SOURCES_V4: &str = "SOURCES_V4";

/// Hash from [`PeerAddress`] to the address that stands for it towards other peers.
pub const TRANSIT_SOURCES_V4: &str = "TRANSIT_SOURCES_V4";

/// Hash from peer index, in network order, to [`Unknown`].
pub const UNKNOWN_SOURCES_V4: &str = "UNKNOWN_SOURCES_V4";

/// Hash whose keys are the outer sources accepted on the overlay.
pub const NODES_V4: &str = "NODES_V4";

/// Hash from a node's outer address to its [`crate::probe::Sighting`]; the kernel writes the values.
pub const SIGHTINGS_V4: &str = "SIGHTINGS_V4";

/// Hash with the one [`crate::probe::Heartbeat`] under key 0.
pub const HEARTBEAT: &str = "HEARTBEAT";

/// Array from lane to its [`Turn`], which user space has in its memory.
pub const TURNS: &str = "TURNS";

/// Array from CPU to the worker of each lane that serves it; [`NO_WORKER`] for none.
pub const WORKERS: &str = "WORKERS";

/// CPUs that [`WORKERS`] knows.
pub const CPUS_MAX: u32 = 1024;

/// What [`WORKERS`] has for a CPU that no worker serves.
pub const NO_WORKER: u32 = u32::MAX;

/// Hash from peer index, in network order, to the lanes that may carry packets to it, a bit each.
pub const LANES: &str = "LANES";

/// The most lanes of one engine.
pub const LANES_MAX: u32 = 16;

/// Which of a lane's workers takes what comes now.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// When something came last, on the clock of `bpf_ktime_get_ns`; written by the kernel.
    pub last: u64,
    /// The `last` of which the worker has taken all that came until then; written by user space.
    pub taken: u64,
    /// Whose turn it is; written by the kernel.
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

/// An address as one peer has it; the peer comes first, so that it is part of every prefix.
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

/// A MAC address, aligned so that the programs copy it word by word.
#[repr(C, align(2))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

/// Bits of a [`PeerAddress`] before the address.
pub const PEER_BITS: u32 = 32;

/// Where a destination as seen here leads.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound<A = V4> {
    /// The original prefix, host bits zero.
    pub to: A,
    /// One bits where the address keeps its own.
    pub host_mask: A,
    /// The MAC address that names the peer at the TAP.
    pub mac: Mac,
    /// Largest TCP segment towards and from the peer, in host order; zero for no limit.
    pub mss: u16,
}

/// How a peer's source is seen here.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound<A = V4> {
    /// The prefix as seen here, host bits zero.
    pub to: A,
    /// One bits where the address keeps its own.
    pub host_mask: A,
    /// Largest TCP segment towards and from the peer, in host order; zero for no limit.
    pub mss: u16,
    /// Zero.
    pub padding: [u8; 2],
}

/// The address under which a peer's unknown sources are seen here.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown<A = V4> {
    /// The address.
    pub address: A,
}

/// One node: `key` is ready for the kernel.
pub const LOCAL_NODE: u32 = 0;

/// A node by hash of the source: `spread` has the outer addresses.
pub const LOCAL_SPREAD: u32 = 1;

/// A pod of another peer: `to` and `mac` say which.
pub const LOCAL_TRANSIT: u32 = 2;

/// Where an inner destination leads.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local<A = V4> {
    /// [`LOCAL_NODE`], [`LOCAL_SPREAD`] or [`LOCAL_TRANSIT`].
    pub kind: u32,
    /// For a node, its outer address; else only its other fields count.
    pub key: TunnelKey,
    /// For a spread, outer addresses in host order, as the kernel's tunnel key has them.
    pub spread: [u32; SPREAD_BUCKETS],
    /// For a transit, the original address.
    pub to: A,
    /// For a transit, the MAC address that names the peer at the TAP.
    pub mac: Mac,
    /// For a transit, the largest TCP segment of that peer, in host order; zero for no limit.
    pub mss: u16,
}

/// The kernel's `struct bpf_tunnel_key` up to and without `local_ipv4`, a size it accepts.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelKey {
    /// VXLAN network identifier, in host order.
    pub id: u32,
    /// Outer address of the other end, in host order; the rest is IPv6's.
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
    /// Hops that an overlay packet may take; the default of Linux.
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
    assert!(size_of::<Turn>() == 24);
    assert!(size_of::<Local<V4>>() == 108);
    assert!(size_of::<Local<V6>>() == 120);
};

/// Returns the bucket of a spread destination for a source, in network order.
///
/// The source is the one seen here, so all replicas choose alike.
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
