//! What lately came of a peer's handshakes, while there is no connection: it tells which
//! direction is blocked.
//!
//! ```text
//!   server: nothing comes                 peer -> here is blocked, or nobody calls
//!           initiations come              here -> peer is blocked: its sender got no answer
//!           they come with another key    the keys do not match
//!   client: no response comes             either direction, or the keys: the server knows
//! ```

use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long a sign counts: three attempts of any implementation (WireGuard's `REKEY_TIMEOUT` is 5 s).
const WINDOW: Duration = Duration::from_secs(15);

/// What lately came of a peer's handshakes; nothing while connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signs {
    /// Where initiations of the peer came from, which were answered.
    pub(crate) calls: Option<IpAddr>,
    /// Where initiations came from that used our key for the peer, but not the peer's own. Nobody has
    /// proved to have sent them.
    pub(crate) strangers: Option<IpAddr>,
    /// Where responses to ours came from.
    pub(crate) answers: Option<IpAddr>,
}

/// The signs of one peer, with their times.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pub(super) calls: Sign,
    pub(super) strangers: Sign,
    pub(super) answers: Sign,
    told: Signs,
}

/// The last sign of one sort.
#[derive(Debug, Default)]
pub(super) struct Sign(Option<(Instant, IpAddr)>);

impl Sign {
    /// Notes one. The place stays as long as signs come from there, so that a peer with several
    /// is not told of again and again.
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

impl Watch {
    /// Returns what there is to tell, if that is news; what came before a connection says nothing
    /// of what follows it.
    pub(super) fn poll(&mut self, is_connected: bool, now: Instant) -> Option<Signs> {
        if is_connected {
            let told = self.told;
            *self = Self::default();
            return (told != self.told).then_some(self.told);
        }
        let signs = Signs {
            calls: self.calls.recent(now),
            strangers: self.strangers.recent(now),
            answers: self.answers.recent(now),
        };
        let is_news = signs != self.told;
        self.told = signs;

        is_news.then_some(signs)
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
    fn a_sign_is_told_once_and_taken_back_when_none_follows() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut watch = Watch::default();
        assert_eq!(watch.poll(false, start), None);

        watch.calls.note(MILAN, at(1));
        let signs = watch.poll(false, at(1)).unwrap();
        assert_eq!(signs.calls, Some(MILAN));
        for second in 2..30 {
            watch.calls.note(MILAN, at(second));
            watch.calls.note(TURIN, at(second));
            assert_eq!(watch.poll(false, at(second)), None);
        }

        assert_eq!(watch.poll(false, at(43)), None);
        assert_eq!(watch.poll(false, at(44)), Some(Signs::default()));
    }

    #[test]
    fn what_came_before_a_connection_counts_no_more() {
        let now = Instant::now();
        let mut watch = Watch::default();
        watch.strangers.note(MILAN, now);
        assert!(watch.poll(false, now).is_some());

        assert_eq!(watch.poll(true, now), Some(Signs::default()));
        assert_eq!(watch.poll(false, now), None);
    }
}
