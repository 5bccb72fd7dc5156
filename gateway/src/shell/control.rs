//! Applies the desired state, resolves the names of endpoints, and reports the status.
//!
//! This module runs on the main thread, so it may block. The lanes, which are the threads that
//! forward packets, receive [`Command`]s from it and send [`Notice`]s to it.

mod apply;
mod lookups;
mod paths;
mod standby;

use super::connections::Reporter;
use super::desired::{Desired, Loader};
use super::lane::{Command, Hung, LaneNotice, Notice};
use super::lanes::{Aggregate, Lanes};
use super::state::State;
use crate::engine::{ConnectionState, Nodes, Role};
use crate::path::Paths;
use ebpf::Datapath;
use lookups::{Lookups, Name};
use standby::Standby;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Minimum duration of a DNS lookup that is logged as slow.
const LOOKUP_SLOW: Duration = Duration::from_secs(5);

/// Time after [`Command::Leave`] until all nodes have removed this replica from their routes.
///
/// The nodes probe the replica every 250 ms. The time suffices for two probes and for the change of
/// the routes.
const NODES_LEAVE: Duration = Duration::from_millis(600);

/// Applies the desired state to engine and eBPF programs.
///
/// Reports the state of engine and eBPF programs to the API server, and to the status document.
pub(crate) struct Control {
    loader: Loader,
    lanes: Lanes,
    notices: mpsc::Receiver<LaneNotice>,
    aggregate: Aggregate,
    datapath: Arc<Mutex<Datapath>>,
    state: Arc<State>,
    replica: String,
    /// The desired state that engine and eBPF programs have applied.
    served: Desired,
    /// Whether they have applied it completely. After a failure, the next state is sent whole.
    is_applied: bool,
    /// The last logged connection state of each peer, by peer index.
    connections: BTreeMap<u16, ConnectionState>,
    /// Writes the status of the Connections; `None` without an API server.
    reporter: Option<Reporter>,
    paths: Paths,
    /// The health of this cluster's nodes, as the lanes advertise it to the peers.
    nodes: Nodes,
    /// The standby state of a new replica; `None` after its end.
    standby: Option<Standby>,
    lookups: Lookups,
    /// The running lookups. A thread cannot be cancelled: it ends with the timeout of the resolver.
    lookup_threads: JoinSet<LookupResult>,
}

/// The addresses of an endpoint, or the reason why its DNS lookup failed.
struct LookupResult {
    name: Name,
    outcome: Result<Vec<SocketAddr>, String>,
}

/// The arguments of [`Control::start`].
pub(crate) struct Parts {
    pub(crate) loader: Loader,
    /// `None` without an API server.
    pub(crate) reporter: Option<Reporter>,
    pub(crate) lanes: Lanes,
    pub(crate) notices: mpsc::Receiver<LaneNotice>,
    pub(crate) datapath: Arc<Mutex<Datapath>>,
    pub(crate) state: Arc<State>,
    /// Name of this replica in the EndpointSlice.
    pub(crate) replica: String,
    /// The first desired state, which the eBPF programs have applied already.
    pub(crate) served: Desired,
}

impl Control {
    /// Sends the first desired state to the lanes.
    ///
    /// # Errors
    ///
    /// Returns [`Hung`] if a lane does not respond or has ended.
    pub(crate) fn start(parts: Parts) -> Result<Self, Hung> {
        let mut control = Self {
            reporter: parts.reporter,
            paths: Paths::new(&parts.replica),
            nodes: Nodes::default(),
            standby: Some(Standby::new(Instant::now())),
            loader: parts.loader,
            lanes: parts.lanes,
            notices: parts.notices,
            aggregate: Aggregate::default(),
            datapath: parts.datapath,
            state: parts.state,
            replica: parts.replica,
            served: parts.served,
            is_applied: true,
            connections: BTreeMap::new(),
            lookups: Lookups::default(),
            lookup_threads: JoinSet::new(),
        };
        // The lanes must be in standby before they receive the first peers.
        control.lanes.send(Command::Standby(true))?;
        control.send_all()?;
        control.follow_peers();

        Ok(control)
    }

    /// Handles changes of the desired state and notices of the lanes, until the lanes end.
    pub(crate) async fn run(&mut self) {
        self.reload(); // The desired state may have changed before the watch started.
        self.follow_tenants();
        let mut checks = paths::check_interval();
        loop {
            tokio::select! {
                _ = checks.tick() => self.check_paths(),
                () = standby::next_check(self.standby) => self.end_standby(),
                () = self.loader.changed() => {
                    self.reload();
                    self.follow_tenants();
                }
                notice = self.notices.recv() => match notice {
                    Some(notice) => self.handle_lane_notice(notice),
                    None => return,
                },
                Some(result) = self.lookup_threads.join_next() => {
                    if let Ok(result) = result {
                        self.handle_lookup_result(result);
                    }
                }
            }
        }
    }

