//! Dropped datagrams and packets: one counter per reason.

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
    /// Neither type nor length is that of a WireGuard message.
    Malformed = "malformed",
    /// Longer than the buffer, or than a datagram can be.
    Oversized = "oversized",
    /// A message whose receiver index belongs to no session.
    UnknownReceiver = "unknown-receiver",
    /// A handshake message whose mac1 matches none of our keys.
    InvalidMac = "invalid-mac",
    /// A handshake message beyond the limit of work on messages that are not authenticated yet.
    HandshakeBudget = "handshake-budget",
    /// A handshake message beyond the limit of such work per source.
    HandshakeSourceBudget = "handshake-source-budget",
    /// A handshake beyond its source's share under load, or a response beyond its session's limit.
    HandshakeRate = "handshake-rate",
    /// A handshake that drew a cookie reply: under load its sender must prove its address.
    CookieSent = "cookie-sent",
    /// A handshake with a public key that belongs to no peer.
    UnknownPeer = "unknown-peer",
    /// A handshake that does not authenticate, or is not newer than the last one of its slot.
    InvalidHandshake = "invalid-handshake",
    /// A handshake response or cookie reply without a handshake in progress.
    Unexpected = "unexpected",
    /// A data message that does not authenticate.
    InvalidTag = "invalid-tag",
    /// A data message that arrived before, or is older than the replay window.
    Replayed = "replayed",
    /// A data message whose counter exceeds the limit of a key.
    CounterLimit = "counter-limit",
    /// A data message for keys that the session does not have, or no longer.
    NoKeys = "no-keys",
    /// The inner packet is not well-formed IPv4.
    InnerMalformed = "inner-malformed",
    /// The inner packet is not IPv4.
    InnerNotIpv4 = "inner-not-ipv4",
    /// The inner source address is outside the peer's prefixes.
    SourceNotAllowed = "source-not-allowed",
    /// An ICMP error that quotes a packet which its receiver did not send to the peer.
    QuoteNotAllowed = "quote-not-allowed",
    /// A liveness probe that cannot be parsed, or whose reply would be much longer.
    ProbeMalformed = "probe-malformed",
    /// A liveness probe beyond the peer's rate.
    ProbeRate = "probe-rate",
    /// A PONG that matches no PING of ours.
    ProbeUnexpected = "probe-unexpected",
    /// An endpoint inside a tunnel: of a datagram, of a session, or resolved from a name. Replies to it would be
    /// encapsulated again and again.
    EndpointInsideTunnel = "endpoint-inside-tunnel",
    /// A datagram that arrived at another session's client port.
    ForeignPort = "foreign-port",
    /// The peer is unknown or removed.
    NoPeer = "no-peer",
    /// The session ended between selection and use.
    SessionGone = "session-gone",
    /// Dropped from the head of a full queue.
    QueueFull = "queue-full",
    /// Waited too long for a session.
    QueueExpired = "queue-expired",
    /// A datagram that found the engine's transmit queue full.
    TransmitQueueFull = "transmit-queue-full",
    /// An unconfirmed session that expired or gave way to a newer one.
    TentativeEvicted = "tentative-evicted",
    /// A session refused because the limit of sessions is reached.
    SessionLimit = "session-limit",
    /// All quick attempts to discover a further replica were used up.
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
