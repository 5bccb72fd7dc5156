use super::*;
use crate::testing::{fabric, ip, replica};

const OVERLAY: u16 = 6092;
const REPLICA: &str = "10.244.1.11";
const NODE: &str = "172.16.0.1";
const PEER: &str = "192.0.2.7";

fn flow(original: (&str, &str, u16), reply: (&str, &str, u16)) -> Flow {
    let tuple = |(source, destination, destination_port)| Tuple {
        protocol: UDP,
        source: ip(source),
        destination: ip(destination),
        destination_port,
    };

    Flow {
        original: tuple(original),
        reply: tuple(reply),
        is_assured: true,
    }
}

/// A peer's flow through a node port of this node.
fn served() -> Flow {
    flow((PEER, NODE, 31_820), (REPLICA, NODE, 50_001))
}

fn ports_of(flows: &[Flow]) -> Vec<u16> {
    ports(flows, &[ip(REPLICA)], OVERLAY).into_iter().collect()
}

#[test]
fn a_node_port_and_the_masqueraded_port_of_its_replies_are_found() {
    assert_eq!(ports_of(&[served()]), [31_820, 50_001]);
}

#[test]
fn a_flow_that_is_not_masqueraded_has_one_port() {
    let flow = flow((PEER, NODE, 31_820), (REPLICA, PEER, 51_840));

    assert_eq!(ports_of(&[flow]), [31_820]);
}

#[test]
fn the_port_of_a_clients_flow_is_the_one_that_masquerading_has_selected() {
    let flow = flow((REPLICA, PEER, 31_820), (PEER, NODE, 40_123));

    assert_eq!(ports_of(&[flow]), [40_123]);
}

#[test]
fn other_flows_of_the_pod_and_of_the_node_have_no_port() {
    let dns = flow((REPLICA, "10.96.0.10", 53), ("10.244.2.3", REPLICA, 40_000));
    let other = flow((PEER, NODE, 8080), ("10.244.2.3", NODE, 50_002));
    let overlay = flow((NODE, REPLICA, OVERLAY), (REPLICA, NODE, OVERLAY));

    assert_eq!(ports_of(&[dns, other, overlay]), [0_u16; 0]);
}

#[test]
fn flows_without_replies_of_other_protocols_and_well_known_ports_are_ignored() {
    let mut unanswered = served();
    unanswered.is_assured = false;
    let mut tcp = served();
    tcp.original.protocol = 6;
    let well_known = flow((PEER, NODE, 1023), (REPLICA, PEER, 51_840));

    assert_eq!(ports_of(&[unanswered, tcp, well_known]), [0_u16; 0]);
}

#[test]
fn the_number_of_ports_is_limited() {
    let flows: Vec<_> = (2000..4000)
        .map(|port| flow((PEER, NODE, port), (REPLICA, PEER, 51_840)))
        .collect();

    assert_eq!(ports_of(&flows).len(), PORTS_MAX);
}

#[test]
fn replicas_on_the_node_come_first_and_their_number_is_limited() {
    let mut fabric = fabric();
    fabric.replicas = (1..=40)
        .map(|number| replica(&format!("gw-{number}"), &format!("10.244.9.{number}")))
        .collect();
    let last = fabric.replicas.last_mut().unwrap();
    last.node = "rome-2".into();

    let replicas = replicas(&fabric, "rome-2");

    assert_eq!(replicas.first(), Some(&ip("10.244.9.40")));
    assert_eq!(replicas.len(), REPLICAS_MAX);
}

#[test]
fn lists_become_rare_without_a_change_and_never_use_more_than_their_share() {
    let start = Instant::now();
    let mut schedule = Schedule::new(start);
    let mut intervals = Vec::new();
    let mut now = start;
    for _ in 0..7 {
        intervals.push(schedule.next().duration_since(now).as_secs());
        now = schedule.next();
        schedule.handle_listed(now, 4 * 500);
    }
    assert_eq!(intervals, [1, 2, 4, 8, 16, 16, 16]);

    schedule.handle_change(now);
    assert_eq!(schedule.next().duration_since(now), INTERVAL_MIN);

    schedule.handle_listed(now, 4 * 100_000);
    assert_eq!(schedule.next().duration_since(now).as_secs(), 40);
}
