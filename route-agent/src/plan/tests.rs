use super::*;
use crate::testing::{fabric, ip, mapped, net, replica};

#[test]
fn every_remote_cidr_is_unreachable_while_no_replica_reaches_it() {
    let plan = plan_of(&fabric(), &View::default());

    let remote = [
        "10.245.0.0/16",
        "10.246.0.0/16",
        "10.71.0.0/16",
        "10.72.0.0/16",
    ];
    for cidr in remote.map(net) {
        assert!(plan.state.unreachable.contains(&cidr));
        assert!(!plan.state.routes.contains_key(&cidr));
    }
    assert!(plan.state.groups.is_empty());
}

#[test]
fn routes_lead_to_the_replicas_that_reach_the_cluster() {
    let mut view = View::default();
    view.reaches("gw-1", "milan");
    view.reaches("gw-2", "milan");
    view.reaches("gw-2", "turin");

    let state = plan_of(&fabric(), &view).state;

    assert_eq!(
        through(&state, "10.245.0.0/16"),
        ["172.16.0.11", "172.16.0.12"].map(ip)
    );
    assert_eq!(
        through(&state, "10.71.0.0/16"),
        through(&state, "10.245.0.0/16")
    );
    assert_eq!(through(&state, "10.246.0.0/16"), [ip("172.16.0.12")]);
}

#[test]
fn replicas_on_the_node_are_preferred_while_one_of_them_reaches_the_cluster() {
    let mut fabric = fabric();
    fabric.replicas[1].node = "rome-2".into();
    let mut view = View::default();
    view.reaches("gw-1", "milan");
    view.reaches("gw-2", "milan");
    view.reaches("gw-2", "turin");

    let state = plan_of(&fabric, &view).state;
    assert_eq!(through(&state, "10.245.0.0/16"), [ip("172.16.0.11")]);
    assert_eq!(through(&state, "10.246.0.0/16"), [ip("172.16.0.12")]);

    // The replica of the node misses probes, so the other one is used.
    let milan = BTreeSet::from(["milan".to_owned()]);
    let mut view = View::default();
    view.is_last_resort("gw-1", milan.clone());
    view.serves("gw-2", milan);
    let state = plan_of(&fabric, &view).state;
    assert_eq!(through(&state, "10.245.0.0/16"), [ip("172.16.0.12")]);
}

#[test]
fn dead_replicas_are_probed() {
    let plan = plan_of(&fabric(), &View::default());

    let Target { probe, replica } = plan.probes["gw-2"];
    let hop = plan.state.routes[&probe.into()].nexthop;
    assert_eq!(plan.state.hops[&hop].dst, ip("172.16.0.12"));
    assert_eq!(replica, ip("172.16.0.12"));
    assert!(Settings::default().probe_net.contains(&probe));
}

#[test]
fn the_nodes_own_packets_have_its_external_address_as_source() {
    let state = plan_of(&fabric(), &all_up()).state;

    assert_eq!(state.addresses, BTreeSet::from([net("10.70.0.1/32")]));
    assert!(
        state
            .routes
            .values()
            .all(|route| route.src == ip("10.70.0.1"))
    );
}

#[test]
fn a_leaving_replica_is_used_only_if_no_other_reaches_the_cluster() {
    let milan = BTreeSet::from(["milan".to_owned()]);
    let both = BTreeSet::from(["milan".to_owned(), "turin".to_owned()]);
    let mut view = View::default();
    view.serves("gw-1", milan);
    view.is_last_resort("gw-2", both);

    let state = plan_of(&fabric(), &view).state;

    assert_eq!(through(&state, "10.245.0.0/16"), [ip("172.16.0.11")]);
    assert_eq!(through(&state, "10.246.0.0/16"), [ip("172.16.0.12")]);
}

