//! Tests of failures. Each test runs in a new network namespace and needs root.

use super::*;
use crate::cipher::Implementation;
use crate::engine;
use crate::planned::PeerChanges;
use crate::shell::control::Parts;
use crate::shell::datapath_setup::tests::{in_new_namespace, plan};
use crate::shell::desired::tests::Place;
use crate::shell::lane::{Inbox, channel};
use crate::shell::lanes::Lanes;
use crate::shell::state::{Config, Identity, State};
use ebpf::{Local, Tables};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

const NODE: &str = "
---
apiVersion: v1
kind: Node
metadata: {name: a}
spec: {podCIDRs: [10.244.1.0/24]}
status: {addresses: [{type: InternalIP, address: 172.18.0.2}]}
";

const REPLICA: &str = "
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: gateways, namespace: liqo, labels: {networking.liqo.io/component: gateway}}
addressType: IPv4
endpoints:
  - {addresses: [172.18.0.8], nodeName: a, targetRef: {kind: Pod, name: gw-0}}
  - {addresses: [172.18.0.9], nodeName: a, targetRef: {kind: Pod, name: gw-1}}
";

/// The address in [`NODE`].
const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 2);

#[test]
fn a_state_that_the_kernel_refuses_is_undone_and_applied_whole_at_the_next_reload() {
    in_new_namespace(|| {
        let place = Place::new("refused");
        place.write_with(&["milan"], NODE);
        let (mut control, [inbox, _other]) = control(&place);
        lose_node(&control);

        place.write(&["milan", "paris"]);
        control.reload();
        assert_eq!(received(&inbox), ["+paris", "=milan"], "restored");
        let error = control.state.gather().config.error.unwrap();
        assert!(error.contains("NODES_V4"), "{error}");
        assert_eq!(control.served.planned.peers.len(), 1);

        control.reload();
        assert_eq!(received(&inbox), ["=milan paris"]);
        assert!(control.state.gather().config.valid);
        let index = control.served.planned.ranks()["paris"];
        assert!(index > 1, "{index} was sent for a refused state");
        assert_applied(&control);

        place.write(&["milan"]);
        control.reload();
        assert_eq!(received(&inbox), [format!("+ -{index}")]);
    });
}

#[test]
fn a_changed_replica_is_sent_without_the_peers() {
    in_new_namespace(|| {
        let place = Place::new("replicas");
        place.write_with(&["milan"], NODE);
        let (mut control, [inbox, _other]) = control(&place);

        place.write_with(&["milan"], &format!("{NODE}{REPLICA}"));
        control.reload();

        let Some(Command::Replicas(names)) = inbox.poll() else {
            panic!("no replicas were sent");
        };
        assert_eq!(names, ["gw-0", "gw-1"]);
        let Some(Command::Place(node)) = inbox.poll() else {
            panic!("the node of the replica was not sent");
        };
        let pods = ["10.244.1.0/24".parse().unwrap()];
        assert_eq!(node, Some(engine::Place::new(NODE_ADDRESS.into(), &pods)));
        assert!(inbox.poll().is_none());
    });
}

#[test]
fn after_a_refused_change_an_unchanged_state_is_applied_whole() {
    in_new_namespace(|| {
        let place = Place::new("reverted");
        place.write_with(&["milan"], NODE);
        let (mut control, [inbox, _other]) = control(&place);
        lose_node(&control);
        place.write(&["milan", "paris"]);
        control.reload();
        assert_eq!(received(&inbox), ["+paris", "=milan"]);

        place.write_with(&["milan"], NODE);
        control.reload();

        assert_eq!(received(&inbox), ["=milan"]);
        assert!(control.state.gather().config.valid);
        assert_applied(&control);
        let mut datapath = lock(&control.datapath);
        datapath.lose_node(NODE_ADDRESS).expect("it is in the map");
    });
}

