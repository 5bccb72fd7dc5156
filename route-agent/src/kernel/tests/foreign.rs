//! Tests that the agent does not change objects without its marks, which the documentation of
//! [`crate::kernel`] lists.

use super::*;

#[test]
fn objects_without_our_marks_survive_start_change_and_clean_up() {
    in_netns(async || {
        make_foreign_state();
        let before = everything();
        let mut node = Node::new();

        node.converge(&fabric(), &all_up()).await;
        node.converge(&fabric(), &View::default()).await;
        drop(node);
        let removed = cleanup::run(Settings::default()).await.unwrap();

        assert!(removed > 0);
        assert_eq!(everything(), before);
        assert_eq!(cleanup::run(Settings::default()).await.unwrap(), 0);
    });
}

#[test]
fn a_foreign_device_with_our_name_is_an_error_and_stays() {
    for device in [
        "type veth",
        "type vxlan id 5 dstport 4789",
        "type vxlan external dstport 4789",
    ] {
        in_netns(async move || {
            run(&format!("ip link add liqo-overlay {device}"));
            let before = everything();
            let mut kernel = Kernel::open(Settings::default()).unwrap();

            let error = kernel.observe().await.unwrap_err();
            let errors = cleanup::run(Settings::default()).await.unwrap_err();

            assert!(matches!(error, Error::ForeignDevice { .. }), "{error}");
            assert!(error.to_string().contains("liqo-overlay"));
            assert_eq!(errors.len(), 1);
            assert_eq!(everything(), before);
        });
    }
}

#[test]
fn the_error_names_the_port_that_another_vxlan_device_uses() {
    in_netns(async || {
        run("ip link add other type vxlan external dstport 6091; ip link set other up");
        let mut node = Node::new();
        let state = node.kernel.observe().await.unwrap();
        let device = crate::state::Device {
            port: 6091,
            mac: node.settings.mac(),
            mtu_bytes: 1500,
            ready: true,
        };

        let created = node.kernel.apply(&Op::CreateDevice(device), &state).await;

        let error = created.unwrap_err().to_string();
        assert!(
            error.contains("UDP port 6091") && error.contains("--overlay-port"),
            "{error}"
        );
    });
}

#[test]
fn a_foreign_nexthop_with_our_id_is_an_error_and_stays() {
    in_netns(async || {
        run(
            "ip link add out type veth peer name beyond; ip link set out up; ip link set beyond up
             ip nexthop add id 1819344897 dev out protocol static",
        );
        let mut node = Node::new();
        let state = node.kernel.observe().await.unwrap();
        assert!(state.hops.is_empty());
        node.kernel
            .apply(
                &Op::CreateDevice(crate::state::Device {
                    port: 6091,
                    mac: node.settings.mac(),
                    mtu_bytes: 1500,
                    ready: true,
                }),
                &state,
            )
            .await
            .unwrap();

        let hop = crate::state::Hop {
            src: ip("172.16.0.1"),
            dst: ip("172.16.0.11"),
            vni: 1,
        };
        let refused = node
            .kernel
            .apply(&Op::SetHop(1819344897, hop), &state)
            .await;

        let error = refused.unwrap_err().to_string();
        assert!(
            error.contains("id 1819344897") && error.contains("--nexthop-base"),
            "{error}"
        );
        assert!(run("ip nexthop").contains("id 1819344897 dev out"));
    });
}

/// Creates objects of every kind that the agent uses. Each object lacks one of the agent's marks.
fn make_foreign_state() {
    run("ip link add liqo-foreign type veth peer name beyond
         ip link set liqo-foreign up; ip link set beyond up
         ip link add flannel type vxlan id 7 dstport 4789; ip link set flannel up
         ip address add 192.0.2.1/24 dev liqo-foreign
         ip route add 10.245.0.0/16 via 192.0.2.2
         ip route add 198.51.100.0/24 via 192.0.2.2 protocol 108
         ip route add unreachable 10.71.0.0/16 table 27762 protocol 108
         ip route add 203.0.113.0/24 via 192.0.2.2 table 27761
         ip rule add priority 27761 to 203.0.113.0/24 lookup 27762
         ip rule add priority 27760 lookup 27761 protocol 108
         ip nexthop add id 1819344900 dev liqo-foreign protocol static
         ip nexthop add id 77 dev liqo-foreign protocol 108
         nft add table ip liqo
         nft add chain ip liqo input '{ type filter hook input priority 0; }'
         nft add rule ip liqo input counter
         nft add table inet other
         nft add set inet other gateways '{ type ipv4_addr; }'
         nft add element inet other gateways '{ 192.0.2.3 }'");
}

/// Returns all objects in the network namespace of the kinds that the agent changes.
fn everything() -> String {
    // `ip` shows `tentative` until duplicate address detection ends, about a second after creation.
    run("ip -d link show | sed 's/ state [A-Z]*//'
         ip address show | grep inet | sed 's/ tentative//'
         ip route show table all | grep -v fe80; ip rule; ip nexthop; nft list ruleset")
}
