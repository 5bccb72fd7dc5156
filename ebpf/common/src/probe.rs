//! The overlay probe, by which nodes and gateway replicas check the overlay between them.
//!
//! A node sends requests, and the gateway's eBPF program replies. Request and reply are UDP
//! payloads of the same size, so that the program can turn a request into its reply in place. All
//! fields are in network byte order. The first line of the diagram contains offsets in bytes.
//!
//! ```text
//!  0      4          8            16      18      20       28             156
//!  | magic | sequence | sent       | flags | count | digest | up (bitmap)   |  reply
//!  | magic | sequence | sent       | zero  | flags | digest | lost (bitmap) |  request
//! ```
//! A request carries a [`NodeReport`], which the program stores as a [`LastRequest`] for the
//! gateway's process. Programs of earlier versions ignore the report. Nodes of earlier versions
//! send zeros instead.
//!
//! Both bitmaps have one bit per remote cluster. The number of the bit is the cluster's *rank*: its
//! position in the sorted list of cluster ids. The digest is a hash of this list. Node and gateway
//! compare their digests, because ranks are valid only if both have the same list.

/// Length of a probe in bytes.
pub const LEN: usize = size_of::<Probe>();

/// First bytes of a probe. The digit is the version of the format.
pub const MAGIC: [u8; 4] = *b"LQP1";

/// Flag of [`Body::flags`] that distinguishes a reply from a request.
pub const REPLY: u16 = 1;

/// Flag of [`Body::flags`] in the replies of a replica that is about to stop.
pub const LEAVING: u16 = 2;

/// Highest number of remote clusters in one probe: the length of the bitmap in bits.
pub const PEERS_MAX: usize = 1024;

/// Highest age of a heartbeat, in nanoseconds, at which the eBPF program still replies to probes.
///
/// With this limit, the replies end if the engine's process hangs. If the process dies, the replies
/// end at once, because the kernel closes the process's socket on the probe's port.
pub const HEARTBEAT_AGE_MAX_NS: u64 = 500_000_000;

/// Flag of [`NodeReport::flags`] that each report contains. Nodes of earlier versions send zeros
/// instead of a report.
pub const HAS_REPORT: u16 = 1;

/// Flag of [`NodeReport::flags`]: the node receives the replies of this replica.
pub const RECEIVES_REPLIES: u16 = 2;

/// Flag of [`NodeReport::flags`]: the node replies to end-to-end checks from nodes of remote
/// clusters.
pub const HAS_ECHO_RESPONDER: u16 = 4;

/// Flag of [`NodeReport::flags`]: the node's route agent is stopping, so this request is the last
/// one.
pub const STOPPING: u16 = 8;

/// A probe in its wire format.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The constant [`MAGIC`].
    pub magic: [u8; 4],
    /// Number of the request. The reply contains the same number.
    pub sequence: [u8; 4],
    /// Sending time of the request, by the sender's clock. The reply contains the same time.
    pub sent: [u8; 8],
    /// In a reply, the state of the replica. In a request, a [`NodeReport`] in the same bytes.
    pub body: Body,
}

/// State of a gateway replica in a reply.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// Any of [`REPLY`] and [`LEAVING`].
    pub flags: [u8; 2],
    /// Number of remote clusters that the bitmap covers.
    pub count: [u8; 2],
    /// The [`digest`] of the remote clusters' sorted ids.
    pub digest: [u8; 8],
    /// Bitmap of the reachable remote clusters by rank, lowest bit first.
    pub up: [u8; PEERS_MAX / 8],
}

const _: () = assert!(LEN == 156, "the wire format fixes the size of a probe");
const _: () = assert!(size_of::<Body>() == 140 && size_of::<Body>().is_multiple_of(4));

impl Probe {
    /// Creates a request without a report; `sent` is the time by the sender's clock.
    pub const fn request(sequence: u32, sent: u64) -> Self {
        Self {
            magic: MAGIC,
            sequence: sequence.to_be_bytes(),
            sent: sent.to_be_bytes(),
            body: Body::EMPTY,
        }
    }

