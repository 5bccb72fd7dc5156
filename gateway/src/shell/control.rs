//! Everything that may wait: the file, names to look up, signals.

use super::desired::{Desired, Loader};
use super::lane::{Command, Handle, Hung, Notice};
use super::state::{State, lock};
use crate::engine::ConnectionState;
use ebpf::Datapath;
use process::watch::FileWatch;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// How long a name may take to look up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Names looked up at once; the engine asks again for those that find no room.
const LOOKUPS_MAX: usize = 64;

/// How long the nodes need to see that this replica leaves: two of their probes,
/// and some time to act.
const NODES_LEAVE: Duration = Duration::from_millis(600);

/// Keeps the running parts in step with the outside.
pub(crate) struct Control {
    loader: Loader,
    watch: FileWatch,
    lane: Handle,
    notices: mpsc::Receiver<Notice>,
    datapath: Arc<Mutex<Datapath>>,
    state: Arc<State>,
    replica: String,
    /// What is being served.
    served: Desired,
    /// What was logged of each peer.
    connections: BTreeMap<u16, ConnectionState>,
    lookups: JoinSet<Lookup>,
    looking_up: BTreeSet<(u16, String)>,
}

/// A name's addresses, once they are known.
struct Lookup {
    peer: u16,
    host: String,
    addresses: Vec<SocketAddr>,
}

/// What control needs to start.
pub(crate) struct Parts {
    /// Reads the files again.
    pub(crate) loader: Loader,
    /// Tells when.
    pub(crate) watch: FileWatch,
    /// The packet loop's ends.
    pub(crate) lane: Handle,
    /// What it tells.
    pub(crate) notices: mpsc::Receiver<Notice>,
    /// The kernel programs.
    pub(crate) datapath: Arc<Mutex<Datapath>>,
    /// What others see.
    pub(crate) state: Arc<State>,
    /// This replica's name.
    pub(crate) replica: String,
    /// What the kernel programs know already.
    pub(crate) served: Desired,
}

impl Control {
    /// Tells the packet loop what to serve first.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if the loop has ended.
    pub(crate) fn start(parts: Parts) -> Result<Self, Hung> {
        let control = Self {
            loader: parts.loader,
            watch: parts.watch,
            lane: parts.lane,
            notices: parts.notices,
            datapath: parts.datapath,
            state: parts.state,
            replica: parts.replica,
            served: parts.served,
            connections: BTreeMap::new(),
            lookups: JoinSet::new(),
            looking_up: BTreeSet::new(),
        };
        control.instruct()?;

        Ok(control)
    }

    /// Follows file and engine until the loop ends, which it does not do by itself.
    pub(crate) async fn run(&mut self) {
        loop {
            tokio::select! {
                () = self.watch.changed() => self.reload(),
                notice = self.notices.recv() => match notice {
                    Some(notice) => self.handle_notice(notice),
                    None => return,
                },
                Some(lookup) = self.lookups.join_next() => {
                    if let Ok(lookup) = lookup {
                        self.handle_lookup(lookup);
                    }
                }
            }
        }
    }

    /// Lets peers and nodes move away, `limit` at most, then stops the loop.
    ///
    /// Alone, there is nobody to move to: then it stops at once, for the sooner the
    /// next process starts the better.
    pub(crate) async fn leave(mut self, limit: Duration) {
        let others = self
            .live_replicas()
            .iter()
            .any(|name| *name != self.replica);
        if others && self.lane.send(Command::Leave).is_ok() {
            let start = Instant::now();
            let drained = async {
                while let Some(notice) = self.notices.recv().await {
                    if matches!(notice, Notice::Drained) {
                        break;
                    }
                }
            };
            let _ = timeout_at(start + limit, drained).await;
            tokio::time::sleep_until(start + NODES_LEAVE.min(limit)).await;
        }
        let _ = self.lane.send(Command::Stop);
    }

