//! Two gateways with many peerings between them, as if each peer of one were another cluster.

use super::cluster::{CLIENT, Cluster, Peer, SERVER};
use super::{key_dir, start};
use crate::bench::cable::Cable;
use crate::bench::measure::{self, Values};
use crate::bench::metric::Underlay;
use ::tests::lab::Identity;
use ::tests::lab::binaries::Binaries;
use ::tests::lab::key::Key;
use ::tests::lab::{status, wait};
use anyhow::{Context as _, Result};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Number of peers of the idle gateways.
const PEERS: usize = 1_000;

/// Time in which all peers connect, 18 s on a busy machine.
const CONNECTED_DEADLINE: Duration = Duration::from_secs(120);

/// Time after which a session without traffic is probed at the interval of idle sessions, and its path MTU is known.
const REST: Duration = Duration::from_secs(10);

/// The names and prefixes of peers. Like in Liqo, a gateway has one key pair per peering.
pub(super) struct Many {
    identity: Arc<Identity>,
    peers: Vec<Names>,
}

struct Names {
    name: String,
    pods: String,
    external: String,
}

impl Many {
    pub(super) fn new(identity: &Arc<Identity>, count: usize) -> Self {
        let prefix =
            |place: usize, base: usize| format!("10.{}.{}.0/24", base + place / 256, place % 256);
        let peers = (0..count).map(|place| Names {
            name: format!("peer-{place}"),
            pods: prefix(place, 100),
            external: prefix(place, 110),
        });

        Self {
            identity: Arc::clone(identity),
            peers: peers.collect(),
        }
    }

    /// Returns the public keys of the gateway of `own`, by peer.
    pub(super) fn keys(&self, own: &Cluster) -> Result<Vec<[u8; 32]>> {
        let keys = self.peers.iter().map(|peer| {
            let key = Key::open(&key_dir(&self.identity, own, &peer.name))?;
            Ok(key.public())
        });

        keys.collect()
    }

    /// Returns the peers of a gateway, which have these public keys. With an endpoint, the gateway opens the sessions.
    pub(super) fn as_peers(&self, endpoint: Option<Ipv4Addr>, keys: &[[u8; 32]]) -> Vec<Peer<'_>> {
        let peers = self.peers.iter().zip(keys);
        peers
            .map(|(peer, key)| Peer {
                name: &peer.name,
                endpoint,
                pods: &peer.pods,
                external: &peer.external,
                key: *key,
                mtu: Underlay::Uso.tunnel_mtu(),
            })
            .collect()
    }
}

/// Measures the processor time of two gateways that have [`PEERS`] peerings and no traffic.
///
/// # Errors
///
/// Returns an error if a gateway does not start, or if a peer does not connect.
pub(in crate::bench) fn idle(window: Duration) -> Result<Values> {
    let identity = Identity::claim()?;
    let cable = Cable::new(&identity, Underlay::Uso)?;
    let many = Many::new(&identity, PEERS);
    let program = Binaries::find().gateway;
    let at_server = many.as_peers(None, &many.keys(&CLIENT)?);
    let at_client = many.as_peers(Some(SERVER.underlay), &many.keys(&SERVER)?);
    let mut processes = [
        start(&identity, &cable.client, &program, &CLIENT, &at_client)
            .context("the client's gateway")?,
        start(&identity, &cable.server, &program, &SERVER, &at_server)
            .context("the server's gateway")?,
    ];
    wait::until(CONNECTED_DEADLINE, "all peers to connect", || {
        Ok(processes.iter().all(|process| {
            let status = status::read(identity.run_dir(), process.name());
            status.is_ok_and(|status| status::live_sessions(&status).len() == PEERS)
        }))
    })?;
    thread::sleep(REST);
    let mut pid = |index: usize| {
        let pid = processes[index].pid();
        pid.map(|pid| vec![pid]).context("a gateway has ended")
    };
    let gateways = [pid(0)?, pid(1)?];

    Ok(measure::idle(&[&gateways], window)?.remove(0))
}
