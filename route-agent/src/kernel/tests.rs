use super::*;
use crate::cleanup;
use crate::diff::diff;
use crate::plan::{Input, change, plan};
use crate::testing::{eventually, fabric, in_netns, ip, mapped, net, run};
use crate::view::View;
use control_fabric::{Fabric, Target};

mod foreign;
mod tunnels;

#[test]
fn the_kernel_converges_on_the_plan_and_a_successor_changes_nothing() {
    in_netns(async || {
        let mut fabric = fabric();
        fabric.ips = vec![mapped("192.0.2.1", "10.70.1.1", Target::Outside)].into();
        let mut node = Node::new();

        node.converge(&fabric, &all_up()).await;

        let mut successor = Node::new();
        assert_eq!(successor.converge(&fabric, &all_up()).await, []);
    });
}

#[test]
fn nft_lists_our_table_in_the_given_form() {
    in_netns(async || {
        let mut fabric = fabric();
        fabric.ips = vec![
            mapped("192.0.2.1", "10.70.1.1", Target::Outside),
            mapped("192.0.2.2", "10.70.1.2", Target::Outside),
        ]
        .into();
        let mut node = Node::new();

        node.converge(&fabric, &all_up()).await;

        // If `nft` listed the ruleset in another form, `Nft::set` would accept the listed form. It
        // would then also accept a change that another program makes before `Nft::set` lists it.
        assert!(node.kernel.nft.is_verbatim());
    });
}

#[test]
fn a_lost_replica_is_removed_from_the_group_by_one_change() {
    in_netns(async || {
        let mut node = Node::new();
        node.converge(&fabric(), &all_up()).await;

        let ops = node.converge(&fabric(), &up(&["gw-2"])).await;

        assert!(matches!(ops.as_slice(), [Op::SetGroup(..)]), "{ops:?}");
        assert!(run("ip route get 10.245.0.1").contains("dst 172.16.0.12"));
    });
}

#[test]
fn each_peer_has_its_own_mtu_in_any_order_of_lookups() {
    in_netns(async || {
        let mut fabric = fabric();
        fabric.peers[1].mtu = 1200;
        let mut node = Node::new();
        node.converge(&fabric, &all_up()).await;
        let probe = node.settings.probe_address(1).to_string();

        let mut routes = [
            ("10.245.1.10", "mtu 1340"),
            ("10.246.1.10", "mtu 1200"),
            (probe.as_str(), "172.16.0.11"),
        ];
        for _ in 0..routes.len() {
            routes.rotate_left(1);
            run("ip route flush cache");
            for (address, expected) in routes {
                let route = run(&format!("ip route get {address}"));
                assert!(route.contains(expected), "{route}");
            }
        }
    });
}

#[test]
fn without_live_replicas_a_remote_address_is_unreachable() {
    in_netns(async || {
        default_route();
        let mut node = Node::new();
        node.converge(&fabric(), &all_up()).await;

        node.converge(&fabric(), &View::default()).await;

        assert_unreachable();
    });
}

#[test]
fn after_deletions_by_others_remote_addresses_are_unreachable_until_repaired() {
    for damage in [
        "ip link delete liqo-overlay",
        "ip link set liqo-overlay down",
        "ip nexthop flush",
        "ip nexthop delete id 1819345153; ip nexthop delete id 1819345154",
    ] {
        in_netns(async move || {
            default_route();
            let mut node = Node::new();
            node.converge(&fabric(), &all_up()).await;

            run(damage);

            assert_unreachable();
            assert!(!node.converge(&fabric(), &all_up()).await.is_empty());
        });
    }
}

