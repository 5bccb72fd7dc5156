//! The overlay probe: a node asks, the gateway's kernel program answers.
//!
//! Request and answer are UDP payloads of one fixed size, so that the program
//! answers in place. All fields are in network order.
//!
//! ```text
//!  0      4          8            16      18      20       28             156
//!  | magic | sequence | sent       | flags | count | digest | up (bitmap)   |  answer
//!  | magic | sequence | sent       | zero  | said  | digest | lost (bitmap) |  request
//! ```
//! What a node says in its request (a [`Statement`]) the program keeps for the gateway, as
//! a [`Sighting`]. Programs of earlier versions read nothing of it, and nodes of earlier
//! versions say nothing: all zeros.

/// Length of a probe in bytes.
pub const LEN: usize = size_of::<Probe>();

/// What a probe begins with; the digit is the version of the format.
pub const MAGIC: [u8; 4] = *b"LQP1";

/// Set in every answer and in no request, so that answers are not answered.
pub const ANSWERED: u16 = 1;

/// Set in the answers of a replica that is about to stop.
pub const LEAVING: u16 = 2;

/// Most remote clusters of which an answer can tell.
pub const PEERS_MAX: usize = 1024;

/// The oldest heartbeat from which the kernel still answers, in nanoseconds.
///
/// This is for a process that hangs. Of one that died the kernel knows at once, since
/// its socket on the probe's port is closed; then nothing is answered either.
pub const HEARTBEAT_AGE_MAX_NS: u64 = 500_000_000;

/// Set in what a node says if it says anything at all: earlier versions do not.
pub const SPEAKS: u16 = 1;

/// Set in what a node says if this replica's answers arrive there.
pub const HEARS: u16 = 2;

/// Set in what a node says if it answers the checks of remote clusters' nodes.
pub const REFLECTS: u16 = 4;

/// Set in the last request of a route agent that is asked to stop.
pub const RESTS: u16 = 8;

/// A probe on the wire.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// [`MAGIC`].
    pub magic: [u8; 4],
    /// Chosen by the asker, comes back unchanged.
    pub sequence: [u8; 4],
    /// The asker's clock, comes back unchanged.
    pub sent: [u8; 8],
    /// What the replica answers; in a request, what the node says: see [`Statement`].
    pub answer: Answer,
}

/// What a gateway replica says of itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// [`ANSWERED`] and [`LEAVING`].
    pub flags: [u8; 2],
    /// Number of remote clusters the bitmap covers.
    pub count: [u8; 2],
    /// [`digest`] of the remote cluster ids; ranks mean nothing without it.
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

    /// Returns the request with what the node says in it.
    pub fn saying(mut self, statement: &Statement) -> Self {
        self.answer.count = statement.said.to_be_bytes();
        self.answer.digest = statement.digest.to_be_bytes();
        self.answer.up = statement.lost;

        self
    }

    /// Parses a payload; `None` if it is no probe of this version.
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

    /// Returns the payload that carries this probe.
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

    /// Returns the number that the asker chose.
    pub const fn sequence(&self) -> u32 {
        u32::from_be_bytes(self.sequence)
    }

    /// Returns the asker's clock at the time of the request.
    pub const fn sent(&self) -> u64 {
        u64::from_be_bytes(self.sent)
    }
}

impl Answer {
    /// That of a request: nothing said.
    pub const EMPTY: Self = Self {
        flags: [0; 2],
        count: [0; 2],
        digest: [0; 8],
        up: [0; PEERS_MAX / 8],
    };

    /// Tells whether this is an answer at all.
    pub const fn is_answered(&self) -> bool {
        u16::from_be_bytes(self.flags) & ANSWERED != 0
    }

    /// Tells whether the replica is about to stop.
    pub const fn is_leaving(&self) -> bool {
        u16::from_be_bytes(self.flags) & LEAVING != 0
    }

    /// Returns the number of remote clusters that the bitmap covers.
    pub const fn count(&self) -> u16 {
        u16::from_be_bytes(self.count)
    }

    /// Returns the [`digest`] of the ids that give the bits their meaning.
    pub const fn digest(&self) -> u64 {
        u64::from_be_bytes(self.digest)
    }

    /// Tells whether the remote cluster of this rank is up; `false` beyond [`Answer::count`].
    pub fn is_up(&self, rank: usize) -> bool {
        rank < usize::from(self.count())
            && self
                .up
                .get(rank / 8)
                .is_some_and(|byte| byte & (1 << (rank % 8)) != 0)
    }
}

/// What a node says in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// [`SPEAKS`], [`HEARS`], [`REFLECTS`] and [`RESTS`].
    pub said: u16,
    /// [`digest`] of the remote cluster ids; ranks mean nothing without it.
    pub digest: u64,
    /// One bit per remote cluster whose nodes it does not reach, by rank as in [`Answer::up`].
    pub lost: [u8; PEERS_MAX / 8],
}

impl Statement {
    /// Creates a statement about the clusters at the ranks `lost`; those beyond [`PEERS_MAX`]
    /// are not told of.
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

/// What the kernel keeps of a node's last request.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// `CLOCK_MONOTONIC` when it came; zero if none has.
    pub ktime_ns: u64,
    /// The fields that are the answer's in an answer: see [`Sighting::says`].
    pub request: Answer,
    /// Keeps the size a multiple of the alignment without hidden bytes.
    pub padding: [u8; 4],
}

const _: () = assert!(size_of::<Sighting>() == 152);

impl Sighting {
    /// That of a node which has not asked yet.
    pub const NONE: Self = Self {
        ktime_ns: 0,
        request: Answer::EMPTY,
        padding: [0; 4],
    };

    /// Tells whether the node said this.
    pub const fn says(&self, flag: u16) -> bool {
        self.request.count() & flag != 0
    }

    /// Returns the [`digest`] of the ids that give the ranks their meaning.
    pub const fn digest(&self) -> u64 {
        self.request.digest()
    }

    /// Returns the ranks of the remote clusters whose nodes it does not reach, ascending.
    pub fn lost(&self) -> impl Iterator<Item = usize> {
        let bytes = self.request.up.into_iter().enumerate();
        bytes.filter(|(_, byte)| *byte != 0).flat_map(|(at, byte)| {
            (0..8usize)
                .filter(move |bit| byte & (1 << bit) != 0)
                .map(move |bit| at * 8 + bit)
        })
    }
}

/// The heartbeat of a gateway replica, from which the kernel answers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// `CLOCK_MONOTONIC` when the engine was last alive; the loader writes it.
    pub ktime_ns: u64,
    /// What the kernel answers.
    pub answer: Answer,
    /// Keeps the size a multiple of the alignment without hidden bytes.
    pub padding: [u8; 4],
}

const _: () = assert!(size_of::<Heartbeat>() == 152);

impl Heartbeat {
    /// Creates the heartbeat of a replica whose remote clusters, sorted by id, are `up` or not.
    ///
    /// Clusters beyond [`PEERS_MAX`] are not told of.
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
/// Node and gateway must both sort the ids; equal digests then mean equal ranks.
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
