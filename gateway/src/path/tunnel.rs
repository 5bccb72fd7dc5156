//! What is wrong between the gateways: which direction, by what comes of the handshakes.
//!
//! A server sees whether its peer calls, so it can tell the directions apart; a client only knows
//! that it has no answer, and says who knows more.

use super::verdict::{Finding, Reason};
use crate::engine::{ConnectionState, Signs};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long an initiation may go unanswered before that is a finding: any round trip is over.
const SIGN_AGE: Duration = Duration::from_secs(3);

/// How long nothing must have come after a loss: an attempt of any implementation (WireGuard's
/// `REKEY_TIMEOUT` is 5 s).
const SILENCE: Duration = Duration::from_secs(6);

/// The same while there was no connection yet: the peer may be about to be set up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who opens the tunnel to a peer, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The peer does.
    Server {
        /// The UDP port that it is told.
        port: u16,
    },
    /// We do.
    Client {
        /// Addresses and names of the peer's gateways.
        addresses: Vec<String>,
        /// Their UDP port.
        port: u16,
    },
}

/// What is known of the tunnel to a peer.
#[derive(Debug)]
pub(super) struct Tunnel {
    way: Way,
    state: ConnectionState,
    /// Since when the connection is in that state.
    since: Instant,
    signs: Signs,
    /// Since when the signs are these.
    signs_since: Instant,
    /// Whether the keys were changed since there was a connection.
    is_rekeyed: bool,
    /// The names that do not resolve, and what the resolver says.
    unresolved: BTreeMap<String, String>,
}

impl Tunnel {
    pub(super) fn new(way: Way, now: Instant) -> Self {
        Self {
            way,
            state: ConnectionState::Connecting,
            since: now,
            signs: Signs::default(),
            signs_since: now,
            is_rekeyed: false,
            unresolved: BTreeMap::new(),
        }
    }

    /// Sets the way to the peer, which may be another one now.
    pub(super) fn set_way(&mut self, way: Way) {
        self.way = way;
        let Way::Client { addresses, .. } = &self.way else {
            return self.unresolved.clear();
        };
        self.unresolved.retain(|host, _| addresses.contains(host));
    }

    pub(super) fn note_state(&mut self, state: ConnectionState, now: Instant) {
        if self.state != state {
            self.state = state;
            self.since = now;
        }
        self.is_rekeyed &= state != ConnectionState::Connected;
    }

    pub(super) fn note_signs(&mut self, signs: Signs, now: Instant) {
        if self.signs != signs {
            self.signs = signs;
            self.signs_since = now;
        }
    }

    pub(super) fn note_rekeyed(&mut self) {
        self.is_rekeyed = true;
    }