    /// Adds a node's report to a request.
    pub fn with_report(mut self, report: &NodeReport) -> Self {
        self.body.count = report.flags.to_be_bytes();
        self.body.digest = report.digest.to_be_bytes();
        self.body.up = report.lost;

        self
    }

    /// Parses a payload; returns `None` unless it is a probe of this version.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let payload: &[u8; LEN] = payload.try_into().ok()?;
        let (magic, rest) = payload.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (sent, rest) = rest.split_first_chunk()?;
        let (flags, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let (digest, rest) = rest.split_first_chunk()?;
        let up = rest.try_into().ok()?;
        if *magic != MAGIC {
            return None;
        }

        Some(Self {
            magic: *magic,
            sequence: *sequence,
            sent: *sent,
            body: Body {
                flags: *flags,
                count: *count,
                digest: *digest,
                up,
            },
        })
    }

    /// Returns the UDP payload of the probe.
    pub fn encode(&self) -> [u8; LEN] {
        let mut payload = [0; LEN];
        let fields: [&[u8]; 7] = [
            &self.magic,
            &self.sequence,
            &self.sent,
            &self.body.flags,
            &self.body.count,
            &self.body.digest,
            &self.body.up,
        ];
        let mut at = 0;
        for field in fields {
            payload[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        }

        payload
    }

    /// Returns the number by which the sender of a request matches the reply to the request.
    pub const fn sequence(&self) -> u32 {
        u32::from_be_bytes(self.sequence)
    }

    /// Returns the sending time of the request, by the clock of the request's sender.
    pub const fn sent(&self) -> u64 {
        u64::from_be_bytes(self.sent)
    }
}

impl Body {
    /// The body of a request without a report: all bytes are zero.
    pub const EMPTY: Self = Self {
        flags: [0; 2],
        count: [0; 2],
        digest: [0; 8],
        up: [0; PEERS_MAX / 8],
    };

    /// Returns whether the body belongs to a reply, not to a request.
    pub const fn is_reply(&self) -> bool {
        u16::from_be_bytes(self.flags) & REPLY != 0
    }

    /// Returns whether the replica that sent the reply is about to stop.
    pub const fn is_leaving(&self) -> bool {
        u16::from_be_bytes(self.flags) & LEAVING != 0
    }

    /// Returns the number of remote clusters that the bitmap covers.
    pub const fn count(&self) -> u16 {
        u16::from_be_bytes(self.count)
    }

    /// Returns the [`digest`] of the remote clusters' sorted ids.
    pub const fn digest(&self) -> u64 {
        u64::from_be_bytes(self.digest)
    }

    /// Returns whether the replica reaches the remote cluster with this rank.
    ///
    /// Returns `false` for ranks that the bitmap does not cover.
    pub fn is_up(&self, rank: usize) -> bool {
        rank < usize::from(self.count())
            && self
                .up
                .get(rank / 8)
                .is_some_and(|byte| byte & (1 << (rank % 8)) != 0)
    }
}

/// State of a node, which the node's requests report to the gateway replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// Any of [`HAS_REPORT`], [`RECEIVES_REPLIES`], [`HAS_ECHO_RESPONDER`] and [`STOPPING`].
    pub flags: u16,
    /// The [`digest`] of the remote clusters' sorted ids.
    pub digest: u64,
    /// Bitmap by rank. A bit is set if this node does not reach the nodes of the remote cluster.
    pub lost: [u8; PEERS_MAX / 8],
}

impl NodeReport {
    /// Creates a report in which the clusters with the ranks `lost` are unreachable.
    ///
    /// The bitmap has no room for ranks of [`PEERS_MAX`] and more, so the report omits them.
    pub fn new(flags: u16, digest: u64, lost: impl IntoIterator<Item = usize>) -> Self {
        let mut bitmap = [0; PEERS_MAX / 8];
        for rank in lost {
            if let Some(byte) = bitmap.get_mut(rank / 8) {
                *byte |= 1 << (rank % 8);
            }
        }

        Self {
            flags: flags | HAS_REPORT,
            digest,
            lost: bitmap,
        }
    }
}

