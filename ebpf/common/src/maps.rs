//! Names, keys, values and limits of the eBPF maps.
//!
//! The key types of longest-prefix-match maps leave out the prefix length, which precedes the key
//! in the kernel. The IPv6 types define the layout of future maps, because the programs do not
//! forward IPv6 packets yet.

/// Revision of map names, keys and values. The loader ignores pinned maps of another revision.
pub const LAYOUT: u32 = 4;

/// Highest number of entries that user space accepts for each map.
pub const ENTRIES_MAX: u32 = 65_536;

/// Highest number of entries that the kernel accepts for each map.
///
/// It is twice [`ENTRIES_MAX`], because an update inserts the new entries before it deletes the old
/// ones.
pub const CAPACITY: u32 = 2 * ENTRIES_MAX;

/// Length of [`Local::spread`], the list of nodes from which the program selects one by hash.
pub const SPREAD_BUCKETS: usize = 16;

/// Longest-prefix-match map from a remapped destination address to [`Outbound`].
pub const OUTBOUND_V4: &str = "OUTBOUND_V4";

/// Longest-prefix-match map from the [`PeerAddress`] of a source to [`Inbound`].
pub const INBOUND_V4: &str = "INBOUND_V4";

/// Longest-prefix-match map from the destination of a packet from a peer to [`Local`].
pub const LOCAL_V4: &str = "LOCAL_V4";

/// Longest-prefix-match map from a prefix of this cluster to [`Source`].
///
/// The gateway drops a packet from a node if its inner source is in none of these prefixes.
pub const SOURCES_V4: &str = "SOURCES_V4";

/// Hash map from the [`PeerAddress`] of a pod to the address of the IP object that stands for it.
pub const TRANSIT_SOURCES_V4: &str = "TRANSIT_SOURCES_V4";

/// Hash map from a peer's index, in network byte order, to [`Unknown`].
pub const UNKNOWN_SOURCES_V4: &str = "UNKNOWN_SOURCES_V4";

/// Hash map whose keys are the outer addresses of the nodes.
///
/// The gateway drops an overlay packet if its outer source is none of these addresses.
pub const NODES_V4: &str = "NODES_V4";

/// Hash map from a node's outer address to the node's [`LastRequest`](crate::probe::LastRequest).
///
/// User space inserts and removes the entries, and the eBPF program updates their values.
pub const SIGHTINGS_V4: &str = "SIGHTINGS_V4";

/// Hash map with a single [`Heartbeat`](crate::probe::Heartbeat), whose key is 0.
pub const HEARTBEAT: &str = "HEARTBEAT";

/// Array from the number of a lane to its [`ActiveWorker`]. User space accesses the array through
/// `mmap`.
pub const ACTIVE_WORKERS: &str = "ACTIVE_WORKERS";

/// Array from the number of a CPU to the index of the worker whose group contains the CPU.
///
/// The index is [`NO_WORKER`] if no group contains the CPU. The groups are the same in all lanes.
pub const WORKERS: &str = "WORKERS";

/// Length of [`WORKERS`].
///
/// CPUs with this number or a higher one have no entry. A packet that arrives on such a CPU does
/// not change the active worker.
pub const CPUS_MAX: u32 = 1024;

/// Entry of [`WORKERS`] for a CPU that is in no worker's group.
pub const NO_WORKER: u32 = u32::MAX;

/// Hash map from a peer's index, in network byte order, to the bitmap of the lanes that may carry
/// packets to the peer.
pub const LANES: &str = "LANES";

/// Highest number of lanes in one engine.
pub const LANES_MAX: u32 = 16;

/// The worker that currently receives a lane's packets.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActiveWorker {
    /// Arrival time of the lane's last packet, by `bpf_ktime_get_ns`. The eBPF program writes this
    /// field.
    pub last: u64,
    /// The active worker has read all packets that arrived up to this time. User space writes this
    /// field.
    pub taken: u64,
    /// Index of the active worker. The eBPF program writes this field.
    pub worker: u32,
    /// Always zero.
    pub padding: u32,
}

/// Per-CPU array of counters, indexed by [`Counter`](crate::counter::Counter).
pub const COUNTERS: &str = "COUNTERS";

/// An IPv4 address in network byte order.
pub type V4 = [u8; 4];

/// An IPv6 address in network byte order.
pub type V6 = [u8; 16];

/// An original address of a peer, before remapping.
///
/// The peer's index precedes the address, so that a longest-prefix match always compares the whole
/// index.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerAddress<A = V4> {
    /// The peer's index, in network byte order.
    pub peer: [u8; 2],
    /// Always zero. It pads the IPv4 key to 64 bits, which the kernel compares as one word.
    pub padding: [u8; 2],
    /// The address as the peer itself uses it.
    pub address: A,
}

/// A MAC address. The alignment lets the compiler copy it in 16-bit words.
#[repr(C, align(2))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

/// Number of bits that precede the address in a [`PeerAddress`].
pub const PEER_BITS: u32 = 32;

