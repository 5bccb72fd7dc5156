//! Reports the agent's state in the log and in the status document.

use crate::agent::{Agent, Error};
use crate::cards::Card;
use crate::liveness::{Phase, Report};
use crate::path;
use crate::plan::Plan;
use crate::state::State;
use crate::status::{Config, Peer, Replica, forwarding};
use control_fabric::{Fabric, Waiting};
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::time::{Duration, Instant};

/// Maximum age of the replicas' entries in the status. With many replicas, a probe reply arrives
/// every few milliseconds. Refreshing the entries after each reply would take too much CPU time.
const REPLICAS_AGE_MAX: Duration = Duration::from_millis(100);

impl Agent {
    pub(super) fn report_start(&self) {
        let source = self.source.to_string();
        self.status.update(|status| {
            status.node.clone_from(&self.options.node);
            status.config = Config {
                source,
                valid: true,
                error: None,
                unserved: Vec::new(),
            };
        });
    }

    /// Reports misconfigurations of this machine that prevent pods' traffic. Logs only warnings
    /// that the last report did not contain.
    pub(super) async fn report_warnings(&mut self, plan: &Plan) {
        let mut warnings = Vec::new();
        if !forwarding() {
            warnings.push(
                "net.ipv4.ip_forward is 0, so pods of this node reach no other host: \
                 set it to 1, the agent does not change it"
                    .to_owned(),
            );
        }
        if !self.kernel.is_local(plan.internal_ip).await {
            warnings.push(format!(
                "{}, the InternalIP of {}, is not assigned to this machine: is --node correct?",
                plan.internal_ip, self.options.node
            ));
        }

        self.status.update(|status| {
            for warning in &warnings {
                if !status.warnings.contains(warning) {
                    tracing::warn!("{warning}");
                }
            }
            status.warnings = warnings;
        });
    }

    /// Reports the cards that carry traffic between nodes, and logs what a card lacks once.
    pub(super) fn report_cards(&self, cards: Vec<Card>) {
        self.status.update(|status| {
            for card in cards.iter().filter(|it| !status.cards.contains(it)) {
                for lack in &card.lacks {
                    tracing::info!(device = card.device, "the card lacks {lack}");
                }
            }
            status.cards = cards;
        });
    }

    pub(super) fn report_plan(&mut self, plan: &Plan) {
        self.status.update(|status| {
            status.cluster_id.clone_from(&self.fabric.cluster_id);
            status.external_ip = Some(plan.external_ip);
            status.converged = true;
            status.error = None;
            let peers = self.fabric.peers.iter();
            status.peers = peers.map(|peer| self.peer(peer, &plan.state)).collect();
        });
        self.replicas_reported_at = None;
        self.report_replicas();
    }

    /// Updates the entries of these peers in the status.
    pub(super) fn report_peers(&self, cluster_ids: &[&str]) {
        self.status.update(|status| {
            for id in cluster_ids {
                let found = status
                    .peers
                    .binary_search_by(|it| it.cluster_id.as_str().cmp(id));
                let peer = self
                    .fabric
                    .peer(id)
                    .map(|peer| self.peer(peer, &self.state));
                match (found, peer) {
                    (Ok(at), Some(peer)) => status.peers[at] = peer,
                    (Err(at), Some(peer)) => status.peers.insert(at, peer),
                    (Ok(at), None) => drop(status.peers.remove(at)),
                    (Err(_), None) => {}
                }
            }
        });
    }

    /// Refreshes the replicas' entries in the status if they are older than [`REPLICAS_AGE_MAX`].
    pub(super) fn report_replicas(&mut self) {
        let now = Instant::now();
        let is_fresh = |at| now.saturating_duration_since(at) < REPLICAS_AGE_MAX;
        if self.replicas_reported_at.is_some_and(is_fresh) {
            return;
        }

        self.replicas_reported_at = Some(now);
        self.status.update(|status| {
            let reports = self.liveness.reports();
            status.replicas = reports
                .map(|(name, report)| replica(&self.fabric, name, &report))
                .collect();
        });
    }

    pub(super) fn report_replicas_changed(&mut self) {
        let mut phases = BTreeMap::new();
        for (name, report) in self.liveness.reports() {
            phases.insert(name.to_owned(), report.phase);
            if self.phases.get(name) != Some(&report.phase) {
                let phase = phase(report.phase);
                tracing::info!(replica = name, phase, rtt = ?report.rtt, "a gateway replica changed");
            }
        }
        self.phases = phases;
    }

