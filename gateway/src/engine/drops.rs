//! Counts dropped datagrams and packets by reason.

/// Defines the drop reasons, each with its name in `gateway status` and in metrics.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Reason to drop a datagram or packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(usize)]
        pub(crate) enum Drop {
            $($(#[$doc])* $variant,)*
        }

        impl Drop {
            /// All reasons, in the order of their counters.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the reason's name in `gateway status` and in metrics.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// A datagram whose type and length match no WireGuard message.
    Malformed = "malformed",
    /// A message or packet that does not fit into the output buffer.
    Oversized = "oversized",
    /// A message whose receiver index belongs to no session.
    UnknownReceiver = "unknown-receiver",
    /// A handshake message whose mac1 matches no local key.
    InvalidMac = "invalid-mac",
    /// A handshake message beyond the global limit of mac1 checks.
    HandshakeBudget = "handshake-budget",
    /// A handshake message beyond the limit of mac1 checks per source.
    HandshakeSourceBudget = "handshake-source-budget",
    /// An initiation beyond the share of its source while the local key is under load, or a
    /// response beyond the limit of its session.
    HandshakeRate = "handshake-rate",
    /// An initiation to which the gateway sent a cookie reply, because the local key is under load.
    /// The sender has to repeat the initiation with the cookie.
    CookieSent = "cookie-sent",
    /// A handshake with a public key that belongs to no peer.
    UnknownPeer = "unknown-peer",
    /// A handshake message that fails authentication, or an initiation whose timestamp is not newer
    /// than the last one of its slot.
    InvalidHandshake = "invalid-handshake",
    /// A handshake response or cookie reply without a handshake in progress.
    Unexpected = "unexpected",
    /// A data message that fails authentication.
    InvalidTag = "invalid-tag",
    /// A data message that was received before, or is older than the replay window.
    Replayed = "replayed",
    /// A data message whose counter has reached WireGuard's `REJECT_AFTER_MESSAGES`.
    CounterLimit = "counter-limit",
    /// A packet that cannot be encrypted, or a data message that cannot be decrypted, because the
    /// session has no valid keys.
    NoKeys = "no-keys",
    /// An inner packet with an invalid IPv4 header, or with a length that differs from the header.
    InnerMalformed = "inner-malformed",
    /// An inner packet that is not IPv4.
    InnerNotIpv4 = "inner-not-ipv4",
    /// An inner packet whose source address is outside the peer's prefixes.
    SourceNotAllowed = "source-not-allowed",
    /// An ICMP error that quotes a packet that the error's receiver did not send to the peer.
    QuoteNotAllowed = "quote-not-allowed",
    /// A liveness probe that cannot be parsed, or whose PONG would be much longer than the PING.
    ProbeMalformed = "probe-malformed",
    /// A liveness probe beyond the rate limit of the peer.
    ProbeRate = "probe-rate",
    /// Not a dropped datagram: a prefix of a remote node that is outside the peer's prefixes.
    PlaceNotAllowed = "place-not-allowed",
    /// A PONG that matches no remembered PING.
    ProbeUnexpected = "probe-unexpected",
    /// An endpoint inside a tunnel: the source of a datagram, the endpoint of a session or a
    /// resolved address. Datagrams to such an endpoint would be encapsulated repeatedly.
    EndpointInsideTunnel = "endpoint-inside-tunnel",
    /// A datagram that arrived at another session's client port.
    ForeignPort = "foreign-port",
    /// A packet or probe of a peer that is unknown or was removed.
    NoPeer = "no-peer",
    /// A packet or handshake whose session was removed in the meantime.
    SessionGone = "session-gone",
    /// A packet that was removed from the head of a full queue.
    QueueFull = "queue-full",
    /// A packet that waited too long for a session.
    QueueExpired = "queue-expired",
    /// A handshake, keepalive or probe message for which the engine's transmit queue has no room.
    TransmitQueueFull = "transmit-queue-full",
    /// A tentative session that expired, or was removed because the limit of tentative sessions was
    /// reached.
    TentativeEvicted = "tentative-evicted",
    /// A session that was refused or removed because the limit of sessions was reached.
    SessionLimit = "session-limit",
    /// Not a dropped datagram: the client has used up its quick attempts to discover a further
    /// replica.
    ReplicaAttempts = "replica-attempts",
}

/// Counters, indexed by [`Drop`].
#[derive(Clone, Debug)]
pub(crate) struct Drops([u64; Drop::ALL.len()]);

impl Drops {
    pub(crate) fn new() -> Self {
        Self([0; Drop::ALL.len()])
    }

    #[inline]
    pub(crate) fn count(&mut self, reason: Drop) {
        self.0[reason as usize] += 1;
    }

    pub(crate) fn get(&self, reason: Drop) -> u64 {
        self.0[reason as usize]
    }

    /// Returns the name and count of each reason, in the order of [`Drop::ALL`].
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
