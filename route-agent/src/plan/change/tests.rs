//! The changed state equals the state that is planned from scratch, over random changes.

use super::super::{Input, plan};
use super::*;
use crate::diff::diff;
use crate::ruleset::REMOTE;
use crate::settings::Settings;
use crate::underlay::Underlay;
use crate::view::View;
use control_fabric::{Resolver, generate};
use proptest::prelude::*;

/// Number of random sequences; one sequence takes about 50 ms.
const CASES: u32 = 200;

const NODE: &str = generate::NODES[0];

/// A random change: of objects, and of the peers that each replica reaches.
type Step = (control_fabric::Changes, Option<u8>);

fn step() -> impl Strategy<Value = Step> {
    let reached = prop_oneof![2 => Just(0xff), 1 => any::<u8>()];

    (generate::changes(), prop::option::weighted(0.1, reached))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn the_changed_state_equals_the_state_from_scratch(
        steps in prop::collection::vec(step(), 20..80)
    ) {
        let mut resolver = Resolver::new("liqo", &["developers".to_owned()]);
        resolver.apply(generate::cluster());
        let mut state = State::default();
        let mut applied: Option<Fabric> = None;
        let mut reached = 0xff;
        for (changes, new_reached) in steps {
            if let Some(new_reached) = new_reached {
                (reached, applied) = (new_reached, None);
            }
            let Ok(fabric) = resolver.apply(changes).fabric.clone() else {
                continue;
            };
            if fabric.node(NODE).is_none() {
                continue;
            }
            let view = view(&fabric, reached);
            let before = state.clone();
            let input = input(&fabric, &view, &before);
            let partial = applied.as_ref().and_then(|old| {
                super::changes(&input, old, &fabric.changes_since(old))
            });
            let ops = match partial {
                Some(ops) => ops,
                None => diff(&state, &plan(&input).unwrap().state),
            };
            let kept: Vec<_> = before.unreachable.iter().collect();
            let unreachable = fabric.peers.iter().flat_map(Fabric::remote_cidrs);
            let unreachable: BTreeSet<_> = unreachable.collect();
            for op in &ops {
                state.apply(op);
                for net in kept.iter().filter(|net| unreachable.contains(net)) {
                    prop_assert!(state.unreachable.contains(net), "{net} may leave the node");
                }
            }

            let planned = plan(&input).unwrap().state;
            prop_assert_eq!(diff(&state, &planned), Vec::new());
            prop_assert!(planned == state);
            applied = Some(fabric);
        }
    }
}

#[test]
fn changes_of_other_nodes_and_of_keys_change_nothing() {
    let (old, view, state) = converged();
    let mut new = old.clone();
    new.nodes[1].ready = false;
    new.peers[0].public_key = [9; 32];

    assert_eq!(changes(&old, &new, &view, &state), Some(Vec::new()));
}

#[test]
fn a_mapped_address_is_a_change_of_elements() {
    let (old, view, state) = converged();
    let mut new = old.clone();
    let target = control_fabric::Target::Outside;
    new.ips
        .push(crate::testing::mapped("192.0.2.1", "10.70.1.1", target));

    let ops = changes(&old, &new, &view, &state).unwrap();

    let mut elements = ElementChanges::default();
    let [to, from] = ["192.0.2.1", "10.70.1.1"].map(crate::testing::ip);
    elements.add(MAPPED, Some((from, to)));
    elements.add(MASQUERADED, Some(from));
    assert_eq!(ops, [Op::ChangeFilter(elements)]);
}

#[test]
fn an_element_that_is_removed_and_added_is_not_changed() {
    let (mut old, view, _) = converged();
    let target = control_fabric::Target::Outside;
    old.ips
        .push(crate::testing::mapped("192.0.2.1", "10.70.1.1", target));
    let state = planned(&old, &view, &State::default());
    let mut new = old.clone();
    new.ips[0].masquerade ^= true;

    assert_eq!(changes(&old, &new, &view, &state), Some(Vec::new()));
}