#[test]
fn maps_to_which_a_change_does_not_fit_get_all_tables() {
    in_new_namespace(|| {
        let place = Place::new("other");
        place.write(&["milan"]);
        let (mut control, [_inbox, _other]) = control(&place);
        place.write_with(&["milan"], NODE);
        let fabric = control_source::file::load(&place.file()).unwrap();
        let mut occupied = control.served.planned.tables();
        let local = Local::Node([172, 18, 0, 9].into());
        let address = fabric.nodes[0].external_ip;
        occupied.local.insert(address.into(), local);
        lock(&control.datapath).apply(&occupied).unwrap();

        control.reload();

        assert!(control.state.gather().config.valid);
        assert_applied(&control);
    });
}

#[test]
fn only_changed_peers_are_sent_and_only_their_entries_are_written() {
    in_new_namespace(|| {
        let place = Place::new("changed");
        place.write(&["milan", "paris"]);
        let (mut control, [inbox, _other]) = control(&place);

        place.write_with(&["milan", "paris"], NODE);
        control.reload();
        assert!(received(&inbox).is_empty(), "a node is no peer");
        assert_applied(&control);

        place.write_with(&["paris", "oslo"], NODE);
        control.reload();
        assert_eq!(received(&inbox), ["+oslo -0"]);
        assert_applied(&control);
    });
}

#[test]
fn a_state_that_one_lane_does_not_receive_is_undone_in_the_others() {
    in_new_namespace(|| {
        let place = Place::new("hung");
        place.write(&["milan"]);
        let (mut control, [inbox, other]) = control(&place);
        drop(other);

        place.write(&["milan", "paris"]);
        control.reload();

        assert_eq!(received(&inbox), ["+paris", "=milan"]);
        let config = control.state.gather().config;
        assert_eq!(config.error, Some(Hung.to_string()));
        assert_eq!(control.served.planned.peers.len(), 1);
        assert_applied(&control);
    });
}

fn lose_node(control: &Control) {
    let mut datapath = lock(&control.datapath);

    datapath.lose_node(NODE_ADDRESS).unwrap();
}

/// Returns a started control with two lanes, whose first commands were received.
fn control(place: &Place) -> (Control, [Inbox; 2]) {
    let mut loader = place.loader();
    let served = loader.load(None).unwrap().unwrap();
    let parts = plan().set_up(&served.planned.tables()).unwrap();
    let datapath = Arc::new(Mutex::new(parts.datapath));
    let [(first, inbox), (second, other)] = [channel().unwrap(), channel().unwrap()];
    let lanes = Lanes::of(vec![first, second]);
    let identity = Identity {
        instance: String::new(),
        version: "",
        cluster_id: "rome".to_owned(),
        replica: "gw-0".to_owned(),
        namespace: parts.namespace.name(),
        listen_port: 0,
        lanes: 2,
        udp_super_packets: false,
        cipher: Implementation::Ring,
    };
    let config = Config::applied(String::new(), &served);
    let state = State::new(identity, lanes.clone(), Arc::clone(&datapath), config);
    let (_notices, notices) = mpsc::channel(1);
    let control = Control::start(Parts {
        loader,
        reporter: None,
        lanes,
        notices,
        datapath,
        state: Arc::new(state),
        replica: "gw-0".to_owned(),
        served,
    });
    received(&inbox);

    (control.unwrap(), [inbox, other])
}

/// Returns the received changes of peers: `=` for all peers, `+` for changed and `-` for removed ones.
fn received(inbox: &Inbox) -> Vec<String> {
    let commands = std::iter::from_fn(|| inbox.poll());
    let changes = commands.filter_map(|command| {
        let Command::Peers(PeerChanges { peers, removed, .. }) = command else {
            return None;
        };
        let sign = if removed.is_some() { "+" } else { "=" };
        let ids: Vec<_> = peers.into_iter().map(|it| it.cluster_id).collect();
        let removed = removed.unwrap_or_default();
        let removed: String = removed.iter().map(|index| format!(" -{index}")).collect();

        Some(format!("{sign}{}{removed}", ids.join(" ")))
    });

    changes.collect()
}

/// Checks that the eBPF maps have the entries of the served state.
fn assert_applied(control: &Control) {
    let tables: Tables = control.served.planned.tables();
    let changes = lock(&control.datapath).apply(&tables).unwrap();

    assert_eq!(changes, ebpf::Changes::default());
}
