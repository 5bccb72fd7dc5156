use super::*;
use crate::testing::{ip, net};
use proptest::collection::{btree_map, btree_set};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

#[test]
fn a_lost_replica_is_one_replacement() {
    let observed = state(&[1, 2]);
    let desired = state(&[1]);

    let ops = diff(&observed, &desired);

    assert_eq!(ops, [Op::SetGroup(100, BTreeSet::from([1]))]);
}

#[test]
fn the_loss_of_the_last_replica_keeps_the_unreachable_route() {
    let observed = state(&[1]);
    let mut desired = observed.clone();
    desired.groups.clear();
    desired.routes.clear();

    let ops = diff(&observed, &desired);

    assert_eq!(ops, [Op::DeleteRoute(remote()), Op::DeleteGroup(100)]);
}

#[test]
fn a_new_port_recreates_the_device_and_everything_that_uses_it() {
    let desired = state(&[1]);
    let mut observed = desired.clone();
    observed.device = Some(device(4789));

    let ops = diff(&observed, &desired);

    assert_eq!(
        ops,
        [
            Op::DeleteDevice,
            Op::CreateDevice(device(6091)),
            Op::AddAddress(net("10.70.0.1/32")),
            Op::SetHop(1, hop(1)),
            Op::SetHop(2, hop(2)),
            Op::SetGroup(100, BTreeSet::from([1])),
            Op::SetRoute(remote(), desired.routes[&remote()]),
        ]
    );
}

#[test]
fn a_filter_that_cannot_be_set_prevents_only_a_new_device() {
    let observed = state(&[1, 2]);
    let mut desired = state(&[1]);
    desired.filter = Some(Ruleset::listed(&serde_json::json!({"nftables": [
        {"counter": {"family": "inet", "table": "liqo", "name": "drops"}},
    ]})));
    let continues = |observed: &State| {
        let ops = diff(observed, &desired);
        let at = ops.iter().position(|op| matches!(op, Op::SetFilter(_)));
        let (before, rest) = ops.split_at(at.unwrap() + 1);
        may_continue(before.last().unwrap(), rest, observed)
    };
    let with_device = |device| State {
        device,
        ..observed.clone()
    };

    assert!(continues(&observed));
    for mut down in [device(6091), device(4789)] {
        assert_eq!(continues(&with_device(Some(down))), down.port == 6091);
        down.ready = false;
        assert!(!continues(&with_device(Some(down))));
    }
    assert!(!continues(&State::default()));
    assert!(!may_continue(&Op::SetHop(1, hop(1)), &[], &observed));
}

#[test]
fn a_malformed_hop_is_deleted_before_it_is_created() {
    let desired = state(&[1]);
    let mut observed = desired.clone();
    observed.hops.insert(1, Hop::UNKNOWN);

    let ops = diff(&observed, &desired);

    assert_eq!(ops[..2], [Op::DeleteHop(1), Op::SetHop(1, hop(1))]);
}

#[test]
fn the_filter_is_set_before_the_device_and_deleted_after_it() {
    let mut desired = state(&[1]);
    desired.filter = Some(Ruleset::default());

    let first = diff(&State::default(), &desired);
    let last = diff(&desired, &State::default());

    let place = |ops: &[Op], op: &Op| ops.iter().position(|it| it == op).unwrap();
    let set = Op::SetFilter(Ruleset::default());
    assert!(place(&first, &set) < place(&first, &Op::CreateDevice(device(6091))));
    assert!(place(&last, &Op::DeleteDevice) < place(&last, &Op::DeleteFilter));
}