#[test]
fn a_change_of_a_prefix_changes_its_routes_and_keeps_the_group() {
    let (old, view, state) = converged();
    let mut new = old.clone();
    let net = crate::testing::net;
    new.peers[0].pods = vec![remap("10.80.0.0/16")];

    let ops = changes(&old, &new, &view, &state).unwrap();

    let route = state.routes[&net("10.245.0.0/16")];
    let mut elements = ElementChanges::default();
    elements.remove(REMOTE, Some(net("10.245.0.0/16")));
    elements.add(REMOTE, Some(net("10.80.0.0/16")));
    assert_eq!(
        ops,
        [
            Op::AddUnreachable(net("10.80.0.0/16")),
            Op::ChangeFilter(elements),
            Op::SetRoute(net("10.80.0.0/16"), route),
            Op::DeleteRoute(net("10.245.0.0/16")),
            Op::DeleteUnreachable(net("10.245.0.0/16")),
        ]
    );
}

#[test]
fn changes_that_affect_other_elements_need_a_whole_plan() {
    let (old, view, state) = converged();
    let changed: [fn(&mut Fabric); 8] = [
        |fabric| fabric.replicas[0].name = "gw-9".to_owned(),
        |fabric| fabric.nodes[0].external_ip = crate::testing::ip("10.70.9.9"),
        |fabric| fabric.replicas[0].address = crate::testing::ip("172.16.0.99"),
        |fabric| fabric.peers[0].mtu = 1280,
        |fabric| fabric.peers[0].pods = fabric.peers[1].pods.clone(),
        |fabric| fabric.peers[0].pods.push(remap("10.245.1.0/24")),
        |fabric| fabric.peers[0].pods.push(remap("10.246.1.0/24")),
        |fabric| fabric.pod_cidrs.clear(),
    ];

    for change in changed {
        let mut new = old.clone();
        change(&mut new);
        assert_eq!(changes(&old, &new, &view, &state), None, "{new:?}");
    }
}

#[test]
fn a_removed_prefix_that_others_overlap_needs_a_whole_plan() {
    let probes = Settings::default().probe_net.to_string();
    for pods in [
        vec![probes.as_str()],
        vec!["10.245.0.0/16", "10.245.1.0/24"],
    ] {
        let (mut old, view, _) = converged();
        old.peers[0].pods = pods.into_iter().map(remap).collect();
        let state = planned(&old, &view, &State::default());
        let mut new = old.clone();
        new.peers.remove(0);

        assert_eq!(changes(&old, &new, &view, &state), None);
    }
}

#[test]
fn a_prefix_inside_one_that_stays_needs_a_whole_plan() {
    let (mut new, view, _) = converged();
    let mut old = new.clone();
    old.peers[0].pods.push(remap("10.245.1.0/24"));
    let state = planned(&old, &view, &State::default());
    new.peers[0].pods.truncate(1);

    assert_eq!(changes(&old, &new, &view, &state), None);
}

#[test]
fn the_last_peer_of_a_nexthop_group_takes_the_group_along() {
    let (mut old, view, _) = converged();
    old.peers.remove(1);
    let state = planned(&old, &view, &State::default());
    let mut new = old.clone();
    new.peers[0].pods = vec![remap("10.80.0.0/16")];
    assert!(changes(&old, &new, &view, &state).is_some());

    new.peers.clear();
    assert_eq!(changes(&old, &new, &view, &state), None);
}

#[test]
fn a_peer_that_no_replica_reaches_has_no_route() {
    let (old, _, _) = converged();
    let view = View::default();
    let state = planned(&old, &view, &State::default());
    let mut new = old.clone();
    new.peers[0].pods = vec![remap("10.80.0.0/16")];

    let ops = changes(&old, &new, &view, &state).unwrap();

    let is_route = |op: &&Op| matches!(op, Op::SetRoute(..) | Op::DeleteRoute(_));
    assert_eq!(ops.iter().find(is_route), None, "{ops:?}");
}

