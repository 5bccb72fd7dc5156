//! Tests that the gateways report the failed part of the path between two nodes, and its recovery.
//!
//! A firewall in a separate nftables table causes the faults, because the route agent does not
//! remove rules of other tables.

use crate::fixture::{MILAN, Pair, ROME, SOON, eventually, two};
use std::fs;
use tests::lab::Lab;
use tests::lab::netns::Netns;
use tests::lab::wait;

/// Starts rome and milan with two nodes and one gateway each, and waits until both report the path
/// between their nodes as healthy.
fn healthy() -> Lab {
    let pair = Pair::up(two(2, 1));
    for (cluster, peer) in [(ROME, MILAN), (MILAN, ROME)] {
        wait::until(SOON * 2, "a healthy path from node to node", || {
            Ok(path(&pair.lab, cluster, peer)?.0 == "EndToEnd")
        })
        .unwrap();
    }

    pair.lab
}

#[test]
fn an_overlay_blocked_towards_the_gateway_is_reported_on_both_sides() {
    let lab = healthy();
    let node = lab.cluster(ROME).node(2);

    block(&node.netns, "output", "udp dport 6091");
    let message = expect(&lab, ROME, MILAN, "LocalOverlay");
    assert!(message.contains(&node.name), "{message}");
    assert!(message.contains("from node to gateway"), "{message}");
    let message = expect(&lab, MILAN, ROME, "RemoteOverlay");
    assert!(message.starts_with("1 of 2 nodes of rome"), "{message}");

    unblock(&node.netns);
    expect(&lab, ROME, MILAN, "EndToEnd");
    expect(&lab, MILAN, ROME, "EndToEnd");
}

#[test]
fn an_overlay_blocked_towards_the_node_is_reported() {
    let lab = healthy();
    let node = lab.cluster(ROME).node(2);

    block(&node.netns, "input", "udp dport 6091");
    let message = expect(&lab, ROME, MILAN, "LocalOverlay");
    assert!(message.contains(&node.name), "{message}");
    assert!(message.contains("from gateway to node"), "{message}");

    unblock(&node.netns);
    expect(&lab, ROME, MILAN, "EndToEnd");
}

#[test]
fn packets_dropped_by_a_firewall_are_attributed_to_its_node() {
    let lab = healthy();
    let node = lab.cluster(ROME).node(2);

    block(&node.netns, "output", &to_milan(&lab));
    let message = expect(&lab, ROME, MILAN, "Node");
    assert!(message.contains(&node.name), "{message}");
    let agent = lab.agent_status(ROME, 2).unwrap();
    assert_eq!(agent["peers"][0]["pathUp"], false, "{agent}");

    unblock(&node.netns);
    expect(&lab, ROME, MILAN, "EndToEnd");
}

#[test]
fn packets_lost_behind_all_probes_are_reported() {
    let lab = healthy();

    for number in [1, 2] {
        let node = lab.cluster(MILAN).node(number);
        block(&node.netns, "input", "iifname liqo-overlay udp dport 6093");
    }
    expect(&lab, ROME, MILAN, "NodeToNode");

    for number in [1, 2] {
        unblock(&lab.cluster(MILAN).node(number).netns);
    }
    expect(&lab, ROME, MILAN, "EndToEnd");
}

#[test]
fn a_dead_gateway_of_the_peer_is_attributed_to_the_tunnel() {
    let mut lab = healthy();

    lab.gateway(MILAN, 1).kill().unwrap();
    expect(&lab, ROME, MILAN, "Tunnel");

    lab.gateway(MILAN, 1).start().unwrap();
    wait::until(SOON * 3, "the path to be healthy again", || {
        Ok(path(&lab, ROME, MILAN)?.0 == "EndToEnd")
    })
    .unwrap();
}