#[test]
fn changes_of_our_state_by_others_are_detected_and_repaired() {
    for damage in [
        "ip rule delete priority 27761",
        "ip route delete 10.245.0.0/16 table 27761 metric 0",
        "ip route delete unreachable 10.245.0.0/16 table 27761 metric 4294967295",
        "ip route replace 10.245.0.0/16 table 27761 nhid 1819345153 src 10.70.0.1 protocol 108",
        "ip nexthop replace id 1819348992 group 1819345153 protocol 108",
        "ip nexthop replace id 1819345153 encap ip id 1 src 172.16.0.1 dst 192.0.2.9 \
         dev liqo-overlay protocol 108",
        "ip nexthop delete id 1819345153; ip nexthop add id 1819345153 blackhole protocol 108",
        "ip link set liqo-overlay mtu 1400",
        "ip link set liqo-overlay address 02:00:00:00:00:09",
        "ip link set liqo-overlay arp on",
        "ip link set liqo-overlay alias other",
        "ip address flush dev liqo-overlay",
        "ip address add 192.0.2.7/32 dev liqo-overlay",
        "nft delete table inet liqo",
        "nft flush chain inet liqo input",
        "nft add element inet liqo gateways { 192.0.2.9 }",
        "nft insert rule inet liqo input accept",
        "nft add chain inet liqo other",
    ] {
        in_netns(async move || {
            let mut node = Node::new();
            node.converge(&fabric(), &all_up()).await;

            run(damage);

            let ops = node.converge(&fabric(), &all_up()).await;
            assert!(!ops.is_empty(), "not detected: {damage}");
        });
    }
}

#[test]
fn a_device_with_another_port_is_recreated() {
    in_netns(async || {
        let mut node = Node::new();
        node.converge(&fabric(), &all_up()).await;

        node.settings.overlay_port = 6099;
        node.kernel = Kernel::open(node.settings.clone()).unwrap();
        node.converge(&fabric(), &all_up()).await;

        assert!(run("ip -d link show liqo-overlay").contains("dstport 6099"));
    });
}

#[test]
fn drop_counters_survive_a_change_of_the_cluster() {
    in_netns(async || {
        let mut node = Node::new();
        node.converge(&fabric(), &all_up()).await;
        let unknown = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        unknown.send_to(b"x", "127.0.0.1:6091").unwrap();
        let drops = async || nft::counters().await.unwrap()[crate::filter::OUTER_SOURCE];
        assert_eq!(drops().await, 1);

        let mut changed = fabric();
        changed.replicas.remove(0);
        changed.peers.remove(0);
        node.converge(&changed, &up(&["gw-2"])).await;

        assert_eq!(drops().await, 1);
    });
}

#[test]
fn a_thousand_peers_converge_and_lose_a_replica_by_one_change() {
    in_netns(async || {
        let mut fabric = fabric();
        fabric.peers = (0..1000u16)
            .map(|n| {
                let [high, low] = n.to_be_bytes();
                let pods = format!("11.{}.{low}.0/24", high * 2);
                let external = format!("11.{}.{low}.0/24", high * 2 + 1);
                small_peer(&format!("c{n:04}"), &pods, &external)
            })
            .collect();
        let mut view = View::default();
        for peer in &fabric.peers {
            view.reaches("gw-1", &peer.cluster_id);
            view.reaches("gw-2", &peer.cluster_id);
        }
        let mut node = Node::new();
        node.converge(&fabric, &view).await;

        let mut view = View::default();
        for peer in &fabric.peers {
            view.reaches("gw-1", &peer.cluster_id);
        }
        let ops = node.converge(&fabric, &view).await;

        assert!(
            matches!(ops.as_slice(), [Op::SetGroup(..)]),
            "{}",
            ops.len()
        );
    });
}

