//! Everything that may wait: the desired state, names to look up, signals.

mod lookups;
mod paths;
mod standby;

use super::connections::Reporter;
use super::desired::{Desired, Loader};
use super::lane::{Command, Hung, Notice, Told};
use super::lanes::{Joint, Lanes};
use super::state::{State, lock};
use crate::engine::{ConnectionState, Nodes, Role};
use crate::path::Paths;
use ebpf::Datapath;
use lookups::{Lookups, Name};
use standby::Standby;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// A lookup that takes longer is worth a line in the log.
const LOOKUP_SLOW: Duration = Duration::from_secs(5);

/// How long the nodes need to see that this replica leaves: two of their probes,
/// and some time to act.
const NODES_LEAVE: Duration = Duration::from_millis(600);

/// Keeps the running parts in step with the outside.
pub(crate) struct Control {
    loader: Loader,
    lanes: Lanes,
    notices: mpsc::Receiver<Told>,
    /// What the lanes have told.
    joint: Joint,
    datapath: Arc<Mutex<Datapath>>,
    state: Arc<State>,
    replica: String,
    /// What is being served.
    served: Desired,
    /// What was logged of each peer.
    connections: BTreeMap<u16, ConnectionState>,
    /// Tells the API server, if there is one.
    reporter: Option<Reporter>,
    /// Where the ways to the peers are broken.
    paths: Paths,
    /// What the peers were told of our nodes.
    nodes: Nodes,
    /// Until the nodes know this replica.
    standby: Option<Standby>,
    lookups: Lookups,
    /// The threads of those under way. No time ends one: the system's resolver
    /// does, and until then its thread is there.
    answers: JoinSet<Answer>,
}

/// A name's addresses, or why there are none.
struct Answer {
    name: Name,
    outcome: Result<Vec<SocketAddr>, String>,
}

/// What control needs to start.
pub(crate) struct Parts {
    /// Reads the desired state again.
    pub(crate) loader: Loader,
    /// The packet loops.
    pub(crate) lanes: Lanes,
    /// What they tell.
    pub(crate) notices: mpsc::Receiver<Told>,
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
        let client = parts.loader.client();
        let mut control = Self {
            reporter: client.map(|client| Reporter::new(client, &parts.replica)),
            paths: Paths::new(&parts.replica),
            nodes: Nodes::default(),
            standby: Some(Standby::new(Instant::now())),
            loader: parts.loader,
            lanes: parts.lanes,
            notices: parts.notices,
            joint: Joint::default(),
            datapath: parts.datapath,
            state: parts.state,
            replica: parts.replica,
            served: parts.served,
            connections: BTreeMap::new(),
            lookups: Lookups::default(),
            answers: JoinSet::new(),
        };
        control.lanes.send(Command::Standby(true))?; // Before there is any peer to tell.
        control.instruct()?;
        control.follow_peers();

