//! What the loop counts: plain numbers, read by asking the loop.

use nix::errno::Errno;
use serde::Serialize;

/// Sizes are counted by power of two, up to 64 KiB.
const BUCKETS: usize = 17;

/// Names the reasons and their spelling in status and metrics.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why the shell dropped a frame or datagram.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Drop {
            $($(#[$doc])* $variant,)*
        }

        const REASONS: &[&str] = &[$($name,)*];
    };
}

reasons! {
    /// A frame on the TAP that is not from our programs, as the kernel's own are.
    ForeignFrame = "foreign-frame",
    /// A frame on the TAP whose headers contradict themselves.
    MalformedFrame = "malformed-frame",
    /// A super-packet of more segments than [`SEGMENTS_MAX`](crate::offload::split::SEGMENTS_MAX).
    TooManySegments = "too-many-segments",
    /// Longer than the path's MTU, and not to be fragmented; answered by ICMP.
    TooBig = "too-big",
    /// As above, but beyond the rate at which answers are sent.
    TooBigUnanswered = "too-big-unanswered",
    /// The session ended while its packets were being sealed.
    NotSealed = "not-sealed",
    /// The kernel refused a frame for the TAP.
    TapWrite = "tap-write",
    /// A datagram whose port is closed already.
    PortClosed = "port-closed",
    /// A datagram that the network cannot or may not carry now.
    Unreachable = "unreachable",
    /// A datagram longer than the underlay carries.
    UnderlayTooBig = "underlay-too-big",
    /// A datagram for which there was no buffer.
    NoBuffer = "no-buffer",
    /// A datagram for an address family that this namespace lacks.
    NoFamily = "no-address-family",
    /// A datagram refused for any other reason.
    SendFailed = "send-failed",
    /// A report to control that found its queue full.
    NoticeQueueFull = "notice-queue-full",
    /// A frame that waited on the TAP when this process took it over.
    OldFrame = "old-frame",
}

/// The loop's counters.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stats {
    #[serde(serialize_with = "by_reason")]
    drops: [u64; REASONS.len()],
    /// Packets and super-packets read from the TAP, by size.
    pub(crate) read: Histogram,
    /// Packets and super-packets written to the TAP, by size.
    pub(crate) written: Histogram,
    /// Runs of datagrams sent, by size.
    pub(crate) sent: Histogram,
    /// Runs of datagrams received, by size.
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
    /// Counts one drop.
    #[inline]
    pub(crate) fn count(&mut self, reason: Drop) {
        self.drops[reason as usize] += 1;
    }

    /// Counts datagrams that the kernel refused.
    pub(super) fn count_refused(&mut self, error: Errno, datagrams: usize) {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "all other errors count alike"
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

    /// Adds what another loop has counted.
    pub(crate) fn add(&mut self, other: &Self) {
        for (drops, more) in self.drops.iter_mut().zip(other.drops) {
            *drops += more;
        }
        self.read.add(&other.read);
        self.written.add(&other.written);
        self.sent.add(&other.sent);
        self.received.add(&other.received);
    }

    /// Returns all reasons and counts.
    pub(crate) fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.iter().copied().zip(self.drops)
    }
}

/// How many had which size, by power of two.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Histogram {
    /// How many there were.
    pub(crate) count: u64,
    /// Their bytes in all.
    pub(crate) bytes: u64,
    /// How many were longer than half of, and at most, 2 to the power of the place.
    buckets: [u64; BUCKETS],
}

impl Histogram {
    /// Counts one of `len` bytes.
    #[inline]
    pub(super) fn record(&mut self, len: usize) {
        let place = len.max(1).next_power_of_two().trailing_zeros() as usize;
        self.buckets[place.min(BUCKETS - 1)] += 1;
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

    /// Returns the upper bound of each bucket in bytes, and how many are in it.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..)
            .zip(self.buckets)
            .map(|(place, count)| (1 << place, count))
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
    fn sizes_fall_into_the_power_of_two_that_holds_them() {
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
    fn every_refusal_is_counted_by_its_reason() {
        let mut stats = Stats::default();

        stats.count_refused(Errno::ENETUNREACH, 3);
        stats.count_refused(Errno::EIO, 1);

        let seen: Vec<_> = stats.drops().filter(|(_, count)| *count > 0).collect();
        assert_eq!(seen, [("unreachable", 3), ("send-failed", 1)]);
    }
}
