//! How each of this cluster's nodes and this replica are connected.

use crate::engine;
use control_api::fabric::Node;
use ebpf_common::probe::{HEARS, REFLECTS, RESTS, SPEAKS, Sighting};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Without a probe for this long a node is silent: a dozen of its probes are missing.
const SILENCE: Duration = Duration::from_secs(2);

/// How long a node may take until its first probe: a new one must get its route agent first, and
/// a new replica must become known to the nodes.
const ARRIVAL: Duration = Duration::from_secs(30);

/// How long a route agent that was asked to stop may be away, as in an update of the software.
const REST: Duration = Duration::from_secs(60);

/// How many looks in a row must find that a node does not hear: what it says may be older than
/// this replica's first answer.
const DEAF_LOOKS: u8 = 2;

/// How a node and this replica are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlay {
    /// Each hears the other; of a node of an earlier version, this replica hears it.
    Well,
    /// No probe has come yet, and there was little time for it.
    New,
    /// Its route agent was asked to stop.
    Resting,
    /// Its probes do not come.
    Silent,
    /// Its probes come, but the answers do not arrive there.
    Deaf,
}

impl Overlay {
    /// Returns the state's name in status and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::New => "new",
            Self::Resting => "resting",
            Self::Silent => "silent",
            Self::Deaf => "deaf",
        }
    }

    /// Whether packets to or from the node are lost.
    pub(crate) fn is_cut(self) -> bool {
        matches!(self, Self::Silent | Self::Deaf)
    }
}

/// The nodes that are ready, by name.
#[derive(Debug, Default)]
pub(super) struct Nodes(BTreeMap<String, Known>);

#[derive(Debug)]
struct Known {
    address: Ipv4Addr,
    since: Instant,
    overlay: Overlay,
    /// How many looks in a row have found that it does not hear.
    deaf: u8,
    speaks: bool,
    reflects: bool,
}

impl Nodes {
    /// Takes in the nodes there are and what each has said last.
    pub(super) fn update(
        &mut self,
        nodes: &[Node],
        sightings: &BTreeMap<Ipv4Addr, (Duration, Sighting)>,
        now: Instant,
    ) {
        let mut before = std::mem::take(&mut self.0);
        // One that is not ready is known to be ill, and not on our account.
        for node in nodes.iter().filter(|node| node.ready) {
            let known = before.remove(&node.name);
            let known = known.filter(|known| known.address == node.internal_ip);
            let (since, deaf) = known.map_or((now, 0), |known| (known.since, known.deaf));
            let seen = sightings.get(&node.internal_ip);
            let says = |flag| seen.is_some_and(|(_, sighting)| sighting.says(flag));
            let mut overlay = overlay(seen, now.saturating_duration_since(since));
            let is_deaf = overlay == Overlay::Deaf;
            let deaf = if is_deaf { deaf.saturating_add(1) } else { 0 };
            if is_deaf && deaf < DEAF_LOOKS {
                overlay = Overlay::Well;
            }
            let known = Known {
                address: node.internal_ip,
                since,
                overlay,
                deaf,
                speaks: says(SPEAKS),
                reflects: says(REFLECTS),
            };
            self.0.insert(node.name.clone(), known);
        }
    }

    /// Returns the nodes whose checks tell something, each with what it says.
    pub(super) fn checking<'a>(
        &'a self,
        sightings: &'a BTreeMap<Ipv4Addr, (Duration, Sighting)>,
    ) -> impl Iterator<Item = (&'a str, &'a Sighting)> {
        self.0
            .iter()
            .filter(|(_, known)| known.overlay == Overlay::Well && known.speaks)
            .filter_map(|(name, known)| Some((name.as_str(), &sightings.get(&known.address)?.1)))
    }

    /// Returns how many nodes check the way to the peers.
    pub(super) fn checking_count(&self) -> usize {
        let checking = |known: &&Known| known.overlay == Overlay::Well && known.speaks;
        self.0.values().filter(checking).count()
    }

    /// Returns the nodes that are not well, and what is wrong.
    pub(super) fn ill(&self) -> impl Iterator<Item = (&str, Overlay)> {
        let ill = self.0.iter().filter(|(_, it)| it.overlay != Overlay::Well);
        ill.map(|(name, known)| (name.as_str(), known.overlay))
    }

    /// Returns how many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns what the peers are to be told.
    pub(super) fn summary(&self) -> engine::Nodes {
        let count = |is: fn(Overlay) -> bool| {
            let nodes = self.0.values().filter(|known| is(known.overlay));
            u32::try_from(nodes.count()).unwrap_or(u32::MAX)
        };

        engine::Nodes {
            all: count(|_| true),
            cut: count(Overlay::is_cut),
            resting: count(|overlay| matches!(overlay, Overlay::Resting | Overlay::New)),
            reflect: !self.0.is_empty() && {
                let mut met = self.0.values().filter(|it| it.overlay != Overlay::New);
                met.all(|known| known.reflects)
            },
        }
    }
}

/// Whether each node that is ready knows this replica: its probes come, and the answers arrive
/// there as far as it tells.
pub(crate) fn is_known_to_all(
    nodes: &[Node],
    sightings: &BTreeMap<Ipv4Addr, (Duration, Sighting)>,
) -> bool {
    let mut ready = nodes.iter().filter(|node| node.ready);
    ready.all(|node| {
        let seen = sightings.get(&node.internal_ip);
        // What an earlier process of this replica was told may still be there.
        let fresh = seen.filter(|(age, _)| *age < SILENCE);
        fresh.is_some_and(|(_, sighting)| sighting.says(HEARS) || !sighting.says(SPEAKS))
    })
}

fn overlay(seen: Option<&(Duration, Sighting)>, known_for: Duration) -> Overlay {
    let Some((age, sighting)) = seen else {
        return if known_for < ARRIVAL {
            Overlay::New
        } else {
            Overlay::Silent
        };
    };

    if sighting.says(RESTS) && *age < REST {
        Overlay::Resting
    } else if *age >= SILENCE {
        Overlay::Silent
    } else if sighting.says(SPEAKS) && !sighting.says(HEARS) {
        Overlay::Deaf
    } else {
        Overlay::Well
    }
}