/// A restart of the route agent does not interrupt traffic, so the gateway must not report a fault.
#[test]
fn a_restart_of_a_route_agent_is_no_fault() {
    let mut lab = healthy();

    lab.agent(ROME, 2).stop(SOON).unwrap();
    let stopped = std::time::Instant::now();
    let mut seen = Vec::new();
    wait::until(SOON * 2, "the time-out of the node's probes", || {
        seen.push(path(&lab, ROME, MILAN)?.0);
        seen.push(path(&lab, MILAN, ROME)?.0);
        Ok(stopped.elapsed() > SOON)
    })
    .unwrap();
    assert!(seen.iter().all(|reason| reason == "EndToEnd"), "{seen:?}");
    let status = lab.gateway_status(ROME, 1).unwrap();
    assert_eq!(status["path"]["nodes"]["resting"], 1, "{status}");

    lab.agent(ROME, 2).start().unwrap();
    eventually("the node to be healthy again", || {
        let status = lab.gateway_status(ROME, 1)?;
        Ok(status["path"]["nodes"]["resting"] == 0 && status["path"]["nodes"]["cut"] == 0)
    });
}

/// The checks of a node have constant ports, so the kernel would translate them to the former address of the remote node as
/// long as they continue.
#[test]
fn checks_reach_nodes_whose_external_addresses_have_changed() {
    let lab = healthy();
    let [first, second] =
        ["node-milan-1", "node-milan-2"].map(|ip| lab.mapped(MILAN, ip).unwrap().to_string());

    let fabric = lab.fabric_path(MILAN);
    let file = fs::read_to_string(&fabric).unwrap();
    let field = |address: &str| format!("ip: \"{address}\"\n");
    let swapped = file
        .replace(&field(&first), "ip: FIRST\n")
        .replace(&field(&second), &field(&first))
        .replace("ip: FIRST\n", &field(&second));
    assert_ne!(swapped, file, "{file}");
    let draft = fabric.with_extension("draft");
    fs::write(&draft, swapped).unwrap();
    fs::rename(&draft, &fabric).unwrap();

    eventually("the checks to be translated to the new addresses", || {
        let mut outcomes = Vec::new();
        for (number, address) in [(1, &second), (2, &first)] {
            let node = &lab.cluster(MILAN).node(number).netns;
            let filter = [
                "--dump",
                "--proto",
                "udp",
                "--orig-port-dst",
                "6093",
                "--dst-nat",
            ];
            let checks = node.exec("conntrack", &filter, "")?;
            let replies = format!(" src={address} ");
            outcomes.extend(checks.lines().map(|check| check.contains(&replies)));
        }
        Ok(!outcomes.is_empty() && !outcomes.contains(&false))
    });
    expect(&lab, ROME, MILAN, "EndToEnd");
}

/// Waits until the gateway reports this reason, and returns the message.
#[track_caller]
fn expect(lab: &Lab, cluster: &str, peer: &str, reason: &str) -> String {
    let mut last = (String::new(), String::new());
    let outcome = wait::until(SOON, reason, || {
        last = path(lab, cluster, peer)?;
        Ok(last.0 == reason)
    });
    assert!(
        outcome.is_ok(),
        "{cluster} reports of the path to {peer}: {last:?}"
    );

    last.1
}

/// Returns the reason and the message that a cluster's gateway reports about the path to a peer.
fn path(lab: &Lab, cluster: &str, peer: &str) -> anyhow::Result<(String, String)> {
    let status = lab.gateway_status(cluster, 1)?;
    let path = &status["path"]["clusters"][peer];
    let text = |key: &str| path[key].as_str().unwrap_or_default().to_owned();

    Ok((text("reason"), text("message")))
}

/// Returns an nftables match for packets to milan's remapped addresses in rome.
fn to_milan(lab: &Lab) -> String {
    let agent = lab.agent_status(ROME, 2).unwrap();
    let cidrs = agent["peers"][0]["cidrs"].as_array().unwrap();
    let cidrs: Vec<_> = cidrs.iter().filter_map(|it| it.as_str()).collect();
    format!("ip daddr {{ {} }}", cidrs.join(", "))
}

/// Drops packets by a rule in a separate nftables table.
fn block(netns: &Netns, hook: &str, packets: &str) {
    let ruleset = format!(
        "table inet fault {{
            chain {hook} {{
                type filter hook {hook} priority -350; policy accept;
                {packets} drop
            }}
        }}
        "
    );
    netns.exec("nft", &["-f", "-"], &ruleset).unwrap();
}

fn unblock(netns: &Netns) {
    netns
        .exec("nft", &["delete", "table", "inet", "fault"], "")
        .unwrap();
}