#[test]
fn a_state_without_the_removed_prefix_needs_a_whole_plan() {
    let (old, view, state) = converged();
    let mut new = old.clone();
    new.peers.remove(0);
    assert!(changes(&old, &new, &view, &state).is_some());

    let mut elements = ElementChanges::default();
    elements.remove(REMOTE, Some(crate::testing::net("10.245.0.0/16")));
    let mut damaged = state.clone();
    damaged.apply(&Op::ChangeFilter(elements));
    assert_eq!(changes(&old, &new, &view, &damaged), None);
    damaged.filter = None;
    assert_eq!(changes(&old, &new, &view, &damaged), None);
}

#[test]
fn a_new_smallest_mtu_beyond_the_number_of_classes_needs_a_whole_plan() {
    let (mut old, view, _) = converged();
    let number = u16::from(crate::settings::CLASS_MAX) + 1;
    old.peers = (0..number)
        .map(|number| {
            let pods = format!("10.80.{number}.0/24");
            let mut peer = crate::testing::peer("", "10.245.0.0/16", "10.71.0.0/16");
            let from = crate::testing::net("10.244.0.0/24");
            peer.pods = vec![ipam::Remap::new(from, crate::testing::net(&pods)).unwrap()];
            peer.external.clear();
            peer.cluster_id = format!("cluster-{number:03}");
            peer.mtu = 1300 + number;
            peer
        })
        .collect();
    let state = planned(&old, &view, &State::default());
    let mut new = old.clone();
    new.peers[usize::from(number) - 1].mtu = 1299;

    assert_eq!(changes(&old, &new, &view, &state), None);
}

#[test]
fn a_state_with_other_nexthop_ids_needs_a_whole_plan() {
    let (old, _, _) = converged();
    let view = View::default();
    let mut state = planned(&old, &view, &State::default());
    let mut new = old.clone();
    new.peers[0].public_key = [9; 32];
    assert!(changes(&old, &new, &view, &state).is_some());

    let (id, hop) = state.hops.pop_last().unwrap();
    state.hops.insert(id + 1, hop);

    assert_eq!(changes(&old, &new, &view, &state), None);
}

fn remap(to: &str) -> ipam::Remap {
    let to = crate::testing::net(to);
    let from = ipnet::Ipv4Net::new([10, 244, 0, 0].into(), to.prefix_len()).unwrap();

    ipam::Remap::new(from.trunc(), to).unwrap()
}

/// Returns a fabric, a view in which all replicas reach all peers, and the planned state.
fn converged() -> (Fabric, View, State) {
    let fabric = crate::testing::fabric();
    let view = view(&fabric, 0xff);
    let state = planned(&fabric, &view, &State::default());

    (fabric, view, state)
}

fn planned(fabric: &Fabric, view: &View, observed: &State) -> State {
    let mut input = input(fabric, view, observed);
    input.node = "rome-1";

    plan(&input).unwrap().state
}

fn changes(old: &Fabric, new: &Fabric, view: &View, state: &State) -> Option<Vec<Op>> {
    let mut input = input(new, view, state);
    input.node = "rome-1";

    super::changes(&input, old, &new.changes_since(old))
}

/// Returns the view in which the replica at place N reaches the peer at place M if the bit 2 N + M of
/// `reached` is set.
fn view(fabric: &Fabric, reached: u8) -> View {
    let mut view = View::default();
    for (replica, place) in fabric.replicas.iter().zip([0, 2, 4]) {
        for (number, peer) in ["milan", "naples", "turin"].iter().enumerate() {
            if reached >> (place + number) & 1 == 1 && fabric.peer(peer).is_some() {
                view.reaches(&replica.name, peer);
            }
        }
    }

    view
}

fn input<'a>(fabric: &'a Fabric, view: &'a View, observed: &'a State) -> Input<'a> {
    static SETTINGS: std::sync::LazyLock<Settings> = std::sync::LazyLock::new(Settings::default);
    static UNDERLAY: std::sync::LazyLock<Underlay> = std::sync::LazyLock::new(|| Underlay {
        mtu_bytes: Some(9000),
        interfaces: BTreeSet::from(["eth0".to_owned()]),
    });

    Input {
        fabric,
        node: NODE,
        view,
        settings: &SETTINGS,
        underlay: &UNDERLAY,
        observed,
    }
}
