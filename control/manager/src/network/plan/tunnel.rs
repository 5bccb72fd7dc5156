//! Events when the tunnel to a peer comes up or goes down.

use super::{Plan, Planner};
use crate::network::kind::{Key, Kind};
use control_api::networking::connection::{CONNECTED, ERROR};

/// The state of a tunnel that Events report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tunnel {
    /// The tunnel has not been up yet.
    New,
    Up,
    Down,
}

/// Adds an Event if the tunnel has changed since the last plan. The first plan adds none.
///
/// The messages contain no changing values, so that the API server counts the Events of a flapping tunnel in one
/// object.
pub(super) fn plan(planner: &mut Planner<'_>, peer: &str) -> Plan {
    let mut plan = Plan::default();
    let Some((key, state)) = observe(planner, peer) else {
        planner.tunnels.remove(peer);
        return plan;
    };
    let before = planner.tunnels.insert(peer.to_owned(), state);
    match (before, state) {
        (Some(Tunnel::New | Tunnel::Down), Tunnel::Up) => {
            let note = format!("the tunnel to {peer} is up");
            plan.announce(Kind::Connection, &key, false, "TunnelUp", note);
        }
        (Some(Tunnel::Up), Tunnel::Down | Tunnel::New) => {
            let note = format!(
                "the tunnel to {peer} is down, and packets to it are refused: see `liqoctl info peer {peer}`"
            );
            plan.announce(Kind::Connection, &key, true, "TunnelDown", note);
        }
        (None, _)
        | (Some(Tunnel::New | Tunnel::Down), Tunnel::New | Tunnel::Down)
        | (Some(Tunnel::Up), Tunnel::Up) => {}
    }

    plan
}

fn observe(planner: &Planner<'_>, peer: &str) -> Option<(Key, Tunnel)> {
    let placed = planner.local.of_peer(peer);
    placed.into_iter().find_map(|(kind, key)| {
        let connection = planner
            .local
            .connections
            .get(key)
            .filter(|_| kind == Kind::Connection)?;
        let status = connection.status.as_ref();
        let state = match status.and_then(|status| status.value.as_deref()) {
            Some(CONNECTED) => Tunnel::Up,
            Some(ERROR) => Tunnel::Down,
            _ => Tunnel::New,
        };
        Some((key.clone(), state))
    })
}
