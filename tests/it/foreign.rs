//! Tests that Liqo's processes do not change the network state of other software, and that
//! `cleanup` removes only Liqo's own state.

use crate::fixture::{MILAN, Pair, ROME, SOON, eventually, two};
use std::process::Command;
use tests::lab::Lab;
use tests::lab::link::ip;
use tests::lab::netns::Netns;
use tests::traffic::ping;

#[test]
fn a_nodes_foreign_state_survives_start_crash_and_clean_up() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    let node = lab.cluster(ROME).node(1).netns.clone();
    install_foreign_state(&node);
    let foreign = foreign_state(&node);

    lab.start().unwrap();
    lab.wait_until_connected(SOON * 4).unwrap();
    assert_eq!(foreign_state(&node), foreign, "after the start");

    lab.agent(ROME, 1).restart().unwrap();
    lab.wait_until_connected(SOON * 4).unwrap();
    assert_eq!(foreign_state(&node), foreign, "after a crash");

    lab.agent(ROME, 1).kill().unwrap();
    clean_up_agent(&lab, &node);
    assert_eq!(foreign_state(&node), foreign, "after the clean-up");
    assert_eq!(own_state(&node), "", "our state is left");
}

#[test]
fn the_clean_up_of_a_gateway_leaves_nothing_in_its_pod_and_on_the_machine() {
    let mut lab = Lab::up(two(1, 1)).unwrap();
    let pod = lab.cluster(ROME).gateway(1).pod.netns.clone();
    let instance = lab.gateway_instance(ROME, 1);

    lab.gateway(ROME, 1).kill().unwrap();
    let output = Command::new(&lab.binaries().gateway)
        .args(["cleanup", "--instance", &instance])
        .output()
        .unwrap();

    assert!(output.status.success(), "{output:?}");
    assert_eq!(own_state(&pod), "");
    let namespaces = std::fs::read_dir("/run/netns").unwrap();
    assert!(
        !namespaces
            .filter_map(Result::ok)
            .any(|entry| entry.file_name().to_string_lossy() == format!("liqo-{instance}")),
        "its namespace is left"
    );
    let pins = std::path::Path::new("/sys/fs/bpf/liqo").join(&instance);
    assert!(!pins.exists(), "its pins are left");
}

#[test]
fn a_foreign_device_with_our_name_is_reported_and_not_changed() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    lab.write_fabrics().unwrap();
    let node = lab.cluster(ROME).node(1).netns.clone();
    ip(
        &node,
        &["link add name liqo-overlay type veth peer name theirs"],
    )
    .unwrap();
    let foreign = run(&node, "ip -d -o link show liqo-overlay");

    lab.start_agent(ROME, 1).unwrap();

    eventually("the route agent to report it", || {
        let agent = lab.agent(ROME, 1);
        Ok(agent.log().contains("liqo-overlay"))
    });
    assert_eq!(run(&node, "ip -d -o link show liqo-overlay"), foreign);
}

#[test]
fn cleaning_up_twice_is_no_error() {
    let mut lab = Lab::up(two(1, 1)).unwrap();
    let node = lab.cluster(ROME).node(1).netns.clone();
    lab.agent(ROME, 1).kill().unwrap();

    clean_up_agent(&lab, &node);
    clean_up_agent(&lab, &node);

    assert_eq!(own_state(&node), "");
}

#[test]
fn a_crashed_gateway_reconnects_after_its_restart() {
    let mut pair = Pair::small();

    for cluster in [ROME, MILAN] {
        pair.lab.gateway(cluster, 1).kill().unwrap();
        pair.lab.gateway(cluster, 1).start().unwrap();
    }
    pair.lab.wait_until_connected(SOON * 4).unwrap();

    eventually("the pods to be connected again", || {
        ping::reaches(&pair.rome.netns, pair.milan_seen)
    });
}

/// Adds devices, rules, routes and nftables tables of other software. Their names and numbers
/// resemble those of Liqo.
fn install_foreign_state(node: &Netns) {
    ip(
        node,
        &[
            "link add name foreign0 type veth peer name foreign1",
            "addr add 192.0.2.1/32 dev foreign0",
            "link set foreign1 up",
            "link set foreign0 up",
            "link add name vxlan.calico type vxlan id 4096 dstport 4789 local 192.0.2.1",
            "rule add to 198.51.100.0/24 lookup 27760 priority 27760",
            "route add 198.51.100.0/24 dev foreign0 table 27760",
            "route add unreachable 203.0.113.0/24 table 27760 proto 107",
            "nexthop add id 77 dev foreign0 proto 107",
        ],
    )
    .unwrap();
    let ruleset = "table inet foreign {
            set kept { type ipv4_addr; elements = { 192.0.2.7 } }
            chain forward {
                type filter hook forward priority 0; policy accept;
                ip daddr @kept drop
            }
        }
        table ip liquid { }
        ";
    node.exec("nft", &["-f", "-"], ruleset).unwrap();
    node.exec("tc", &["qdisc", "add", "dev", "eth0", "clsact"], "")
        .unwrap();
}

/// Returns the network state of other software on a node, as text.
fn foreign_state(node: &Netns) -> String {
    let is_ours = |line: &str| {
        ["liqo", "27761", "proto 108"]
            .iter()
            .any(|mark| line.contains(mark))
    };
    let mut state = String::new();
    for command in [
        "ip -o link show",
        "ip -o addr show",
        "ip rule show",
        "ip route show table all",
        "ip nexthop show",
        "nft list table inet foreign",
        "nft list table ip liquid",
        "nft list chain inet cni postrouting",
        "tc qdisc show dev eth0",
    ] {
        for line in run(node, command).lines().filter(|line| !is_ours(line)) {
            // Packet counters change, so the comparison omits them.
            let line = line.split(" counter ").next().unwrap_or_default();
            state += line;
            state.push('\n');
        }
    }

    state
}

/// Returns Liqo's network state in a namespace, as text.
fn own_state(netns: &Netns) -> String {
    let marks = [
        ("ip -o link show", "liqo"),
        ("ip rule show", "27761"),
        ("ip route show table 27761", ""),
        ("ip nexthop show", "proto 108"),
        ("nft list tables", "inet liqo"),
    ];
    marks
        .iter()
        .flat_map(|(command, mark)| {
            let text = run(netns, command);
            let lines = text.lines().filter(|line| line.contains(mark));
            lines.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn clean_up_agent(lab: &Lab, node: &Netns) {
    let program = lab.binaries().route_agent.display().to_string();
    let instance = lab.agent_instance(ROME, 1);
    node.exec(&program, &["cleanup", "--instance", &instance], "")
        .unwrap();
}

/// Returns the output of a command. The output is empty if the command fails, for example because a
/// table does not exist.
fn run(netns: &Netns, command: &str) -> String {
    let mut words = command.split(' ');
    let program = words.next().unwrap();
    let args: Vec<&str> = words.collect();
    let output = netns.output(program, &args, "").unwrap();

    String::from_utf8_lossy(&output.stdout).into_owned()
}