#[test]
fn changed_elements_and_routes_equal_those_of_a_plan_of_the_whole() {
    in_netns(async || {
        let mut old = fabric();
        old.ips = vec![
            mapped("192.0.2.1", "10.70.1.1", Target::Outside),
            mapped("192.0.2.2", "10.70.1.2", Target::Outside),
        ]
        .into();
        // The aggregated set of remote prefixes has 10.244.0.0/14, which the change splits.
        old.peers[1].pods = vec![
            remap("10.244.0.0/15"),
            remap("10.246.0.0/16"),
            remap("10.247.0.0/16"),
        ];
        old.peers[0].pods.clear();
        let mut node = Node::new();
        node.converge(&old, &all_up()).await;

        let mut new = old.clone();
        new.ips[0].spec_ip = ip("192.0.2.9");
        new.ips.remove(1);
        new.peers[1].pods[1] = remap("10.80.0.0/16");
        let ops = node.change(&old, &new).await;

        assert!(
            ops.iter().any(|op| matches!(op, Op::ChangeFilter(_))),
            "{ops:?}"
        );
        assert!(node.kernel.nft.is_verbatim());
        assert_eq!(node.converge(&new, &all_up()).await, []);
        let back = node.change(&new, &old).await;
        assert!(!back.is_empty());
        assert_eq!(node.converge(&old, &all_up()).await, []);
    });
}

#[test]
fn a_change_of_elements_repairs_other_elements_and_objects_of_the_table() {
    in_netns(async || {
        let old = fabric();
        let mut node = Node::new();
        let mut address = 0;
        for damage in [
            "delete element inet liqo remote { 10.246.0.0/16 }",
            "add element inet liqo mapped { 10.70.9.9 : 192.0.2.9 }",
            "add set inet liqo foreign { type ipv4_addr; }",
            "flush chain inet liqo source",
            "delete table inet liqo",
        ] {
            node.converge(&old, &all_up()).await;
            let mut new = old.clone();
            address += 1;
            let status_ip = format!("10.70.1.{address}");
            new.ips
                .push(mapped("192.0.2.1", &status_ip, Target::Outside));

            node.change_after(&old, &new, || {
                run(&format!("nft '{damage}'"));
            })
            .await;

            assert!(node.kernel.nft.is_verbatim(), "{damage}");
            assert_eq!(node.converge(&new, &all_up()).await, [], "{damage}");
        }
    });
}

fn remap(to: &str) -> ipam::Remap {
    let to = net(to);
    let from = ipnet::Ipv4Net::new(ip("10.244.0.0"), to.prefix_len()).unwrap();

    ipam::Remap::new(from, to).unwrap()
}

fn small_peer(cluster_id: &str, pods: &str, external: &str) -> control_fabric::Peer {
    let mut peer = crate::testing::peer(cluster_id, "10.245.0.0/16", "10.71.0.0/16");
    peer.pods = vec![ipam::Remap::new(net("10.244.0.0/24"), net(pods)).unwrap()];
    peer.external = vec![ipam::Remap::new(net("10.70.0.0/24"), net(external)).unwrap()];
    peer
}

/// Adds a default route, which packets for a remote cluster must never take.
fn default_route() {
    run(
        "ip link add out type veth peer name beyond; ip link set out up; ip link set beyond up
         ip address add 192.0.2.1/24 dev out; ip route add default via 192.0.2.2",
    );
}

fn assert_unreachable() {
    for address in ["10.245.1.10", "10.71.0.1", "10.246.1.10"].map(ip) {
        let route = run(&format!("ip route get {address} 2>&1 || true"));
        assert!(
            route.contains("unreachable") || route.contains("No route to host"),
            "{address} leaks: {route}"
        );
    }
}

/// Plans the kernel state of the node rome-1, and applies it in the test's network namespace.
struct Node {
    kernel: Kernel,
    settings: Settings,
}

impl Node {
    fn new() -> Self {
        let settings = Settings::default();
        Self {
            kernel: Kernel::open(settings.clone()).unwrap(),
            settings,
        }
    }

    /// Plans and applies the state, asserts that the kernel then has this state, and returns the
    /// changes.
    async fn converge(&mut self, fabric: &Fabric, view: &View) -> Vec<Op> {
        let mut state = self.kernel.observe().await.unwrap();
        let destinations = Destinations::of(fabric, "rome-1");
        let underlay = self.kernel.observe_underlay(&destinations).await;
        let input = Input {
            fabric,
            node: "rome-1",
            view,
            settings: &self.settings,
            underlay: &underlay,
            observed: &state,
        };
        let desired = plan(&input).unwrap().state;
        let ops = diff(&state, &desired);
        for op in &ops {
            self.kernel.apply(op, &state).await.unwrap();
            state.apply(op);
        }

        assert_eq!(state, desired);
        assert_eq!(self.kernel.observe().await.unwrap(), desired);
        ops
    }
}