#[test]
fn the_mtu_is_the_smaller_of_tunnel_and_underlay_without_overhead() {
    let mtu = |mtu_bytes| {
        let fabric = fabric();
        let view = all_up();
        let plan = plan(&Input {
            underlay: &Underlay {
                mtu_bytes,
                ..Underlay::default()
            },
            ..input(&fabric, &view, &State::default(), &Settings::default())
        });
        plan.unwrap().state.routes[&net("10.245.0.0/16")].mtu_bytes
    };

    assert_eq!(mtu(None), Some(1340));
    assert_eq!(mtu(Some(1500)), Some(1340));
    assert_eq!(mtu(Some(1280)), Some(1230));
    assert_eq!(mtu(Some(0)), Some(576));
}

#[test]
fn the_mtu_of_the_device_is_that_of_the_largest_route() {
    let mut fabric = fabric();
    fabric.peers[0].mtu = 8900;

    let state = plan_of(&fabric, &all_up()).state;

    assert_eq!(state.device.unwrap().mtu_bytes, 8900);
}

#[test]
fn a_second_plan_after_the_first_changes_nothing() {
    let first = plan_of(&fabric(), &all_up());

    let second = plan_after(&fabric(), &all_up(), &first.state);

    assert_eq!(first, second);
}

#[test]
fn a_restarted_agent_adopts_the_view_of_its_predecessor() {
    let mut view = View::default();
    view.reaches("gw-1", "milan");
    view.reaches("gw-2", "milan");
    view.reaches("gw-2", "turin");
    let state = plan_of(&fabric(), &view).state;

    let adopted = adopt(&fabric(), &Settings::default(), &state);

    assert_eq!(adopted, view);
}

#[test]
fn a_new_replica_gets_a_new_hop() {
    let before = plan_of(&fabric(), &all_up()).state;
    let mut fabric = fabric();
    fabric.replicas = vec![
        replica("gw-2", "172.16.0.12"),
        replica("gw-3", "172.16.0.10"),
    ];

    let after = plan_after(&fabric, &all_up(), &before).state;

    for (id, hop) in &after.hops {
        assert!(before.hops.get(id).is_none_or(|old| old == hop));
    }
}

#[test]
fn the_error_of_an_unknown_node_names_the_known_ones() {
    let fabric = fabric();
    let view = View::default();
    let error = plan(&Input {
        node: "paris-1",
        ..input(&fabric, &view, &State::default(), &Settings::default())
    });

    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("paris-1") && text.contains("rome-1, rome-2"),
        "{text}"
    );
}

#[test]
fn the_check_of_a_node_fails_with_the_error_of_the_plan() {
    let mut fabric = fabric();
    let view = View::default();
    assert_eq!(super::node(&fabric, "rome-1").unwrap().name, "rome-1");
    let error = super::node(&fabric, "paris-1").unwrap_err();
    assert_eq!(error, Error::unknown_node(&fabric, "paris-1"));

    let replica = fabric.replicas[0].clone();
    fabric.replicas = (0..=u8::MAX)
        .map(|host| control_fabric::Replica {
            address: Ipv4Addr::new(10, 9, 9, host),
            ..replica.clone()
        })
        .collect();
    let planned = plan(&input(
        &fabric,
        &view,
        &State::default(),
        &Settings::default(),
    ));
    let error = super::node(&fabric, "rome-1").unwrap_err();
    assert_eq!(error, Error::TooManyReplicas { count: 256 });
    assert_eq!(planned.unwrap_err(), error);
}