        Ok(control)
    }

    /// Follows desired state and engine until the loop ends, which it does not do by itself.
    pub(crate) async fn run(&mut self) {
        self.reload(); // It may have changed before it was watched.
        let mut looks = paths::looks();
        loop {
            tokio::select! {
                _ = looks.tick() => self.look(),
                () = standby::next_look(self.standby) => self.come_forward(),
                () = self.loader.changed() => {
                    self.reload();
                    self.report();
                }
                () = written(self.reporter.as_mut()) => self.report(),
                notice = self.notices.recv() => match notice {
                    Some(told) => self.handle_told(told),
                    None => return,
                },
                Some(answer) = self.answers.join_next() => {
                    if let Ok(answer) = answer {
                        self.handle_answer(answer);
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
        if others && self.lanes.send(Command::Leave).is_ok() {
            let start = Instant::now();
            let drained = async {
                while let Some(told) = self.notices.recv().await {
                    if matches!(self.join(told), Some(Notice::Drained)) {
                        break;
                    }
                }
            };
            let _ = timeout_at(start + limit, drained).await;
            tokio::time::sleep_until(start + NODES_LEAVE.min(limit)).await;
        }
        let _ = self.lanes.send(Command::Stop);
    }

    fn reload(&mut self) {
        let desired = match self.loader.load() {
            Ok(Some(desired)) => desired,
            // Back to what is being served, perhaps after an error.
            Ok(None) => return self.state.note_restored(),
            Err(error) => return self.reject(&anyhow::Error::from(error)),
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
                self.joint.retain(|peer| peers.contains(&peer));
                let served = &self.served;
                self.lookups.retain(|name| is_wanted(served, name));
                self.follow_peers();
                self.note_rekeyed(&before.peers);
                tracing::info!(
                    peers = self.served.peers.len(),
                    ?changes,
                    "configuration applied"
                );
                self.report_unserved(&before.unserved);
                self.state.note_applied(&self.served);
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

    /// Tells what is not served and was not told before.
    fn report_unserved(&self, told: &[String]) {
        for line in &self.served.unserved {
            if !told.contains(line) {
                tracing::warn!("{line}");
            }
        }
    }

    fn reject(&self, error: &anyhow::Error) {
        let error = format!("{error:#}");
        if self.state.note_rejected(&error) {
            tracing::error!(
                error,
                "configuration rejected: the last good one stays in force"
            );
        }
    }

    fn instruct(&self) -> Result<(), Hung> {
        self.lanes.send(Command::Peers {
            peers: self.served.peers.clone(),
            ranks: self.served.ranks.clone(),
            tunnelled: self.served.tunnelled(),
        })?;
        self.lanes.send(Command::Replicas(self.live_replicas()))
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

    fn handle_told(&mut self, told: Told) {
        if let Some(notice) = self.join(told) {
            self.handle_notice(notice);
        }
    }

    /// Tells lanes what others have found out, and returns what the gateway tells.
    fn join(&mut self, (lane, notice): Told) -> Option<Notice> {
        let outcome = self.joint.handle(lane, notice);
        // What is lost of these is sent or told again.
        if let Some(command) = outcome.first {
            let _ = self.lanes.send_first(command);
        }
        if let Some(command) = outcome.others {
            let _ = self.lanes.send_others(&command);
        }

        outcome.notice
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
                let Some(cluster_id) = self.cluster_id(peer).map(str::to_owned) else {
                    return;
                };
                if is_news {
                    tracing::info!(peer = cluster_id, ?state, ?latency, "connection");
                }
                if let Some(reporter) = &mut self.reporter {
                    reporter.note(&cluster_id, state, latency);
                }
                let now = std::time::Instant::now();
                self.paths.note_connection(&cluster_id, state, now);
                self.report();
            }
            Notice::Remote { peer, kind, nodes } => {
                if let Some(cluster_id) = self.cluster_id(peer).map(str::to_owned) {
                    self.paths.note_remote(&cluster_id, kind, nodes);
                }
            }
            Notice::Signs { peer, signs } => {
                if let Some(cluster_id) = self.cluster_id(peer).map(str::to_owned) {
                    let now = std::time::Instant::now();
                    self.paths.note_signs(&cluster_id, signs, now);
                }
            }
            Notice::Initiation { .. } | Notice::Drained => {}
        }
    }

    /// Writes what the Connections of the API server do not say.
    fn report(&mut self) {
        if let Some(reporter) = &mut self.reporter {
            reporter.write(self.loader.connections());
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
        let name = Name { peer, host, port };
        // Of a peer that has gone meanwhile: then nobody waits for the answer.
        if is_wanted(&self.served, &name) {
            self.lookups.ask(name);
        }
        self.start_lookups();
    }

    fn start_lookups(&mut self) {
        while let Some(name) = self.lookups.poll_start() {
            self.answers.spawn_blocking(move || Answer {
                outcome: resolve(&name),
                name,
            });
        }
    }

    fn handle_answer(&mut self, answer: Answer) {
        let Answer { name, outcome } = answer;
        self.lookups.finish(&name);
        self.start_lookups();
        // The port may have changed meanwhile, and stands in the addresses.
        if !is_wanted(&self.served, &name) {
            return;
        }
        if let Some(cluster_id) = self.cluster_id(name.peer).map(str::to_owned) {
            let told = outcome.as_ref().map(drop).map_err(Clone::clone);
            self.paths.note_lookup(&cluster_id, &name.host, told);
        }
        if let Ok(addresses) = outcome {
            self.handle_addresses(name.peer, name.host, addresses);
        }
    }

    fn handle_addresses(&self, peer: u16, host: String, addresses: Vec<SocketAddr>) {
        let command = Command::Resolved {
            peer,
            host,
            addresses,
        };
        if let Err(hung) = self.lanes.send(command) {
            tracing::error!(%hung, "failed to pass on a peer's addresses");
        }
    }
}

/// Completes when a status was written; never without an API server.
async fn written(reporter: Option<&mut Reporter>) {
    match reporter {
        Some(reporter) => reporter.written().await,
        None => std::future::pending().await,
    }
}

/// Returns whether a peer that is served has an end point of this name and port.
fn is_wanted(served: &Desired, name: &Name) -> bool {
    served.peers.iter().any(|peer| match &peer.role {
        Role::Client { addresses, port } => {
            peer.index == name.peer && *port == name.port && addresses.contains(&name.host)
        }
        Role::Server => false,
    })
}

/// Looks a name up, for as long as the system takes; the engine asks again if that fails.
fn resolve(name: &Name) -> Result<Vec<SocketAddr>, String> {
    let host = name.host.as_str();
    let start = Instant::now();
    let resolved = (host, name.port).to_socket_addrs();
    let took = start.elapsed();
    if took >= LOOKUP_SLOW {
        tracing::warn!(host, ?took, "looking up a peer's end point takes long");
    }
    let outcome = match resolved {
        Ok(addresses) => Ok(Vec::from_iter(addresses)),
        Err(error) => Err(error.to_string()),
    };
    let outcome = outcome.and_then(|addresses| {
        let is_any = !addresses.is_empty();
        is_any
            .then_some(addresses)
            .ok_or_else(|| "no address".to_owned())
    });
    if let Err(error) = &outcome {
        tracing::warn!(host, %error, "failed to look up a peer's end point");
    }

    outcome
}
