//! Determines faults between the gateways, and the blocked direction, from handshake messages.
//!
//! The server observes whether initiations of its peer arrive, so it can determine the blocked
//! direction. The client observes only that no response arrives, so its message refers to the
//! Connection object in the server's cluster.

use super::verdict::{Finding, Reason};
use crate::engine::{ConnectionState, HandshakeEvidence};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Age at which handshake evidence is reported as a fault. A handshake in progress completes
/// earlier.
const EVIDENCE_AGE: Duration = Duration::from_secs(3);

/// Time since the loss of a connection after which missing handshake messages are reported as a
/// fault. Every implementation attempts a handshake within WireGuard's `REKEY_TIMEOUT` of 5 s.
const SILENCE: Duration = Duration::from_secs(6);

/// Time without a first connection after which missing handshake messages are reported as a fault.
/// It is longer than [`SILENCE`], because the peer may not be configured yet.
const PATIENCE: Duration = Duration::from_secs(10);

/// This cluster's role in the tunnel to a peer, with the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TunnelRole {
    /// The peer initiates the tunnel.
    Server {
        /// The published UDP port of this cluster's gateways.
        port: u16,
    },
    /// This cluster initiates the tunnel.
    Client {
        /// IP addresses and host names of the peer's gateways.
        addresses: Vec<String>,
        /// UDP port of the peer's gateways.
        port: u16,
    },
}

/// Observations of the tunnel to one peer.
#[derive(Debug)]
pub(super) struct Tunnel {
    role: TunnelRole,
    state: ConnectionState,
    /// Time of the last change of `state`.
    since: Instant,
    evidence: HandshakeEvidence,
    /// Time of the last change of `evidence`.
    evidence_since: Instant,
    /// Whether a key has changed since the last connection.
    is_rekeyed: bool,
    /// Host names that do not resolve, with the resolver's error.
    unresolved: BTreeMap<String, String>,
}

impl Tunnel {
    pub(super) fn new(role: TunnelRole, now: Instant) -> Self {
        Self {
            role,
            state: ConnectionState::Connecting,
            since: now,
            evidence: HandshakeEvidence::default(),
            evidence_since: now,
            is_rekeyed: false,
            unresolved: BTreeMap::new(),
        }
    }

    /// Sets role and endpoint, and removes failed lookups of names that are no longer endpoints.
    pub(super) fn set_role(&mut self, role: TunnelRole) {
        self.role = role;
        let TunnelRole::Client { addresses, .. } = &self.role else {
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

    pub(super) fn note_evidence(&mut self, evidence: HandshakeEvidence, now: Instant) {
        if self.evidence != evidence {
            self.evidence = evidence;
            self.evidence_since = now;
        }
    }

    pub(super) fn note_rekeyed(&mut self) {
        self.is_rekeyed = true;
    }

    pub(super) fn note_lookup(&mut self, host: &str, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.unresolved.remove(host),
            Err(error) => self.unresolved.insert(host.to_owned(), error),
        };
    }

    /// Returns the time since the last change of the connection state.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Returns the fault if the peer is not connected.
    pub(super) fn judge(&self, replica: &str, peer: &str, now: Instant) -> Option<Finding> {
        if self.state == ConnectionState::Connected {
            return None;
        }
        let known = match &self.role {
            TunnelRole::Server { port } => self.of_server(replica, peer, *port, now),
            TunnelRole::Client { addresses, port } => {
                self.of_client(replica, peer, addresses, *port, now)
            }
        };

        known.or_else(|| Some(self.unknown(replica, peer)))
    }

    fn of_server(&self, replica: &str, peer: &str, port: u16, now: Instant) -> Option<Finding> {
        if let Some(from) = self
            .evidence
            .initiations
            .filter(|_| self.is_evidence_due(now))
        {
            return Some((Reason::AnswersLost, answers_lost(replica, peer, port, from)));
        }
        if let Some(from) = self
            .evidence
            .unknown_keys
            .filter(|_| self.is_evidence_due(now))
        {
            return Some((Reason::KeysDiffer, keys_differ(replica, peer, from)));
        }
        if !self.is_silence_due(now) {
            return None;
        }
        let message = format!(
            "{}no handshake of {peer} arrives at gateway {replica}: {peer} -> this cluster is blocked, or \
             {peer} sends none. Open UDP port {port} of this cluster's gateways (status.endpoint of the \
             GatewayServer) to {peer}, check that its gateways may send there, and that its PublicKey \
             for this cluster is this cluster's key",
            self.after_rekey(),
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
        if let Some((host, error)) = self.unresolved(addresses) {
            let message = format!(
                "{host}, an endpoint of {peer}, does not resolve: {error}. Correct \
                 spec.endpoint.addresses of the GatewayClient, or add the name to the cluster's DNS",
            );
            return Some((Reason::NameNotResolved, message));
        }
        let to = addresses.join(", ");
        if self.evidence.responses.is_some() && self.is_evidence_due(now) {
            let message = format!(
                "the gateways of {peer} respond to the handshakes of gateway {replica}, so UDP passes in both \
                 directions, but not to probes: check that UDP port {port} of {to} stays open for the \
                 duration of a flow"
            );
            return Some((Reason::Tunnel, message));
        }
        if !self.is_silence_due(now) {
            return None;
        }
        let message = format!(
            "{}{to}, UDP port {port}, does not respond to handshakes of gateway {replica}. The Connection in \
             {peer} shows whether they arrive there, and so which direction is blocked. Open UDP port \
             {port} of {to} to this cluster's gateways, let the responses in, and check that the \
             PublicKey of {peer} here is the key it uses",
            self.after_rekey(),
        );
        Some((Reason::NoAnswer, message))
    }

    /// Returns the reason and message for users while there is no evidence of the cause.
    fn unknown(&self, replica: &str, peer: &str) -> Finding {
        if self.state == ConnectionState::Connecting {
            let message =
                format!("gateway {replica} has received nothing from a gateway of {peer} yet");
            return (Reason::Connecting, message);
        }
        let message = format!(
            "{}gateway {replica} receives nothing from the gateways of {peer} any more: check that they run, \
             and that both firewalls accept the tunnel's UDP port",
            self.after_rekey(),
        );
        (Reason::Tunnel, message)
    }

    /// Returns a host name that does not resolve, and its error, if no endpoint has an address.
    fn unresolved(&self, addresses: &[String]) -> Option<(&String, &String)> {
        let is_unresolved = |host: &String| self.unresolved.contains_key(host);
        let first = addresses.first();
        let first = first.filter(|_| addresses.iter().all(is_unresolved));

        self.unresolved.get_key_value(first?)
    }

    /// Returns whether the evidence is older than [`EVIDENCE_AGE`].
    fn is_evidence_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.evidence_since) >= EVIDENCE_AGE
    }