#[test]
fn mapped_addresses_are_translated_on_the_nodes_to_which_gateways_send_them() {
    let pod = |node: &str| control_fabric::Target::Pod {
        node: Some(node.into()),
    };
    let remote = control_fabric::Target::Remote {
        cluster_id: "milan".into(),
        original: ip("10.244.9.9"),
    };
    let node = crate::testing::fabric().nodes[0].clone();
    let cases = [
        // (mapped address, target, result of `is_translated_here`, result of `is_masqueraded`)
        (
            "10.70.0.1",
            control_fabric::Target::Node("rome-1".into()),
            false,
            false,
        ),
        (
            "10.70.1.1",
            control_fabric::Target::Node("rome-1".into()),
            true,
            false,
        ),
        (
            "10.70.1.2",
            control_fabric::Target::Node("rome-2".into()),
            false,
            true,
        ),
        ("10.70.1.3", pod("rome-1"), true, false),
        ("10.70.1.4", pod("rome-2"), true, true),
        (
            "10.70.1.5",
            control_fabric::Target::Pod { node: None },
            true,
            true,
        ),
        ("10.70.1.6", control_fabric::Target::Outside, true, true),
        ("10.70.1.7", remote, false, true),
        ("10.70.1.8", control_fabric::Target::Service, false, true),
    ];

    for (address, target, translated, masqueraded) in cases {
        let ip = mapped("192.0.2.1", address, target);
        assert_eq!(is_translated_here(&ip, &node), translated, "{ip:?}");
        assert_eq!(is_masqueraded(&ip, &node), masqueraded, "{ip:?}");
    }
}

#[test]
fn packets_to_the_cluster_ip_of_an_ip_object_are_masqueraded() {
    let mut fabric = crate::testing::fabric();
    fabric.ips = vec![mapped(
        "10.96.0.1",
        "10.70.1.8",
        control_fabric::Target::Service,
    )]
    .into();

    let (view, observed, settings) = (View::default(), State::default(), Settings::default());
    let input = input(&fabric, &view, &observed, &settings);
    let filter = filter(&input, &fabric.nodes[0], &BTreeSet::new());

    assert_eq!(filter.masqueraded, [ip("10.96.0.1")].into());
    assert!(!filter.mapped.contains_key(&ip("10.70.1.8")));
}

#[test]
fn the_echo_address_leads_to_the_node_unless_an_ip_object_has_it() {
    let mut fabric = crate::testing::fabric();
    let echo = fabric.echo_responder().unwrap().to_string();
    let view = View::default();
    let text = |fabric: &Fabric| format!("{:?}", plan_of(fabric, &view).state.filter);
    assert!(text(&fabric).contains(&echo), "{}", text(&fabric));

    fabric.ips = vec![mapped("192.0.2.1", &echo, control_fabric::Target::Outside)].into();

    assert_eq!(fabric.echo_responder(), None);
    let node = fabric.nodes[0].external_ip.to_string();
    let filter = text(&fabric);
    let pair = format!("[String(\"{echo}\"), String(\"{node}\")]");
    assert!(!filter.contains(&pair), "{filter}");
}

/// Returns the addresses of the gateway replicas to which the node sends packets for `cidr`.
fn through(state: &State, cidr: &str) -> Vec<Ipv4Addr> {
    let group = state.routes[&net(cidr)].nexthop;
    let hops = state.groups[&group].iter();
    hops.map(|id| state.hops[id].dst).collect()
}

fn plan_of(fabric: &Fabric, view: &View) -> Plan {
    plan_after(fabric, view, &State::default())
}

fn plan_after(fabric: &Fabric, view: &View, observed: &State) -> Plan {
    plan(&input(fabric, view, observed, &Settings::default())).unwrap()
}

fn input<'a>(
    fabric: &'a Fabric,
    view: &'a View,
    observed: &'a State,
    settings: &'a Settings,
) -> Input<'a> {
    Input {
        fabric,
        node: "rome-1",
        view,
        settings,
        underlay: &NO_UNDERLAY,
        observed,
    }
}

fn all_up() -> View {
    let mut view = View::default();
    for replica in ["gw-1", "gw-2", "gw-3"] {
        for cluster in ["milan", "turin"] {
            view.reaches(replica, cluster);
        }
    }

    view
}

static NO_UNDERLAY: Underlay = Underlay {
    mtu_bytes: None,
    interfaces: BTreeSet::new(),
};