impl Node {
    /// Applies the changes from `old` to `new`, and returns them.
    async fn change(&mut self, old: &Fabric, new: &Fabric) -> Vec<Op> {
        self.change_after(old, new, || ()).await
    }

    /// Calls `damage` between the observation and the changes from `old` to `new`.
    async fn change_after(&mut self, old: &Fabric, new: &Fabric, damage: impl Fn()) -> Vec<Op> {
        let mut state = self.kernel.observe().await.unwrap();
        let destinations = Destinations::of(new, "rome-1");
        let underlay = self.kernel.observe_underlay(&destinations).await;
        let input = Input {
            fabric: new,
            node: "rome-1",
            view: &all_up(),
            settings: &self.settings,
            underlay: &underlay,
            observed: &state,
        };
        let ops = change::changes(&input, old, &new.changes_since(old)).unwrap();
        damage();
        for op in &ops {
            self.kernel.apply(op, &state).await.unwrap();
            state.apply(op);
        }

        assert_eq!(self.kernel.observe().await.unwrap(), state);
        ops
    }
}

fn all_up() -> View {
    up(&["gw-1", "gw-2"])
}

fn up(replicas: &[&str]) -> View {
    let mut view = View::default();
    for replica in replicas {
        for cluster in ["milan", "turin"] {
            view.reaches(replica, cluster);
        }
    }

    view
}

#[test]
fn flows_to_a_mapped_address_that_has_changed_are_translated_anew() {
    in_netns(async || {
        let with = |ips: &[(&str, &str)]| {
            let ips = ips.iter();
            let mut fabric = fabric();
            fabric.ips = ips
                .map(|(from, to)| mapped(to, from, Target::Outside))
                .collect::<Vec<_>>()
                .into();
            fabric
        };
        let flows = || run("conntrack --dump 2>/dev/null || true");
        let flow = |from: &str, to: &str| {
            let nat = (from != to).then(|| format!("--dst-nat {to}"));
            let nat = nat.unwrap_or_default();
            format!(
                "conntrack --create --timeout 100 --proto udp --src 10.71.0.1 --dst {from} \
                 --sport 6093 --dport 6093 {nat} 2>&1"
            )
        };
        let mut node = Node::new();
        let before = with(&[("10.70.1.1", "192.0.2.1"), ("10.70.1.2", "192.0.2.2")]);
        node.converge(&before, &all_up()).await;
        for (from, to) in [("10.70.1.1", "192.0.2.1"), ("10.70.1.2", "192.0.2.2")] {
            run(&flow(from, to));
        }
        assert_eq!(flows().lines().count(), 2, "{}", flows());

        let remain = async |expected: &[&str]| {
            eventually("the flows with the present translation only", async || {
                let flows = flows();
                let has = |it: &&str| flows.contains(&format!("dst={it} "));
                flows.lines().count() == expected.len() && expected.iter().all(has)
            })
            .await;
        };

        // Of one change: the address of 10.70.1.1 is another one now.
        let changed = with(&[("10.70.1.1", "192.0.2.3"), ("10.70.1.2", "192.0.2.2")]);
        node.change(&before, &changed).await;
        remain(&["10.70.1.2"]).await;

        // The whole table is set again by another agent after a loss of the table. A flow of that time is not translated.
        run("nft delete table inet liqo");
        run(&flow("10.70.1.1", "10.70.1.1"));
        Node::new().converge(&changed, &all_up()).await;
        remain(&["10.70.1.2"]).await;

        // A clean-up ends with its process, which leaves nothing for later.
        cleanup::run(Settings::default()).await.unwrap();
        assert_eq!(flows(), "");
    });
}
