//! The node on which a replica runs: its address, and the prefixes of its pods.
//!
//! A packet for a pod on that node needs no overlay frame over the network if this replica receives it, and no detour over
//! another node if it is sent to that node's own address. Replicas state both in their probes, in the key `place`:
//!
//! ```text
//! "place":"172.16.0.1 10.244.1.0/24 10.244.9.64/26"     address of the node, then original prefixes
//! ```

use super::inner::Sources;
use super::peer::Candidate;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Longest text in bytes that is sent. A probe with it fits into every path MTU.
const SENT_BYTES_MAX: usize = 640;

/// Longest text in bytes that is accepted.
const TEXT_BYTES_MAX: usize = 1_280;

/// Maximum number of prefixes of a replica's node.
const PREFIXES_MAX: usize = 64;

/// The node on which a replica runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The value of the key, by which a repeated statement is recognised.
    text: String,
    address: IpAddr,
    pods: Vec<Ipv4Net>,
}

impl Place {
    /// Describes a node with this address and these prefixes of pods. Prefixes that do not fit into a probe are left out.
    pub(crate) fn new(address: IpAddr, pods: &[Ipv4Net]) -> Self {
        let mut text = address.to_string();
        let mut stated = Vec::new();
        for prefix in pods.iter().take(PREFIXES_MAX) {
            let word = format!(" {prefix}");
            if text.len() + word.len() > SENT_BYTES_MAX {
                break;
            }
            text.push_str(&word);
            stated.push(*prefix);
        }

        Self {
            text,
            address,
            pods: stated,
        }
    }

    /// Parses the value of the key. Returns `None` if it is malformed or too long.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let mut words = text.split(' ');
        let address = words.next()?.parse().ok()?;
        let pods: Option<Vec<Ipv4Net>> = words.map(|word| word.parse().ok()).collect();

        Some(Self {
            text: text.to_owned(),
            address,
            pods: pods.filter(|pods| pods.len() <= PREFIXES_MAX)?,
        })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the address of the node.
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the prefixes inside the prefixes that the peer was granted.
    pub(super) fn pods<'a>(&'a self, granted: &'a Sources) -> impl Iterator<Item = Ipv4Net> {
        let is_granted = |prefix: &&Ipv4Net| granted.contains_all(**prefix);

        self.pods.iter().filter(is_granted).copied()
    }

    /// Returns the number of prefixes outside the prefixes that the peer was granted.
    pub(super) fn foreign(&self, granted: &Sources) -> usize {
        self.pods.len() - self.pods(granted).count()
    }
}

/// The sessions for packets to each stated prefix.
#[derive(Clone, Debug, Default)]
pub(super) struct Placements {
    /// Sessions by network, for each length of prefixes, longest first.
    by_mask: Vec<(u32, BTreeMap<u32, Vec<Candidate>>)>,
}

impl Placements {
    /// Adds a session for packets to `prefix`.
    pub(super) fn add(&mut self, prefix: Ipv4Net, candidate: Candidate) {
        let mask = prefix.netmask().to_bits();
        let at = self.by_mask.partition_point(|(other, _)| *other > mask);
        if self.by_mask.get(at).is_none_or(|(other, _)| *other != mask) {
            self.by_mask.insert(at, (mask, BTreeMap::new()));
        }
        let sessions = &mut self.by_mask[at].1;
        sessions
            .entry(prefix.network().to_bits())
            .or_default()
            .push(candidate);
    }

    /// Returns the sessions for packets to `destination`: those of the longest prefix that contains it. The list is empty if there is
    /// none.
    #[inline]
    pub(super) fn of(&self, destination: u32) -> &[Candidate] {
        self.by_mask
            .iter()
            .find_map(|(mask, sessions)| sessions.get(&(destination & mask)))
            .map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::SessionId;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    fn session(place: u32) -> Candidate {
        let session = SessionId {
            place,
            generation: 0,
        };
        Candidate {
            session,
            salt: place,
        }
    }

    #[test]
    fn the_longest_prefix_selects_the_sessions() {
        let mut placements = Placements::default();
        placements.add(net("10.244.0.0/16"), session(1));
        placements.add(net("10.244.1.0/24"), session(2));
        placements.add(net("10.244.1.7/32"), session(3));
        placements.add(net("10.244.1.0/24"), session(4));

        let of = |destination: &str| {
            let address: Ipv4Addr = destination.parse().unwrap();
            let sessions = placements.of(address.to_bits()).iter();
            sessions.map(|it| it.session.place).collect::<Vec<_>>()
        };

        assert_eq!(of("10.244.1.7"), [3]);
        assert_eq!(of("10.244.1.8"), [2, 4]);
        assert_eq!(of("10.244.2.8"), [1]);
        assert_eq!(of("10.245.2.8"), [0; 0]);
    }

    #[test]
    fn prefixes_outside_the_granted_ones_are_left_out() {
        let place = Place::parse("172.16.0.1 10.244.1.0/24 0.0.0.0/0 10.244.0.0/15").unwrap();
        let granted = Sources::new(&[net("10.244.0.0/16")]);

        let pods: Vec<_> = place.pods(&granted).collect();

        assert_eq!(pods, [net("10.244.1.0/24")]);
        assert_eq!(place.foreign(&granted), 2);
    }

    #[test]
    fn a_place_with_many_prefixes_is_cut_to_what_a_probe_holds() {
        let pods: Vec<_> = (0..=255_u8)
            .map(|it| net(&format!("10.244.{it}.0/24")))
            .collect();

        let place = Place::new("172.16.0.1".parse().unwrap(), &pods);

        assert!(place.text().len() <= SENT_BYTES_MAX);
        assert!(place.pods.len() > 32);
        assert_eq!(Place::parse(place.text()), Some(place));
    }

    #[test]
    fn malformed_and_long_texts_are_refused() {
        let long = format!("172.16.0.1{}", " 10.0.0.0/8".repeat(PREFIXES_MAX + 1));
        for text in [
            "",
            "10.244.1.0/24",
            "172.16.0.1  10.244.1.0/24",
            "172.16.0.1 10.244.1.0",
            "172.16.0.1 2001:db8::/32",
            &long,
            &"x".repeat(TEXT_BYTES_MAX + 1),
        ] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,60}") {
            if let Some(place) = Place::parse(&text) {
                prop_assert_eq!(place.text(), text);
            }
        }
    }
}