    fn is_silence_due(&self, now: Instant) -> bool {
        let limit = if self.state == ConnectionState::Connecting {
            PATIENCE
        } else {
            SILENCE
        };

        self.age(now) >= limit
    }

    fn after_rekey(&self) -> &'static str {
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
         cluster -> {peer} is blocked: the responses are lost. Let UDP from port {port} of this cluster's \
         gateways out to {from}, and in there"
    )
}

fn keys_differ(replica: &str, peer: &str, from: IpAddr) -> String {
    format!(
        "the keys do not match: the sender at {from} whose handshakes for {peer} arrive at gateway {replica} \
         has another key than the PublicKey of {peer} here. Write the key that the gateways of {peer} use \
         into that PublicKey: `liqoctl network connect` exchanges the keys again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    #[test]
    fn a_server_determines_the_blocked_direction() {
        let mut lab = Lab::new(server());
        lab.lose();
        assert_eq!(lab.reason(5), Some(Reason::Tunnel));

        let (reason, message) = lab.judge(6).unwrap();
        assert_eq!(reason, Reason::NothingArrives);
        assert!(message.contains("milan -> this cluster is blocked"));
        assert!(message.contains("UDP port 31840"), "{message}");

        lab.pass(6);
        lab.evidence(HandshakeEvidence {
            initiations: Some(FROM),
            ..HandshakeEvidence::default()
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
    fn a_client_refers_to_the_servers_connection() {
        let lab = Lab::new(client(&["198.51.100.1"]));
        assert_eq!(lab.reason(9), Some(Reason::Connecting));

        let (reason, message) = lab.judge(10).unwrap();

        assert_eq!(reason, Reason::NoAnswer);
        assert!(
            message.contains("shows whether they arrive there"),
            "{message}"
        );
        assert!(message.contains("UDP port 31840 of 198.51.100.1"));
    }

    #[test]
    fn the_server_reports_keys_that_do_not_match() {
        let mut lab = Lab::new(server());
        lab.lose();
        lab.tunnel.note_rekeyed();
        assert!(lab.judge(0).unwrap().1.starts_with("since the keys"));

        lab.evidence(HandshakeEvidence {
            unknown_keys: Some(FROM),
            ..HandshakeEvidence::default()
        });

        let (reason, message) = lab.judge(3).unwrap();
        assert_eq!(reason, Reason::KeysDiffer);
        assert!(message.contains("liqoctl network connect"), "{message}");
    }

    #[test]
    fn a_name_is_reported_until_it_resolves() {
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
        // The second endpoint is an IP address, which needs no lookup.
        lab.tunnel
            .set_role(client(&["milan.example", "198.51.100.1"]));
        lab.tunnel.note_lookup("milan.example", failed);
        assert_eq!(lab.reason(0), Some(Reason::Connecting));
    }

    #[test]
    fn a_handshake_in_progress_is_no_fault() {
        let mut lab = Lab::new(server());
        lab.pass(9);
        lab.evidence(HandshakeEvidence {
            initiations: Some(FROM),
            ..HandshakeEvidence::default()
        });

        assert_eq!(lab.reason(0), Some(Reason::Connecting));
    }

    struct Lab {
        tunnel: Tunnel,
        now: Instant,
    }

    impl Lab {
        fn new(role: TunnelRole) -> Self {
            let now = Instant::now();
            Self {
                tunnel: Tunnel::new(role, now),
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

        fn evidence(&mut self, evidence: HandshakeEvidence) {
            self.tunnel.note_evidence(evidence, self.now);
        }

        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }

        /// Returns the finding after `seconds`.
        fn judge(&self, seconds: u64) -> Option<Finding> {
            let at = self.now + Duration::from_secs(seconds);
            self.tunnel.judge("gw-1", "milan", at)
        }

        fn reason(&self, seconds: u64) -> Option<Reason> {
            self.judge(seconds).map(|(reason, _)| reason)
        }
    }

    fn server() -> TunnelRole {
        TunnelRole::Server { port: 31_840 }
    }

    fn client(addresses: &[&str]) -> TunnelRole {
        TunnelRole::Client {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            port: 31_840,
        }
    }
}
