//! Counters of a lane.

use nix::errno::Errno;
use serde::Serialize;

/// Number of buckets of a [`Histogram`]: one for each power of two from 1 byte to 64 KiB.
const BUCKETS: usize = 17;

/// Declares the enum [`Drop`] and the name of each reason in status and metrics.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The reason why a lane dropped a frame or datagram outside of the engine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Drop {
            $($(#[$doc])* $variant,)*
        }

        const REASONS: &[&str] = &[$($name,)*];
    };
}

reasons! {
    /// A frame on the TAP that does not come from the eBPF programs, such as the kernel's own
    /// packets.
    ForeignFrame = "foreign-frame",
    /// A frame on the TAP whose headers contradict each other or the length of the frame.
    MalformedFrame = "malformed-frame",
    /// A super-packet of more segments than [`SEGMENTS_MAX`](crate::offload::split::SEGMENTS_MAX).
    TooManySegments = "too-many-segments",
    /// A packet longer than the path's MTU, with don't fragment set, to which the lane replied with
    /// an ICMP error; or a packet that is too long for a UDP datagram.
    TooBig = "too-big",
    /// A packet longer than the path's MTU, dropped without an ICMP error, because RFC 1122 section
    /// 3.2.2 forbids an error or the rate limit is reached.
    TooBigUnanswered = "too-big-unanswered",
    /// A packet that was not encrypted, because its session ended.
    NotSealed = "not-sealed",
    /// A frame that the kernel rejected at a write to the TAP.
    TapWrite = "tap-write",
    /// A datagram whose local port is closed already.
    PortClosed = "port-closed",
    /// A datagram whose destination is unreachable or prohibited.
    Unreachable = "unreachable",
    /// A datagram longer than the underlay's MTU.
    UnderlayTooBig = "underlay-too-big",
    /// A datagram for which the kernel had no buffer.
    NoBuffer = "no-buffer",
    /// A datagram with an address family that this network namespace does not support.
    NoFamily = "no-address-family",
    /// A datagram that the kernel rejected for any other reason.
    SendFailed = "send-failed",
    /// A notice to `control` that did not fit into the queue.
    NoticeQueueFull = "notice-queue-full",
    /// A frame that an earlier process left on the TAP.
    OldFrame = "old-frame",
}

/// The counters of one lane, or the sums of several lanes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stats {
    #[serde(serialize_with = "by_reason")]
    drops: [u64; REASONS.len()],
    /// Sizes of packets and super-packets read from the TAP.
    pub(crate) read: Histogram,
    /// Sizes of packets and super-packets written to the TAP.
    pub(crate) written: Histogram,
    /// Sizes of sent runs. A run is one or more datagrams that a worker sends together.
    pub(crate) sent: Histogram,
    /// Sizes of received runs. A run is one or more datagrams that one system call receives.
    pub(crate) received: Histogram,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            drops: [0; REASONS.len()],
            read: Histogram::default(),
            written: Histogram::default(),
            sent: Histogram::default(),
            received: Histogram::default(),
        }
    }
}

impl Stats {
    #[inline]
    pub(crate) fn count(&mut self, reason: Drop) {
        self.drops[reason as usize] += 1;
    }

    /// Adds `datagrams`, the number of datagrams that the kernel rejected with `error`.
    pub(super) fn count_refused(&mut self, error: Errno, datagrams: usize) {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "all other errors have the same counter"
        )]
        let reason = match error {
            Errno::ECONNREFUSED
            | Errno::ENETUNREACH
            | Errno::EHOSTUNREACH
            | Errno::ENETDOWN
            | Errno::EPERM
            | Errno::EACCES => Drop::Unreachable,
            Errno::EMSGSIZE => Drop::UnderlayTooBig,
            Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM => Drop::NoBuffer,
            Errno::EAFNOSUPPORT => Drop::NoFamily,
            _ => Drop::SendFailed,
        };
        self.drops[reason as usize] += u64::try_from(datagrams).unwrap_or(u64::MAX);
    }

    /// Adds the counters of another lane.
    pub(crate) fn add(&mut self, other: &Self) {
        for (drops, more) in self.drops.iter_mut().zip(other.drops) {
            *drops += more;
        }
        self.read.add(&other.read);
        self.written.add(&other.written);
        self.sent.add(&other.sent);
        self.received.add(&other.received);
    }

    /// Returns the name and the count of each reason, including those with count 0.
    pub(crate) fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.iter().copied().zip(self.drops)
    }
}

/// A histogram of sizes in bytes, with a bucket for each power of two.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Histogram {
    pub(crate) count: u64,
    /// Sum of all sizes.
    pub(crate) bytes: u64,
    /// Bucket n counts sizes of more than 2^(n-1) and at most 2^n bytes.
    buckets: [u64; BUCKETS],
}

impl Histogram {
    /// Adds a size of `len` bytes.
    #[inline]
    pub(super) fn record(&mut self, len: usize) {
        let bucket = len.max(1).next_power_of_two().trailing_zeros() as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.bytes += u64::try_from(len).unwrap_or(u64::MAX);
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        for (bucket, more) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += more;
        }
    }

    /// Returns the upper bound of each bucket in bytes, and its count.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..)
            .zip(self.buckets)
            .map(|(bucket, count)| (1 << bucket, count))
    }
}

fn by_reason<S: serde::Serializer>(
    drops: &[u64; REASONS.len()],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(REASONS.iter().zip(drops).filter(|(_, count)| **count > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_counted_at_the_next_power_of_two() {
        let mut histogram = Histogram::default();
        for len in [0, 1, 2, 64, 65, 65_535, 70_000] {
            histogram.record(len);
        }

        let filled: Vec<_> = histogram
            .buckets()
            .filter(|(_, count)| *count > 0)
            .collect();

        assert_eq!(filled, [(1, 2), (2, 1), (64, 1), (128, 1), (65_536, 2)]);
    }

    #[test]
    fn refused_datagrams_are_counted_by_reason() {
        let mut stats = Stats::default();

        stats.count_refused(Errno::ENETUNREACH, 3);
        stats.count_refused(Errno::EIO, 1);

        let seen: Vec<_> = stats.drops().filter(|(_, count)| *count > 0).collect();
        assert_eq!(seen, [("unreachable", 3), ("send-failed", 1)]);
    }
}