    /// Notes what became of looking a name up.
    pub(super) fn note_lookup(&mut self, host: &str, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.unresolved.remove(host),
            Err(answer) => self.unresolved.insert(host.to_owned(), answer),
        };
    }

    /// Returns how long there has been a connection, or none.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Returns what is wrong, if the peer is not connected.
    pub(super) fn judge(&self, replica: &str, peer: &str, now: Instant) -> Option<Finding> {
        if self.state == ConnectionState::Connected {
            return None;
        }
        let known = match &self.way {
            Way::Server { port } => self.of_server(replica, peer, *port, now),
            Way::Client { addresses, port } => self.of_client(replica, peer, addresses, *port, now),
        };

        known.or_else(|| Some(self.unknown(replica, peer)))
    }

    fn of_server(&self, replica: &str, peer: &str, port: u16, now: Instant) -> Option<Finding> {
        if let Some(from) = self.signs.calls.filter(|_| self.are_signs_due(now)) {
            return Some((Reason::AnswersLost, answers_lost(replica, peer, port, from)));
        }
        if let Some(from) = self.signs.strangers.filter(|_| self.are_signs_due(now)) {
            return Some((Reason::KeysDiffer, keys_differ(replica, peer, from)));
        }
        if !self.is_silence_due(now) {
            return None;
        }
        let message = format!(
            "{}no handshake of {peer} arrives at gateway {replica}: {peer} -> this cluster is blocked, or nobody \
             calls. Open UDP port {port} of this cluster's gateways (status.endpoint of the \
             GatewayServer) to {peer}, check that its gateways may send there, and that its PublicKey \
             for this cluster is this cluster's key",
            self.since_when(),
        );
        Some((Reason::NothingArrives, message))
    }

    fn of_client(
        &self,
        replica: &str,
        peer: &str,
        addresses: &[String],
        port: u16,
        now: Instant,
    ) -> Option<Finding> {
        if let Some((host, answer)) = self.unresolved(addresses) {
            let message = format!(
                "{host}, where {peer} is to be called, does not resolve: {answer}. Correct \
                 spec.endpoint.addresses of the GatewayClient, or let the cluster's DNS know the name",
            );
            return Some((Reason::NameNotResolved, message));
        }
        let to = addresses.join(", ");
        if self.signs.answers.is_some() && self.are_signs_due(now) {
            let message = format!(
                "the gateways of {peer} answer the handshakes of gateway {replica}, so UDP passes in both \
                 directions, but no probe: is UDP port {port} of {to} open for as long as a flow lasts?"
            );
            return Some((Reason::Tunnel, message));
        }
        if !self.is_silence_due(now) {
            return None;
        }
        let message = format!(
            "{}no handshake of gateway {replica} is answered by {to}, UDP port {port}. Which direction is \
             blocked cannot be told from here: the Connection in {peer} tells whether handshakes \
             arrive. Open UDP port {port} of {to} to this cluster's gateways, let the answers in, \
             and check that the PublicKey of {peer} here is the key it uses",
            self.since_when(),
        );
        Some((Reason::NoAnswer, message))
    }

    /// What to say before there is anything to judge by.
    fn unknown(&self, replica: &str, peer: &str) -> Finding {
        if self.state == ConnectionState::Connecting {
            let message = format!("gateway {replica} has not heard of a gateway of {peer} yet");
            return (Reason::Connecting, message);
        }
        let message = format!(
            "{}gateway {replica} hears no gateway of {peer} any more: does it run, and do both firewalls \
             admit the tunnel's UDP port?",
            self.since_when(),
        );
        (Reason::Tunnel, message)
    }

    /// Returns a name that does not resolve, if there is nowhere else to call.
    fn unresolved(&self, addresses: &[String]) -> Option<(&String, &String)> {
        let is_lost = |host: &String| self.unresolved.contains_key(host);
        let first = addresses.first().filter(|_| addresses.iter().all(is_lost));

        self.unresolved.get_key_value(first?)
    }

    /// What comes in the moment before a connection is no finding.
    fn are_signs_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.signs_since) >= SIGN_AGE
    }

    fn is_silence_due(&self, now: Instant) -> bool {
        let limit = if self.state == ConnectionState::Connecting {
            PATIENCE
        } else {
            SILENCE
        };

        self.age(now) >= limit
    }

    fn since_when(&self) -> &'static str {
        if self.is_rekeyed {
            "since the keys were changed, "
        } else {
            ""
        }
    }
}

fn answers_lost(replica: &str, peer: &str, port: u16, from: IpAddr) -> String {
    format!(
        "{peer} -> this cluster is open: its handshakes arrive from {from} at gateway {replica}. This \
         cluster -> {peer} is blocked: the answers are lost. Let UDP from port {port} of this cluster's \
         gateways out to {from}, and in there"
    )
}