    pub(super) fn report_repair(&self, changes: usize) {
        tracing::warn!(
            changes,
            "repaired kernel state that another program had changed"
        );
        self.status.update(|status| status.reapplies += 1);
    }

    pub(super) fn report_failure(&self, error: &Error) {
        let text = chain(error);
        tracing::error!(
            error = text,
            "failed to apply the desired state to the kernel"
        );
        self.status.update(|status| {
            status.converged = false;
            status.error = Some(text);
        });
    }

    pub(super) fn report_invalid(&self, error: &Error) {
        let text = chain(error);
        self.status.update(|status| {
            if status.config.note_rejected(&text) {
                tracing::error!(
                    error = text,
                    "the desired state is invalid; the last valid state stays in force"
                );
            }
        });
    }

    /// Reports the invalid and incomplete objects of the desired state. Logs only objects that the
    /// last report did not contain.
    pub(super) fn report_unserved(&mut self, refused: &[String], waiting: &[Waiting]) {
        let waiting = waiting
            .iter()
            .map(|it| format!("{} waits for {}", it.subject, it.missing));
        let unserved: Vec<_> = refused.iter().cloned().chain(waiting).collect();
        for line in &unserved {
            if !self.unserved.contains(line) {
                tracing::warn!("{line}");
            }
        }
        if unserved != self.unserved {
            self.status
                .update(|status| status.config.unserved.clone_from(&unserved));
            self.unserved = unserved;
        }
    }

    pub(super) fn report_valid(&self) {
        self.status.update(|status| {
            if !status.config.valid {
                tracing::info!("the desired state is valid again");
            }
            status.config.valid = true;
            status.config.error = None;
        });
    }

    fn peer(&self, peer: &control_fabric::Peer, state: &State) -> Peer {
        let cidrs: Vec<Ipv4Net> = Fabric::remote_cidrs(peer).collect();
        let route = cidrs.iter().find_map(|cidr| state.routes.get(cidr));
        let group = route.and_then(|route| state.groups.get(&route.nexthop));
        let hops = group.into_iter().flatten();
        let addresses = hops.filter_map(|id| state.hops.get(id).map(|hop| hop.dst));
        let names = addresses.filter_map(|address| {
            let mut replicas = self.fabric.replicas.iter();
            replicas.find(|it| it.address == address)
        });

        Peer {
            cluster_id: peer.cluster_id.clone(),
            gateways: names.map(|it| it.name.clone()).collect(),
            mtu_bytes: route.and_then(|route| route.mtu_bytes),
            path_up: self.path_up(&peer.cluster_id),
            cidrs: cidrs.iter().map(Ipv4Net::to_string).collect(),
        }
    }
}

impl Agent {
    /// Reports whether the nodes of each remote cluster reply to echo requests.
    pub(super) fn report_paths(&self) {
        self.status.update(|status| {
            for peer in &mut status.peers {
                let up = self.path_up(&peer.cluster_id);
                match (peer.path_up, up) {
                    (Some(true), Some(false)) => {
                        tracing::warn!(peer = peer.cluster_id, "path down: no echo replies");
                    }
                    (Some(false), Some(true)) => {
                        tracing::info!(peer = peer.cluster_id, "path up: echo replies again");
                    }
                    _ => {}
                }
                peer.path_up = up;
            }
        });
    }

    fn path_up(&self, cluster_id: &str) -> Option<bool> {
        let report = self.paths.report(cluster_id)?;
        match report.phase {
            path::Phase::Up => Some(true),
            path::Phase::Down if report.has_replied => Some(false),
            path::Phase::Down | path::Phase::Unknown => None,
        }
    }
}

fn replica(fabric: &Fabric, name: &str, report: &Report) -> Replica {
    let known = fabric.replicas.iter().find(|it| it.name == name);

    Replica {
        name: name.to_owned(),
        address: known.map(|it| it.address),
        node: known.map(|it| it.node.clone()).unwrap_or_default(),
        phase: phase(report.phase).to_owned(),
        alive: report.phase != Phase::Dead,
        rtt_seconds: report.rtt.map(|rtt| rtt.as_secs_f64()),
        sent: report.sent,
        answered: report.replies,
        same_clusters: report.same_clusters,
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Dead => "dead",
        Phase::Serving => "serving",
        Phase::Suspect => "suspect",
        Phase::Leaving => "leaving",
    }
}

/// Formats an error and its causes on one line, separated by colons.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }

    text
}
