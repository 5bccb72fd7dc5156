//! Why a datagram or packet went no further: one counter per reason.

/// Names the reasons and their spelling in status and metrics.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The reason for a drop.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(usize)]
        pub(crate) enum Drop {
            $($(#[$doc])* $variant,)*
        }

        impl Drop {
            /// All reasons, in the order of their counters.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the reason's name in status and metrics.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// No WireGuard message by type or length.
    Malformed = "malformed",
    /// Longer than the buffer it must fit, or than a datagram can be.
    Oversized = "oversized",
    /// A message for a session that does not exist.
    UnknownReceiver = "unknown-receiver",
    /// A handshake whose mac1 belongs to none of our keys.
    InvalidMac = "invalid-mac",
    /// A handshake message beyond the limit of work on messages that are not authenticated yet.
    HandshakeBudget = "handshake-budget",
    /// The same beyond what one source may cause of it.
    HandshakeSourceBudget = "handshake-source-budget",
    /// A handshake from a source that sends too many, while under load; or too many
    /// responses for one session.
    HandshakeRate = "handshake-rate",
    /// A handshake answered by a cookie: its sender must prove its address.
    CookieSent = "cookie-sent",
    /// A handshake from a key that is no peer's.
    UnknownPeer = "unknown-peer",
    /// A handshake that does not authenticate, or is not newer than the last one of its slot.
    InvalidHandshake = "invalid-handshake",
    /// A handshake response or cookie that answers nothing of ours.
    Unexpected = "unexpected",
    /// A data message that does not authenticate.
    InvalidTag = "invalid-tag",
    /// A data message that came before, or is older than the replay window.
    Replayed = "replayed",
    /// A data message of a counter beyond the limit of a key.
    CounterLimit = "counter-limit",
    /// A data message for a session without such keys (any more).
    NoKeys = "no-keys",
    /// The inner packet is no well-formed IPv4.
    InnerMalformed = "inner-malformed",
    /// The inner packet is not IPv4.
    InnerNotIpv4 = "inner-not-ipv4",
    /// The inner source address is not the peer's.
    SourceNotAllowed = "source-not-allowed",
    /// An ICMP error that quotes a packet which its receiver did not send to the peer.
    QuoteNotAllowed = "quote-not-allowed",
    /// A liveness probe that cannot be read, or whose answer would be much longer.
    ProbeMalformed = "probe-malformed",
    /// A liveness probe beyond the rate that is handled.
    ProbeRate = "probe-rate",
    /// A probe's answer to no question of ours.
    ProbeUnexpected = "probe-unexpected",
    /// A datagram from an address that leads into a tunnel, a session that was at one,
    /// or a name that stands for one: its answers would be sealed again and again.
    EndpointInsideTunnel = "endpoint-inside-tunnel",
    /// A datagram at the client port of another session.
    ForeignPort = "foreign-port",
    /// No session and the peer is unknown or gone.
    NoPeer = "no-peer",
    /// The session ended between selection and use.
    SessionGone = "session-gone",
    /// Dropped from the head of a full queue.
    QueueFull = "queue-full",
    /// Waited too long for a session.
    QueueExpired = "queue-expired",
    /// A datagram of the engine's own that found its queue full.
    TransmitQueueFull = "transmit-queue-full",
    /// An unconfirmed session that gave way to a newer one.
    TentativeEvicted = "tentative-evicted",
    /// A session refused because the limit of sessions is reached.
    SessionLimit = "session-limit",
    /// A session that was not opened: all attempts to meet a further replica
    /// were used up.
    ReplicaAttempts = "replica-attempts",
}

/// One counter per reason.
#[derive(Clone, Debug)]
pub(crate) struct Drops([u64; Drop::ALL.len()]);

impl Drops {
    /// Creates counters of zero.
    pub(crate) fn new() -> Self {
        Self([0; Drop::ALL.len()])
    }

    /// Counts one drop.
    #[inline]
    pub(crate) fn count(&mut self, reason: Drop) {
        self.0[reason as usize] += 1;
    }

    /// Returns how often `reason` was counted.
    pub(crate) fn get(&self, reason: Drop) -> u64 {
        self.0[reason as usize]
    }

    /// Returns all names and counts, in a fixed order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Drop::ALL.iter().map(|drop| (drop.name(), self.get(*drop)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_a_name_and_a_counter_of_its_own() {
        let names: BTreeSet<_> = Drop::ALL.iter().map(|drop| drop.name()).collect();
        assert_eq!(names.len(), Drop::ALL.len());

        let mut drops = Drops::new();
        drops.count(Drop::Replayed);

        assert_eq!(drops.get(Drop::Replayed), 1);
        assert_eq!(drops.iter().map(|(_, count)| count).sum::<u64>(), 1);
    }
}
