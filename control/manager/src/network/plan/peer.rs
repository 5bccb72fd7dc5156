//! The objects of one peer except its Networks: gateway, keys, Connection.

use super::gateway::{Gateway, NOT_TENANT_NAMESPACE, Problem};
use super::{Env, Plan, Planner, connection, deployment, invalid_cluster_id, secret, underlay};
use crate::network::kind::Kind;
use crate::network::local::is_terminating;
use k8s_openapi::jiff::Timestamp;

/// Plans a peer.
pub(super) fn plan(planner: &mut Planner<'_>, peer: &str, env: &mut Env<'_>) -> Plan {
    let mut plan = reserve_endpoints(planner, peer);
    let planner = &*planner;
    let checked = check(planner, peer);
    plan.extend(misplaced(planner, peer, &checked, env.now));
    let gateways = Gateway::of_peer(planner, peer);
    if let Err(problem) = checked {
        for gateway in &gateways {
            plan.extend(gateway.notice(&Err(problem.clone())));
            plan.writes.extend(gateway.refuse(problem.clone(), env.now));
        }
        return plan;
    }

    let mut gateways_left = gateways.iter();
    let primary = gateways_left.next();
    for second in gateways_left {
        let problem = primary.map_or(Problem::NoPeer, |primary| Problem::Conflict {
            kind: primary.kind(),
            key: primary.key().clone(),
        });
        plan.extend(second.notice(&Err(problem.clone())));
        plan.writes.extend(second.refuse(problem, env.now));
    }
    match primary {
        Some(primary) => plan.extend(gateway(planner, peer, primary, env)),
        None => plan.writes.extend(secret::publish(planner, peer, None)),
    }
    plan.writes
        .extend(secret::leftovers(planner, peer, &gateways));
    plan.writes
        .extend(connection::leftovers(planner, peer, primary));
    plan.writes
        .extend(deployment::writes(planner, peer, primary));

    plan
}

/// Reports the objects of a peer that have no effect in their namespace, with the reason.
///
/// An invalid cluster ID takes precedence over the namespace.
fn misplaced(
    planner: &Planner<'_>,
    peer: &str,
    checked: &Result<(), Problem>,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    for (gateway, why) in Gateway::misplaced(planner, peer) {
        let problem = checked.clone().err().unwrap_or(Problem::Misplaced(why));
        plan.extend(gateway.notice(&Err(problem.clone())));
        plan.writes.extend(gateway.refuse(problem, now));
    }
    let misplaced = planner.local.misplaced(peer, &[Kind::PublicKey]);
    for (_, key, why) in misplaced {
        plan.warn(Kind::PublicKey, key, NOT_TENANT_NAMESPACE, why);
    }
    let placed = planner.local.of_peer(peer).into_iter();
    for (_, key) in placed.filter(|(kind, _)| *kind == Kind::PublicKey) {
        plan.event_normal(Kind::PublicKey, key, "Used", "it is read as the peer's key");
    }

    plan
}

/// Plans the gateway that serves a peer.
fn gateway(planner: &Planner<'_>, peer: &str, gateway: &Gateway<'_>, env: &mut Env<'_>) -> Plan {
    let mut plan = Plan::default();
    if let Err(problem) = gateway.check() {
        plan.writes.extend(gateway.refuse(problem.clone(), env.now));
        plan.extend(gateway.notice(&Err(problem)));
        return plan;
    }

    let keys = secret::keys(planner, gateway, peer, env, &mut plan);
    let endpoint = gateway.endpoint(planner);
    let public_key = connection::public_key(planner, peer, keys.as_ref().ok());
    let is_known = public_key.is_ok();
    let endpoint_found = endpoint.as_ref().ok().cloned().flatten();
    let verdict = match (&keys, endpoint) {
        (Err(problem), _) => Err(Problem::Key(problem.clone())),
        (Ok(_), Err(problem)) => Err(problem),
        (Ok(_), Ok(_)) => public_key,
    };
    plan.extend(gateway.notice(&verdict));
    if let Ok(keys) = &keys {
        plan.writes
            .extend(secret::publish(planner, peer, Some(&keys.private)));
    }
    let secret = keys.as_ref().ok().map(|keys| &keys.secret);
    let status = gateway.status(planner, secret, endpoint_found.as_ref(), verdict, env.now);
    plan.writes.extend(status);
    gateway.announce_endpoint(endpoint_found.as_ref(), &mut plan);
    plan.writes
        .extend(connection::writes(planner, peer, gateway, is_known));

    plan
}

/// Checks the cluster ID of a peer.
fn check(planner: &Planner<'_>, peer: &str) -> Result<(), Problem> {
    if peer.is_empty() {
        return Err(Problem::NoPeer);
    }
    if !control_fabric::is_cluster_id(peer) {
        return Err(Problem::InvalidPeer(invalid_cluster_id(peer)));
    }
    if planner.local.cluster().id.as_deref() == Some(peer) {
        return Err(Problem::OwnCluster(peer.to_owned()));
    }

    Ok(())
}

/// Excludes the endpoints of a peer from the CIDRs of peers. Otherwise the packets of a tunnel could be routed into
/// a tunnel.
fn reserve_endpoints(planner: &mut Planner<'_>, peer: &str) -> Plan {
    let mut plan = Plan::default();
    let source = underlay::source(peer);
    let addresses = underlay::endpoints(planner, peer);
    for covered in planner.allocation.set_underlay(source, addresses) {
        for key in underlay::covering(planner, covered) {
            let network = planner.local.networks.get(&key);
            if network.is_some_and(|network| !is_terminating(&network.metadata)) {
                let note = format!(
                    "it contains {covered}, an endpoint of peer {peer}: delete this Network, \
                     so that it gets another CIDR"
                );
                plan.warn(Kind::Network, &key, "CoversEndpoint", note);
            }
        }
    }

    plan
}
