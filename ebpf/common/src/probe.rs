//! The overlay probe: a node sends requests, the gateway's kernel program replies.
//!
//! Request and reply are UDP payloads of one fixed size, so that the program writes
//! the reply in place. All fields are in network order.
//!
//! ```text
//!  0      4          8            16      18      20       28             156
//!  | magic | sequence | sent       | flags | count | digest | up (bitmap)   |  reply
//!  | magic | sequence | sent       | zero  | said  | digest | lost (bitmap) |  request
//! ```
//! A request carries the node's report (a [`Statement`]), which the program stores for the
//! gateway as a [`Sighting`]. Programs of earlier versions ignore it, and nodes of earlier
//! versions send zeros.

/// Length of a probe in bytes.
pub const LEN: usize = size_of::<Probe>();

/// First bytes of a probe; the digit is the version of the format.
pub const MAGIC: [u8; 4] = *b"LQP1";

/// Set in every reply and in no request, so that replies get no reply.
pub const ANSWERED: u16 = 1;

/// Set in the replies of a replica that is about to stop.
pub const LEAVING: u16 = 2;

/// Most remote clusters that a reply can cover.
pub const PEERS_MAX: usize = 1024;

/// Age of the heartbeat up to which the kernel replies, in nanoseconds.
///
/// It covers a process that hangs. A process that dies is noticed at once, because the
/// kernel closes its socket on the probe's port.
pub const HEARTBEAT_AGE_MAX_NS: u64 = 500_000_000;

/// Flag of a report: always set, so that the zeros of earlier versions differ from a report.
pub const SPEAKS: u16 = 1;

/// Flag of a report: this replica's replies arrive at the node.
pub const HEARS: u16 = 2;

/// Flag of a report: the node replies to checks of remote clusters' nodes.
pub const REFLECTS: u16 = 4;

/// Flag of a report: the route agent is stopping, and this is its last request.
pub const RESTS: u16 = 8;

/// A probe on the wire.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// [`MAGIC`].
    pub magic: [u8; 4],
    /// Chosen by the sender of the request, returned unchanged.
    pub sequence: [u8; 4],
    /// Clock of the sender of the request, returned unchanged.
    pub sent: [u8; 8],
    /// The reply; in a request, the node's report: see [`Statement`].
    pub answer: Answer,
}

/// The state of a gateway replica.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// [`ANSWERED`] and [`LEAVING`].
    pub flags: [u8; 2],
    /// Number of remote clusters the bitmap covers.
    pub count: [u8; 2],
    /// [`digest`] of the sorted remote cluster ids, which defines the ranks.
    pub digest: [u8; 8],
    /// One bit per remote cluster by its rank in the sorted list of ids, lowest bit first.
    pub up: [u8; PEERS_MAX / 8],
}

const _: () = assert!(LEN == 156, "the size of a probe is an interface");
const _: () = assert!(size_of::<Answer>() == 140 && size_of::<Answer>().is_multiple_of(4));

impl Probe {
    /// Creates a request.
    pub const fn request(sequence: u32, sent: u64) -> Self {
        Self {
            magic: MAGIC,
            sequence: sequence.to_be_bytes(),
            sent: sent.to_be_bytes(),
            answer: Answer::EMPTY,
        }
    }

    /// Returns the request with the node's report.
    pub fn saying(mut self, statement: &Statement) -> Self {
        self.answer.count = statement.said.to_be_bytes();
        self.answer.digest = statement.digest.to_be_bytes();
        self.answer.up = statement.lost;

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
            answer: Answer {
                flags: *flags,
                count: *count,
                digest: *digest,
                up,
            },
        })
    }

    /// Returns the probe as a UDP payload.
    pub fn encode(&self) -> [u8; LEN] {
        let mut payload = [0; LEN];
        let fields: [&[u8]; 7] = [
            &self.magic,
            &self.sequence,
            &self.sent,
            &self.answer.flags,
            &self.answer.count,
            &self.answer.digest,
            &self.answer.up,
        ];
        let mut at = 0;
        for field in fields {
            payload[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        }

        payload
    }

    /// Returns the number that the sender of the request chose.
    pub const fn sequence(&self) -> u32 {
        u32::from_be_bytes(self.sequence)
    }

    /// Returns the time of the request by its sender's clock.
    pub const fn sent(&self) -> u64 {
        u64::from_be_bytes(self.sent)
    }
}

impl Answer {
    /// The state in a request without a report.
    pub const EMPTY: Self = Self {
        flags: [0; 2],
        count: [0; 2],
        digest: [0; 8],
        up: [0; PEERS_MAX / 8],
    };

    /// Returns whether this is a reply.
    pub const fn is_answered(&self) -> bool {
        u16::from_be_bytes(self.flags) & ANSWERED != 0
    }