    /// Waits until peers and nodes use other replicas, at most for `limit`, then stops the lanes.
    ///
    /// If there is no other replica, waits only for requests in flight to the API server, so that the
    /// next process starts sooner.
    pub(crate) async fn leave(mut self, limit: Duration) {
        let others = self
            .live_replicas()
            .iter()
            .any(|name| *name != self.replica);
        let start = Instant::now();
        if others && self.lanes.send(Command::Leave).is_ok() {
            let drained = async {
                while let Some(notice) = self.notices.recv().await {
                    if matches!(self.aggregate(notice), Some(Notice::Drained)) {
                        break;
                    }
                }
            };
            let _ = timeout_at(start + limit, drained).await;
            tokio::time::sleep_until(start + NODES_LEAVE.min(limit)).await;
        }
        // A write of a Connection that is in flight ends while the lanes still forward packets.
        let _ = timeout_at(start + limit, self.loader.stop()).await;
        let _ = self.lanes.send(Command::Stop);
    }

    fn handle_lane_notice(&mut self, notice: LaneNotice) {
        if let Some(notice) = self.aggregate(notice) {
            self.handle_notice(notice);
        }
    }

    /// Passes a lane's notice to [`Aggregate`], and sends the resulting commands to the lanes.
    ///
    /// Returns the notice about the whole gateway, if any.
    fn aggregate(&mut self, (lane, notice): LaneNotice) -> Option<Notice> {
        let outcome = self.aggregate.handle(lane, notice);
        // Errors are ignored: if a lane's queue is full, the command is lost. The peer repeats a
        // lost handshake initiation, and `check_paths` repeats `Command::Kinds`.
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
                let is_changed = self.connections.insert(peer, state) != Some(state);
                let Some(cluster_id) = self.cluster_id(peer).map(str::to_owned) else {
                    return;
                };
                if is_changed {
                    tracing::info!(
                        peer = cluster_id,
                        ?state,
                        ?latency,
                        "connection state changed"
                    );
                }
                if let Some(reporter) = &self.reporter {
                    reporter.note(&cluster_id, state, latency);
                }
                let now = std::time::Instant::now();
                self.paths.note_connection(&cluster_id, state, now);
            }
            Notice::Remote { peer, kind, nodes } => {
                if let Some(cluster_id) = self.cluster_id(peer).map(str::to_owned) {
                    self.paths.note_remote(&cluster_id, kind, nodes);
                }
            }
            Notice::HandshakeEvidence { peer, evidence } => {
                if let Some(cluster_id) = self.cluster_id(peer).map(str::to_owned) {
                    let now = std::time::Instant::now();
                    self.paths.note_evidence(&cluster_id, evidence, now);
                }
            }
            Notice::Initiation { .. } | Notice::Drained => {}
        }
    }

    /// Passes the tenant namespaces of the peers to the reporter.
    fn follow_tenants(&self) {
        if let (Some(reporter), Some(tenants)) = (&self.reporter, self.loader.tenant_namespaces()) {
            reporter.set_tenant_namespaces(tenants);
        }
    }

    fn cluster_id(&self, peer: u16) -> Option<&str> {
        let mut ranks = self.served.planned.ranks().iter();
        ranks
            .find(|(_, index)| **index == peer)
            .map(|(id, _)| id.as_str())
    }

    fn look_up(&mut self, peer: u16, host: String, port: u16) {
        if let Ok(ip) = host.parse::<IpAddr>() {
            let addresses = vec![SocketAddr::new(ip, port)];
            return self.handle_addresses(peer, host, addresses);
        }
        let name = Name { peer, host, port };
        // The peer may have been removed after the engine sent the notice.
        if is_endpoint(&self.served, &name) {
            self.lookups.request(name);
        }
        self.start_lookups();
    }

    fn start_lookups(&mut self) {
        while let Some(name) = self.lookups.poll_start() {
            self.lookup_threads.spawn_blocking(move || LookupResult {
                outcome: resolve(&name),
                name,
            });
        }
    }

    fn handle_lookup_result(&mut self, result: LookupResult) {
        let LookupResult { name, outcome } = result;
        self.lookups.finish(&name);
        self.start_lookups();
        // The peer's port, which is part of the addresses, may have changed during the lookup.
        if !is_endpoint(&self.served, &name) {
            return;
        }
        if let Some(cluster_id) = self.cluster_id(name.peer).map(str::to_owned) {
            let result = outcome.as_ref().map(drop).map_err(Clone::clone);
            self.paths.note_lookup(&cluster_id, &name.host, result);
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
            tracing::error!(%hung, "failed to send a peer's addresses to the packet loops");
        }
    }
}

/// Returns whether the desired state still contains the endpoint `name` of a peer.
fn is_endpoint(served: &Desired, name: &Name) -> bool {
    served.planned.peers.iter().any(|peer| match &peer.role {
        Role::Client { addresses, port } => {
            peer.index == name.peer && *port == name.port && addresses.contains(&name.host)
        }
        Role::Server => false,
    })
}

/// Resolves a name; blocks until the system's resolver returns.
///
/// After a failure the engine requests the same name again.
fn resolve(name: &Name) -> Result<Vec<SocketAddr>, String> {
    let host = name.host.as_str();
    let start = Instant::now();
    let resolved = (host, name.port).to_socket_addrs();
    let took = start.elapsed();
    if took >= LOOKUP_SLOW {
        tracing::warn!(host, ?took, "slow lookup of a peer's endpoint");
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
        tracing::warn!(host, %error, "failed to look up a peer's endpoint");
    }

    outcome
}