    fn reload(&mut self) {
        let desired = match self.loader.load() {
            Ok(Some(desired)) => desired,
            // Back to what is being served, perhaps after an error.
            Ok(None) => return self.state.note_restored(),
            Err(error) => return self.reject(&error),
        };

        let before = std::mem::replace(&mut self.served, desired);
        // The engine first: packets of a peer that comes are refused until the tables
        // know it, those for one that goes are refused by the engine. No number
        // means another peer in between, for a number given up rests.
        let applied = self.instruct().map_err(anyhow::Error::from).and_then(|()| {
            lock(&self.datapath)
                .apply(&self.served.tables)
                .map_err(anyhow::Error::from)
        });
        match applied {
            Ok(changes) => {
                let peers: BTreeSet<_> =
                    self.served.ranks.iter().map(|(_, index)| *index).collect();
                self.connections.retain(|peer, _| peers.contains(peer));
                tracing::info!(
                    peers = self.served.peers.len(),
                    ?changes,
                    "configuration applied"
                );
                self.state.note_applied(self.served.peers.len());
            }
            Err(error) => {
                self.served = before;
                let back = self.instruct();
                tracing::debug!(?back, "went back to the last good configuration");
                self.loader.reject();
                self.reject(&error);
            }
        }
    }

    fn reject(&self, error: &(impl std::fmt::Display + ?Sized)) {
        let error = error.to_string();
        if self.state.note_rejected(&error) {
            tracing::error!(
                error,
                "configuration rejected: the last good one stays in force"
            );
        }
    }

    fn instruct(&self) -> Result<(), Hung> {
        self.lane.send(Command::Peers {
            peers: self.served.peers.clone(),
            ranks: self.served.ranks.clone(),
        })?;
        self.lane.send(Command::Replicas(self.live_replicas()))
    }

    /// This replica and all that are ready.
    fn live_replicas(&self) -> Vec<String> {
        let ready = self
            .served
            .fabric
            .replicas
            .iter()
            .filter(|replica| replica.ready);
        let names: BTreeSet<_> = ready
            .map(|replica| replica.name.clone())
            .chain([self.replica.clone()])
            .collect();
        names.into_iter().collect()
    }

    fn handle_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Resolve { peer, host, port } => self.look_up(peer, host, port),
            Notice::Connection {
                peer,
                state,
                latency,
            } => {
                let is_news = self.connections.insert(peer, state) != Some(state);
                if is_news {
                    let peer = self.cluster_id(peer);
                    tracing::info!(peer, ?state, ?latency, "connection");
                }
            }
            Notice::Drained => {}
        }
    }

    fn cluster_id(&self, peer: u16) -> Option<&str> {
        let mut ranks = self.served.ranks.iter();
        ranks
            .find(|(_, index)| *index == peer)
            .map(|(id, _)| id.as_str())
    }

    fn look_up(&mut self, peer: u16, host: String, port: u16) {
        if let Ok(ip) = host.parse::<IpAddr>() {
            let addresses = vec![SocketAddr::new(ip, port)];
            return self.handle_addresses(peer, host, addresses);
        }
        if self.lookups.len() >= LOOKUPS_MAX || !self.looking_up.insert((peer, host.clone())) {
            return;
        }
        self.lookups.spawn(async move {
            Lookup {
                addresses: resolve(&host, port).await,
                peer,
                host,
            }
        });
    }

    fn handle_lookup(&mut self, lookup: Lookup) {
        self.looking_up.remove(&(lookup.peer, lookup.host.clone()));
        if !lookup.addresses.is_empty() {
            self.handle_addresses(lookup.peer, lookup.host, lookup.addresses);
        }
    }

    fn handle_addresses(&self, peer: u16, host: String, addresses: Vec<SocketAddr>) {
        let command = Command::Resolved {
            peer,
            host,
            addresses,
        };
        if let Err(hung) = self.lane.send(command) {
            tracing::error!(%hung, "failed to pass on a peer's addresses");
        }
    }
}

/// Looks a name up; nothing if that fails, for the engine asks again.
async fn resolve(host: &str, port: u16) -> Vec<SocketAddr> {
    match timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(addresses)) => return addresses.collect(),
        Ok(Err(error)) => tracing::warn!(host, %error, "failed to look up a peer's end point"),
        Err(_) => tracing::warn!(host, "looking up a peer's end point takes too long"),
    }
    Vec::new()
}
