//! Records the handshake messages of a peer while the peer is not connected. These messages are
//! evidence of the direction in which datagrams are lost.
//!
//! ```text
//!   server: no initiation               client -> server is blocked, or the client sends none
//!           initiations                 server -> client is blocked: the responses are lost
//!           initiations, unknown key    the keys do not match
//!   client: no response                 any of these: only the server can distinguish them
//! ```

use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time for which a message counts as evidence: three attempts at WireGuard's `REKEY_TIMEOUT` of
/// 5 s.
const WINDOW: Duration = Duration::from_secs(15);

/// Source addresses of recent handshake messages; all `None` while connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandshakeEvidence {
    /// Source of initiations of the peer, to which this gateway responded.
    pub(crate) initiations: Option<IpAddr>,
    /// Source of initiations that are for the local key of this peer, but come from an unknown
    /// public key. The sender is not authenticated.
    pub(crate) unknown_keys: Option<IpAddr>,
    /// Source of responses to initiations of this gateway.
    pub(crate) responses: Option<IpAddr>,
}

#[derive(Debug, Default)]
pub(super) struct Collector {
    pub(super) initiations: Latest,
    pub(super) unknown_keys: Latest,
    pub(super) responses: Latest,
    reported: HandshakeEvidence,
}

/// Time and source of the last message of one kind.
#[derive(Debug, Default)]
pub(super) struct Latest(Option<(Instant, IpAddr)>);

impl Latest {
    /// Records a message. A recent source is kept while messages arrive from it, so that a peer
    /// with several sources does not change the evidence repeatedly.
    pub(super) fn note(&mut self, from: IpAddr, now: Instant) {
        if self
            .0
            .is_none_or(|(at, known)| known == from || !is_recent(at, now))
        {
            self.0 = Some((now, from));
        }
    }

    fn recent(&self, now: Instant) -> Option<IpAddr> {
        let recent = self.0.filter(|(at, _)| is_recent(*at, now));
        recent.map(|(_, from)| from)
    }
}

impl Collector {
    /// Returns the evidence if it has changed since the last call. A connection clears the
    /// evidence.
    pub(super) fn poll(&mut self, is_connected: bool, now: Instant) -> Option<HandshakeEvidence> {
        if is_connected {
            let reported = self.reported;
            *self = Self::default();
            return (reported != self.reported).then_some(self.reported);
        }
        let evidence = HandshakeEvidence {
            initiations: self.initiations.recent(now),
            unknown_keys: self.unknown_keys.recent(now),
            responses: self.responses.recent(now),
        };
        let is_change = evidence != self.reported;
        self.reported = evidence;

        is_change.then_some(evidence)
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < WINDOW
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILAN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const TURIN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn evidence_is_reported_once_and_cleared_when_no_message_follows() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut collector = Collector::default();
        assert_eq!(collector.poll(false, start), None);

        collector.initiations.note(MILAN, at(1));
        let evidence = collector.poll(false, at(1)).unwrap();
        assert_eq!(evidence.initiations, Some(MILAN));
        for second in 2..30 {
            collector.initiations.note(MILAN, at(second));
            collector.initiations.note(TURIN, at(second));
            assert_eq!(collector.poll(false, at(second)), None);
        }

        assert_eq!(collector.poll(false, at(43)), None);
        assert_eq!(
            collector.poll(false, at(44)),
            Some(HandshakeEvidence::default())
        );
    }

    #[test]
    fn a_connection_clears_the_evidence() {
        let now = Instant::now();
        let mut collector = Collector::default();
        collector.unknown_keys.note(MILAN, now);
        assert!(collector.poll(false, now).is_some());

        assert_eq!(
            collector.poll(true, now),
            Some(HandshakeEvidence::default())
        );
        assert_eq!(collector.poll(false, now), None);
    }
}
