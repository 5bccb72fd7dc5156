//! A broken part of the way from node to node is named, soon, and forgotten once it is whole.
//!
//! The faults are such as the route agent cannot mend: rules of a foreign firewall, between
//! the parts.

use crate::fixture::{MILAN, Pair, ROME, SOON, eventually, two};
use tests::lab::Lab;
use tests::lab::netns::Netns;
use tests::lab::wait;

/// Rome and milan of two nodes and one gateway each; the way between is known to be whole.
fn healthy() -> Lab {
    let pair = Pair::up(two(2, 1));
    for (cluster, peer) in [(ROME, MILAN), (MILAN, ROME)] {
        wait::until(SOON * 2, "a whole way from node to node", || {
            Ok(path(&pair.lab, cluster, peer)?.0 == "EndToEnd")
        })
        .unwrap();
    }

    pair.lab
}

#[test]
fn an_overlay_that_is_blocked_towards_the_gateway_is_named_on_both_sides() {
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
fn an_overlay_that_is_blocked_towards_the_node_is_named() {
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
fn packets_that_a_firewall_of_one_node_drops_are_that_nodes_fault() {
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
fn packets_that_vanish_behind_all_probes_are_told_to_vanish() {
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
fn a_dead_gateway_of_the_peer_is_the_tunnels_fault() {
    let mut lab = healthy();

    lab.gateway(MILAN, 1).kill().unwrap();
    expect(&lab, ROME, MILAN, "Tunnel");

    lab.gateway(MILAN, 1).start().unwrap();
    wait::until(SOON * 3, "the way to be whole again", || {
        Ok(path(&lab, ROME, MILAN)?.0 == "EndToEnd")
    })
    .unwrap();
}

/// The fabric's packets flow on, and so nothing is to be told.
#[test]
fn a_route_agent_that_is_restarted_is_no_fault() {
    let mut lab = healthy();

    lab.agent(ROME, 2).stop(SOON).unwrap();
    let stopped = std::time::Instant::now();
    let mut seen = Vec::new();
    wait::until(SOON * 2, "longer than silence is borne", || {
        seen.push(path(&lab, ROME, MILAN)?.0);
        seen.push(path(&lab, MILAN, ROME)?.0);
        Ok(stopped.elapsed() > SOON)
    })
    .unwrap();
    assert!(seen.iter().all(|reason| reason == "EndToEnd"), "{seen:?}");
    let status = lab.gateway_status(ROME, 1).unwrap();
    assert_eq!(status["path"]["nodes"]["resting"], 1, "{status}");

    lab.agent(ROME, 2).start().unwrap();
    eventually("the node to be well again", || {
        let status = lab.gateway_status(ROME, 1)?;
        Ok(status["path"]["nodes"]["resting"] == 0 && status["path"]["nodes"]["cut"] == 0)
    });
}

/// Asserts that the gateway names this part soon, and returns what else it says.
#[track_caller]
fn expect(lab: &Lab, cluster: &str, peer: &str, reason: &str) -> String {
    let mut last = (String::new(), String::new());
    let outcome = wait::until(SOON, reason, || {
        last = path(lab, cluster, peer)?;
        Ok(last.0 == reason)
    });
    assert!(
        outcome.is_ok(),
        "{cluster} says of the way to {peer}: {last:?}"
    );

    last.1
}

/// What a cluster's gateway says of the way to a peer: the part and the sentence.
fn path(lab: &Lab, cluster: &str, peer: &str) -> anyhow::Result<(String, String)> {
    let status = lab.gateway_status(cluster, 1)?;
    let path = &status["path"]["clusters"][peer];
    let text = |key: &str| path[key].as_str().unwrap_or_default().to_owned();

    Ok((text("reason"), text("message")))
}

/// Matches packets for milan's addresses as rome sees them.
fn to_milan(lab: &Lab) -> String {
    let agent = lab.agent_status(ROME, 2).unwrap();
    let cidrs = agent["peers"][0]["cidrs"].as_array().unwrap();
    let cidrs: Vec<_> = cidrs.iter().filter_map(|it| it.as_str()).collect();
    format!("ip daddr {{ {} }}", cidrs.join(", "))
}

/// Drops packets by a rule of a table that is nobody's.
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