    /// Returns whether the replica is about to stop.
    pub const fn is_leaving(&self) -> bool {
        u16::from_be_bytes(self.flags) & LEAVING != 0
    }

    /// Returns the number of remote clusters that the bitmap covers.
    pub const fn count(&self) -> u16 {
        u16::from_be_bytes(self.count)
    }

    /// Returns the [`digest`] of the sorted ids, which defines the ranks.
    pub const fn digest(&self) -> u64 {
        u64::from_be_bytes(self.digest)
    }

    /// Returns whether the remote cluster of this rank is up; `false` from [`Answer::count`] on.
    pub fn is_up(&self, rank: usize) -> bool {
        rank < usize::from(self.count())
            && self
                .up
                .get(rank / 8)
                .is_some_and(|byte| byte & (1 << (rank % 8)) != 0)
    }
}

/// A node's report in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// [`SPEAKS`], [`HEARS`], [`REFLECTS`] and [`RESTS`].
    pub said: u16,
    /// [`digest`] of the sorted remote cluster ids, which defines the ranks.
    pub digest: u64,
    /// One bit per remote cluster, set if the node does not reach its nodes, by rank as in
    /// [`Answer::up`].
    pub lost: [u8; PEERS_MAX / 8],
}

impl Statement {
    /// Creates a report that the clusters of the ranks `lost` are unreachable; ranks from
    /// [`PEERS_MAX`] on are left out.
    pub fn new(said: u16, digest: u64, lost: impl IntoIterator<Item = usize>) -> Self {
        let mut bitmap = [0; PEERS_MAX / 8];
        for rank in lost {
            if let Some(byte) = bitmap.get_mut(rank / 8) {
                *byte |= 1 << (rank % 8);
            }
        }

        Self {
            said: said | SPEAKS,
            digest,
            lost: bitmap,
        }
    }
}

/// A node's last request, as the kernel stores it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Time of arrival by `CLOCK_MONOTONIC`; zero before the first.
    pub ktime_ns: u64,
    /// The report, in the fields of a reply: see [`Sighting::says`].
    pub request: Answer,
    /// Explicit padding: no byte of the value is uninitialized.
    pub padding: [u8; 4],
}

const _: () = assert!(size_of::<Sighting>() == 152);

impl Sighting {
    /// The entry of a node that has sent no request yet.
    pub const NONE: Self = Self {
        ktime_ns: 0,
        request: Answer::EMPTY,
        padding: [0; 4],
    };

    /// Returns whether the report has this flag.
    pub const fn says(&self, flag: u16) -> bool {
        self.request.count() & flag != 0
    }

    /// Returns the [`digest`] of the sorted ids, which defines the ranks.
    pub const fn digest(&self) -> u64 {
        self.request.digest()
    }

    /// Returns the ranks of the remote clusters whose nodes it does not reach, in ascending order.
    pub fn lost(&self) -> impl Iterator<Item = usize> {
        let bytes = self.request.up.into_iter().enumerate();
        bytes.filter(|(_, byte)| *byte != 0).flat_map(|(at, byte)| {
            (0..8usize)
                .filter(move |bit| byte & (1 << bit) != 0)
                .map(move |bit| at * 8 + bit)
        })
    }
}

/// The heartbeat of a gateway replica, from which the kernel replies.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Time of the heartbeat by `CLOCK_MONOTONIC`; the loader sets it.
    pub ktime_ns: u64,
    /// The reply.
    pub answer: Answer,
    /// Explicit padding: no byte of the value is uninitialized.
    pub padding: [u8; 4],
}

const _: () = assert!(size_of::<Heartbeat>() == 152);

impl Heartbeat {
    /// Creates a heartbeat; `up` is the state of each remote cluster, sorted by id.
    ///
    /// Clusters beyond the first [`PEERS_MAX`] are left out.
    pub fn new(leaving: bool, digest: u64, up: impl IntoIterator<Item = bool>) -> Self {
        let mut answer = Answer::EMPTY;
        let mut count: u16 = 0;
        for (rank, is_up) in up.into_iter().take(PEERS_MAX).enumerate() {
            count += 1;
            if is_up {
                answer.up[rank / 8] |= 1 << (rank % 8);
            }
        }

        let flags = if leaving {
            ANSWERED | LEAVING
        } else {
            ANSWERED
        };
        answer.flags = flags.to_be_bytes();
        answer.count = count.to_be_bytes();
        answer.digest = digest.to_be_bytes();

        Self {
            ktime_ns: 0,
            answer,
            padding: [0; 4],
        }
    }
}

/// Returns the FNV-1a hash, 64 bits wide, of the `ids` joined by line feeds.
///
/// Node and gateway both sort the ids, so equal digests mean equal ranks.
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