fn keys_differ(replica: &str, peer: &str, from: IpAddr) -> String {
    format!(
        "the keys do not match: who calls gateway {replica} from {from} as {peer} has another key than its \
         PublicKey here. Write the key that the gateways of {peer} use into that PublicKey: \
         `liqoctl network connect` exchanges the keys again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    #[test]
    fn a_server_tells_which_direction_is_blocked() {
        let mut lab = Lab::new(server());
        lab.lose();
        assert_eq!(lab.reason(5), Some(Reason::Tunnel));

        let (reason, message) = lab.judge(6).unwrap();
        assert_eq!(reason, Reason::NothingArrives);
        assert!(message.contains("milan -> this cluster is blocked"));
        assert!(message.contains("UDP port 31840"), "{message}");

        lab.pass(6);
        lab.signs(Signs {
            calls: Some(FROM),
            ..Signs::default()
        });
        assert_eq!(lab.reason(2), Some(Reason::NothingArrives));
        let (reason, message) = lab.judge(3).unwrap();
        assert_eq!(reason, Reason::AnswersLost);
        assert!(message.contains("This cluster -> milan is blocked"));
        assert!(message.contains("192.0.2.7"), "{message}");

        lab.state(ConnectionState::Connected);
        assert_eq!(lab.judge(0), None);
    }

    #[test]
    fn a_client_says_that_it_knows_only_its_half() {
        let lab = Lab::new(client(&["198.51.100.1"]));
        assert_eq!(lab.reason(9), Some(Reason::Connecting));

        let (reason, message) = lab.judge(10).unwrap();

        assert_eq!(reason, Reason::NoAnswer);
        assert!(message.contains("cannot be told from here"), "{message}");
        assert!(message.contains("UDP port 31840 of 198.51.100.1"));
    }

    #[test]
    fn keys_that_do_not_match_are_told_by_the_server() {
        let mut lab = Lab::new(server());
        lab.lose();
        lab.tunnel.note_rekeyed();
        assert!(lab.judge(0).unwrap().1.starts_with("since the keys"));

        lab.signs(Signs {
            strangers: Some(FROM),
            ..Signs::default()
        });

        let (reason, message) = lab.judge(3).unwrap();
        assert_eq!(reason, Reason::KeysDiffer);
        assert!(message.contains("liqoctl network connect"), "{message}");
    }

    #[test]
    fn a_name_that_does_not_resolve_is_named_until_it_does() {
        let mut lab = Lab::new(client(&["milan.example"]));
        let failed = Err("no such host".to_owned());
        lab.tunnel.note_lookup("milan.example", failed.clone());

        let (reason, message) = lab.judge(0).unwrap();
        assert_eq!(reason, Reason::NameNotResolved);
        assert!(message.starts_with("milan.example"), "{message}");
        assert!(message.contains("no such host"), "{message}");
        assert!(message.contains("spec.endpoint.addresses"), "{message}");

        lab.tunnel.note_lookup("milan.example", Ok(()));
        assert_eq!(lab.reason(0), Some(Reason::Connecting));
        // Another address can be called.
        lab.tunnel
            .set_way(client(&["milan.example", "198.51.100.1"]));
        lab.tunnel.note_lookup("milan.example", failed);
        assert_eq!(lab.reason(0), Some(Reason::Connecting));
    }

    #[test]
    fn what_comes_just_before_a_connection_is_no_fault() {
        let mut lab = Lab::new(server());
        lab.pass(9);
        lab.signs(Signs {
            calls: Some(FROM),
            ..Signs::default()
        });

        assert_eq!(lab.reason(0), Some(Reason::Connecting));
    }

    struct Lab {
        tunnel: Tunnel,
        now: Instant,
    }

    impl Lab {
        fn new(way: Way) -> Self {
            let now = Instant::now();
            Self {
                tunnel: Tunnel::new(way, now),
                now,
            }
        }

        fn state(&mut self, state: ConnectionState) {
            self.tunnel.note_state(state, self.now);
        }

        fn lose(&mut self) {
            self.state(ConnectionState::Connected);
            self.state(ConnectionState::Error);
        }

        fn signs(&mut self, signs: Signs) {
            self.tunnel.note_signs(signs, self.now);
        }

        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }

        /// Judges so many seconds from now.
        fn judge(&self, seconds: u64) -> Option<Finding> {
            let at = self.now + Duration::from_secs(seconds);
            self.tunnel.judge("gw-1", "milan", at)
        }

        fn reason(&self, seconds: u64) -> Option<Reason> {
            self.judge(seconds).map(|(reason, _)| reason)
        }
    }

    fn server() -> Way {
        Way::Server { port: 31_840 }
    }

    fn client(addresses: &[&str]) -> Way {
        Way::Client {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            port: 31_840,
        }
    }
}