/// A node's last request, which the eBPF program stores for the gateway's process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRequest {
    /// Time of arrival in nanoseconds by `CLOCK_MONOTONIC`; zero before the first request.
    pub ktime_ns: u64,
    /// The body of the request, which contains a [`NodeReport`].
    pub body: Body,
    /// Always zero. Explicit padding leaves no byte of the value uninitialized.
    pub padding: [u8; 4],
}

const _: () = assert!(size_of::<LastRequest>() == 152);

impl LastRequest {
    /// The entry of a node whose first request has not arrived yet.
    pub const NONE: Self = Self {
        ktime_ns: 0,
        body: Body::EMPTY,
        padding: [0; 4],
    };

    /// Returns whether `flag` is set in the node's report.
    pub const fn has_flag(&self, flag: u16) -> bool {
        // A request has its flags at the offset where a reply has the count.
        self.body.count() & flag != 0
    }

    /// Returns the [`digest`] of the remote clusters' sorted ids, as the node computed it.
    pub const fn digest(&self) -> u64 {
        self.body.digest()
    }

    /// Returns the ranks of the remote clusters whose nodes this node does not reach, in ascending
    /// order.
    pub fn lost(&self) -> impl Iterator<Item = usize> {
        let bytes = self.body.up.into_iter().enumerate();
        bytes.filter(|(_, byte)| *byte != 0).flat_map(|(at, byte)| {
            (0..8usize)
                .filter(move |bit| byte & (1 << bit) != 0)
                .map(move |bit| at * 8 + bit)
        })
    }
}

/// State of a gateway replica. The engine refreshes it, and the eBPF program sends it in replies.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Time of the heartbeat in nanoseconds by `CLOCK_MONOTONIC`, which the loader sets.
    pub ktime_ns: u64,
    /// The body of all replies until the next heartbeat.
    pub body: Body,
    /// Always zero. Explicit padding leaves no byte of the value uninitialized.
    pub padding: [u8; 4],
}

const _: () = assert!(size_of::<Heartbeat>() == 152);

impl Heartbeat {
    /// Creates a heartbeat without a time. The loader sets the time when it publishes the
    /// heartbeat.
    ///
    /// `up` states for each remote cluster, in the order of the sorted ids, whether the replica
    /// reaches the cluster. The heartbeat omits all clusters after the first [`PEERS_MAX`].
    pub fn new(leaving: bool, digest: u64, up: impl IntoIterator<Item = bool>) -> Self {
        let mut body = Body::EMPTY;
        let mut count: u16 = 0;
        for (rank, is_up) in up.into_iter().take(PEERS_MAX).enumerate() {
            count += 1;
            if is_up {
                body.up[rank / 8] |= 1 << (rank % 8);
            }
        }

        let flags = if leaving { REPLY | LEAVING } else { REPLY };
        body.flags = flags.to_be_bytes();
        body.count = count.to_be_bytes();
        body.digest = digest.to_be_bytes();

        Self {
            ktime_ns: 0,
            body,
            padding: [0; 4],
        }
    }
}

/// Returns the 64-bit FNV-1a hash of the `ids`, joined by line feeds.
///
/// Callers pass the sorted ids of the remote clusters. If a node and a gateway compute the same
/// digest, a rank identifies the same cluster on both.
pub fn digest<'a>(ids: impl IntoIterator<Item = &'a str>) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);

    let mut hash = OFFSET;
    for (index, id) in ids.into_iter().enumerate() {
        if index > 0 {
            hash = step(hash, &b'\n');
        }
        hash = id.as_bytes().iter().fold(hash, step);
    }

    hash
}

#[cfg(test)]
mod tests;