/// The peer to which a remapped destination belongs, and the original prefix of that destination.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound<A = V4> {
    /// The original prefix, with host bits zero.
    pub to: A,
    /// Mask of the host bits, which a remap keeps.
    pub host_mask: A,
    /// The peer's MAC address on the TAP.
    pub mac: Mac,
    /// Highest maximum segment size that a TCP handshake may announce to the peer, in host byte
    /// order; zero means no limit.
    pub mss: u16,
}

/// A prefix from which nodes send packets to peers.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source<A = V4> {
    /// If the prefix is a ClusterIP, the address of the IP object that stands for it. The address
    /// replaces the source. Zero if the source stays.
    pub to: A,
}

/// The remapped prefix of a peer's source address.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound<A = V4> {
    /// The remapped prefix, with host bits zero.
    pub to: A,
    /// Mask of the host bits, which a remap keeps.
    pub host_mask: A,
    /// Highest maximum segment size that a TCP handshake from the peer may announce, in host byte
    /// order; zero means no limit.
    pub mss: u16,
    /// Always zero.
    pub padding: [u8; 2],
}

/// The address that replaces a source address that is in no CIDR of a peer.
///
/// The program replaces only sources of ICMP errors, which routers between the peer's pods may
/// send.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown<A = V4> {
    /// An address of the peer's remapped external CIDR.
    pub address: A,
}

/// [`Local::kind`] of a destination behind a certain node, which [`Local::key`] identifies.
pub const LOCAL_NODE: u32 = 0;

/// [`Local::kind`] of a destination to which any of several nodes can forward packets.
///
/// A hash of the packet's source address selects a node in [`Local::spread`].
pub const LOCAL_SPREAD: u32 = 1;

/// [`Local::kind`] of an IP object that stands for a pod of a peer.
///
/// [`Local::to`] and [`Local::mac`] identify the pod and its peer.
pub const LOCAL_TRANSIT: u32 = 2;

/// [`Local::kind`] of an IP object that stands for the ClusterIP of a Service.
///
/// [`Local::to`] is the ClusterIP. A node is selected as for [`LOCAL_SPREAD`], and kube-proxy
/// on this node selects an endpoint.
pub const LOCAL_SERVICE: u32 = 3;

/// The node or remote pod to which the inner destination of a peer's packet belongs.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local<A = V4> {
    /// Kind of the destination: [`LOCAL_NODE`], [`LOCAL_SPREAD`], [`LOCAL_TRANSIT`] or
    /// [`LOCAL_SERVICE`].
    pub kind: u32,
    /// For [`LOCAL_NODE`], the tunnel key of the node.
    pub key: TunnelKey,
    /// For [`LOCAL_SPREAD`] and [`LOCAL_SERVICE`], outer addresses of nodes in host byte order, by
    /// [`spread_bucket`].
    ///
    /// A node may occur several times.
    pub spread: [u32; SPREAD_BUCKETS],
    /// For [`LOCAL_TRANSIT`], the pod's original address. For [`LOCAL_SERVICE`], the ClusterIP.
    pub to: A,
    /// For [`LOCAL_TRANSIT`], the MAC address of the pod's peer on the TAP.
    pub mac: Mac,
    /// For [`LOCAL_TRANSIT`], the highest maximum segment size that a TCP handshake may announce to
    /// the pod's peer, in host byte order; zero means no limit.
    pub mss: u16,
}

/// The fields of the kernel's `struct bpf_tunnel_key` that precede `local_ipv4`.
///
/// The kernel accepts a structure of this smaller size.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelKey {
    /// VXLAN network identifier, in host byte order.
    pub id: u32,
    /// Outer IPv4 address of the remote end in the first word, in host byte order.
    ///
    /// Only IPv6 uses the other three words.
    pub remote: [u32; 4],
    /// Type of service of the outer header.
    pub tos: u8,
    /// TTL of the outer header.
    pub ttl: u8,
    /// Always zero.
    pub ext: u16,
    /// Always zero, because only IPv6 has a flow label.
    pub label: u32,
}

impl TunnelKey {
    /// TTL of the outer header: the default of Linux.
    pub const TTL: u8 = 64;

    /// Creates a tunnel key; `remote` is an IPv4 address in host byte order.
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
    assert!(size_of::<Source<V4>>() == 4);
    assert!(size_of::<Source<V6>>() == 16);
    assert!(size_of::<Inbound<V4>>() == 12);
    assert!(size_of::<Inbound<V6>>() == 36);
    assert!(size_of::<Unknown<V4>>() == 4);
    assert!(size_of::<TunnelKey>() == 28);
    assert!(size_of::<ActiveWorker>() == 24);
    assert!(size_of::<Local<V4>>() == 108);
    assert!(size_of::<Local<V6>>() == 120);
};

/// Returns the index in [`Local::spread`] for packets from `source`, a remapped address.
///
/// All gateway replicas remap a source to the same address, so they return the same index. For an
/// ICMP error, `source` is the remapped destination of the quoted packet. Thus the error reaches
/// the node that forwarded the quoted packet.
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