proptest! {
    #[test]
    fn the_changes_lead_to_the_desired_state(observed in states(), desired in states()) {
        let mut state = observed.clone();
        for op in diff(&observed, &desired) {
            state.apply(&op);
        }

        prop_assert_eq!(state, desired);
    }

    #[test]
    fn the_desired_state_needs_no_change(state in states()) {
        prop_assert_eq!(diff(&state, &state), []);
    }

    #[test]
    fn a_remote_cidr_of_both_states_has_a_route_after_every_step(
        observed in states(),
        desired in states(),
    ) {
        let kept: Vec<_> = observed.unreachable.intersection(&desired.unreachable).collect();
        let mut state = observed.clone();
        for op in diff(&observed, &desired) {
            state.apply(&op);

            for cidr in &kept {
                prop_assert!(state.unreachable.contains(cidr), "{:?} exposes {}", op, cidr);
            }
        }
    }

    #[test]
    fn an_unreachable_route_is_added_before_and_deleted_after_the_unicast_route(
        observed in states(),
        desired in states(),
    ) {
        let mut state = observed.clone();
        for op in diff(&observed, &desired) {
            if let Op::SetRoute(dst, _) = &op {
                let expected =
                    desired.unreachable.contains(dst) || observed.unreachable.contains(dst);
                prop_assert_eq!(state.unreachable.contains(dst), expected);
            }
            if let Op::DeleteUnreachable(dst) = &op {
                let expected = desired.routes.contains_key(dst);
                prop_assert_eq!(state.routes.contains_key(dst), expected);
            }
            state.apply(&op);
        }
    }

    #[test]
    fn references_are_valid_after_every_step(observed in states(), desired in states()) {
        let mut state = observed.clone();
        for op in diff(&observed, &desired) {
            let before = state.clone();
            state.apply(&op);

            if let Op::SetGroup(_, members) = &op {
                prop_assert!(members.iter().all(|id| before.hops.contains_key(id)));
            }
            if let Op::SetRoute(_, Route { nexthop, src, .. }) = &op {
                let is_hop = before.hops.contains_key(nexthop);
                prop_assert!(is_hop || before.groups.contains_key(nexthop));
                prop_assert!(before.addresses.contains(&Ipv4Net::from(*src)));
            }
            if matches!(op, Op::SetHop(..) | Op::AddAddress(_)) {
                prop_assert!(before.device.is_some());
            }
            if matches!(op, Op::DeleteGroup(_) | Op::DeleteHop(_) | Op::DeleteAddress(_)) {
                prop_assert_eq!(&before.routes, &state.routes, "{:?} deletes routes", op);
            }
        }
    }
}

/// Returns a state with two nexthops, one group of the nexthops `members`, and one route.
fn state(members: &[u32]) -> State {
    State {
        device: Some(device(6091)),
        addresses: BTreeSet::from([net("10.70.0.1/32")]),
        rule: true,
        hops: [1, 2].map(|number| (number, hop(number))).into(),
        groups: BTreeMap::from([(100, members.iter().copied().collect())]),
        routes: BTreeMap::from([(remote(), route(100, 1))]),
        unreachable: BTreeSet::from([remote()]),
        filter: None,
    }
}

fn remote() -> Ipv4Net {
    net("10.245.0.0/16")
}

fn device(port: u16) -> Device {
    Device {
        port,
        mac: [2, 0, 0, 0, 0, 1],
        mtu_bytes: 1500,
        ready: true,
    }
}

fn hop(number: u32) -> Hop {
    Hop {
        src: ip("172.16.0.1"),
        dst: std::net::Ipv4Addr::from_bits(0xac10_0010 + number),
        vni: 1,
    }
}

fn route(nexthop: u32, host: u8) -> Route {
    Route {
        nexthop,
        src: std::net::Ipv4Addr::new(10, 70, 0, host),
        mtu_bytes: None,
    }
}

/// Generates states in which all references between objects are valid, as in the kernel.
fn states() -> impl Strategy<Value = State> {
    let cidrs = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"].map(net);
    let unreachable = subsequence(cidrs.to_vec(), 0..=4);
    let hops = btree_map(1u32..5, (1u32..4).prop_map(hop), 0..4);

    (
        hops,
        unreachable,
        any::<bool>(),
        select(vec![None, Some(6091), Some(4789)]),
    )
        .prop_flat_map(move |(hops, unreachable, rule, port)| {
            let hops = if port.is_some() {
                hops
            } else {
                BTreeMap::new()
            };
            let ids: Vec<_> = hops.keys().copied().collect();
            let groups = if ids.is_empty() {
                Just(BTreeMap::new()).boxed()
            } else {
                let members = btree_set(select(ids.clone()), 1..=ids.len());
                btree_map(100u32..103, members, 0..3).boxed()
            };
            let addresses = if port.is_some() { 1..3 } else { 0..1 };
            let addresses = subsequence(vec![1u8, 2], addresses);
            let base = State {
                device: port.map(device),
                rule,
                hops,
                unreachable: unreachable.into_iter().collect(),
                ..State::default()
            };

            (Just(base), groups, addresses).prop_flat_map(move |(mut base, groups, hosts)| {
                let nexthops: Vec<_> = base.hops.keys().chain(groups.keys()).copied().collect();
                base.groups = groups;
                base.addresses = hosts
                    .iter()
                    .map(|host| route(0, *host).src.into())
                    .collect();
                if nexthops.is_empty() {
                    return Just(base).boxed();
                }
                let routes =
                    (select(nexthops), select(hosts)).prop_map(|(id, host)| route(id, host));
                btree_map(select(cidrs.to_vec()), routes, 0..4)
                    .prop_map(move |routes| State {
                        routes,
                        ..base.clone()
                    })
                    .boxed()
            })
        })
}
