//! Tests that change the replicas, the kernel's state or the file while the agent runs.

use super::super::schedule::DEBOUNCE;
use super::*;
use std::process::Stdio;

#[test]
fn a_replica_without_replies_gets_no_packets_and_without_replicas_a_cluster_is_unreachable() {
    in_netns(async || {
        let gateways = [Gateway::new(1), Gateway::new(2)];
        let agent = Running::start().await;
        agent.reaches(&["gw-1", "gw-2"]).await;

        gateways[0].behave(|it| it.replies = false);
        agent.reaches(&["gw-2"]).await;
        assert!(run("ip route get 10.245.1.10").contains("172.16.0.12"));

        gateways[1].behave(|it| it.replies = false);
        agent.reaches(&[]).await;
        let route = run("ip route get 10.245.1.10 2>&1 || true");
        assert!(route.contains("No route to host"), "{route}");

        gateways[0].behave(|it| it.replies = true);
        agent.reaches(&["gw-1"]).await;
    });
}

#[test]
fn a_replica_without_replies_gets_no_packets_even_if_nft_fails() {
    in_netns(async || {
        let gateways = [Gateway::new(1), Gateway::new(2)];
        let agent = Running::start().await;
        agent.reaches(&["gw-1", "gw-2"]).await;
        let _owned = Owned::new();
        agent
            .eventually("reported the failure", |status| status.error.is_some())
            .await;

        gateways[1].behave(|it| it.replies = false);

        agent.reaches(&["gw-1"]).await;
        assert!(!agent.status.read().converged);
    });
}

/// A process that owns the nft table `inet liqo`, so that the agent's `nft` fails.
pub(super) struct Owned(std::process::Child);

impl Owned {
    pub(super) fn new() -> Self {
        use std::io::Write as _;
        let mut nft = std::process::Command::new("nft");
        let mut nft = nft.arg("-i").stdin(Stdio::piped()).spawn().unwrap();
        let stdin = nft.stdin.as_mut().unwrap();
        stdin
            .write_all(b"delete table inet liqo; add table inet liqo { flags owner; }\n")
            .unwrap();

        Self(nft)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_replica_is_used_only_for_the_clusters_that_it_reaches() {
    in_netns(async || {
        let gateways = [Gateway::new(1), Gateway::new(2)];
        gateways[0].behave(|it| it.up = vec![false]);
        let agent = Running::start().await;

        agent.reaches(&["gw-2"]).await;

        agent
            .eventually("got a reply of the first replica", |it| {
                it.replicas[0].alive
            })
            .await;
        agent.reaches(&["gw-2"]).await;
    });
}

#[test]
fn a_change_by_another_program_is_repaired_once() {
    in_netns(async || {
        let _gateways = [Gateway::new(1), Gateway::new(2)];
        let agent = Running::start().await;
        agent.reaches(&["gw-1", "gw-2"]).await;
        let intact = kernel_state();

        for (times, damage) in [
            "ip rule delete priority 27761",
            "ip route delete 10.245.0.0/16 table 27761 metric 0",
            "ip nexthop flush",
            "ip address flush dev liqo-overlay",
            "ip link set liqo-overlay down",
            "ip link delete liqo-overlay",
            "nft delete table inet liqo",
            "nft flush chain inet liqo source",
        ]
        .into_iter()
        .enumerate()
        {
            run(damage);

            // This test does not limit the duration of a repair. Unit tests run in parallel, so the
            // limit would fail on a loaded machine. The laboratory tests measure the duration.
            eventually(&format!("repaired: {damage}"), async || {
                kernel_state() == intact
            })
            .await;

            let expected = u64::try_from(times).unwrap() + 1;
            agent
                .eventually("counted the repair", |it| it.reapplies == expected)
                .await;
        }
    });
}

#[test]
fn its_own_changes_cause_no_repair() {
    in_netns(async || {
        let _gateway = Gateway::new(1);
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;

        // If the agent took its own changes for damage, a repair would start within this time.
        tokio::time::sleep(DEBOUNCE * 8).await;

        assert_eq!(agent.status.read().reapplies, 0);
    });
}

#[test]
fn an_invalid_file_changes_nothing_and_is_reported() {
    in_netns(async || {
        let _gateway = Gateway::new(1);
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;
        let intact = kernel_state();

        for (content, word) in [
            ("kind: [", "document 1"),
            ("", "not valid"),
            (fabric_file().replace("rome-1", "rome-9").as_str(), "rome-1"),
        ] {
            agent.directory.write(content);
            agent
                .eventually(&format!("reported {word}"), |status| {
                    let error = status.config.error.as_ref();
                    !status.config.valid && error.is_some_and(|it| it.contains(word))
                })
                .await;
            assert_eq!(kernel_state(), intact);
        }

        agent.directory.write(&fabric_file());
        agent
            .eventually("accepted the file", |status| {
                status.config.valid && status.config.error.is_none()
            })
            .await;
    });
}

#[test]
fn a_replica_is_added_and_removed_in_the_file() {
    in_netns(async || {
        let _gateways = [Gateway::new(1), Gateway::new(2)];
        let alone = fabric_file().replace("172.16.0.12", "172.16.0.13");
        let agent = Running::start_with(Directory::new(&alone)).await;
        agent.reaches(&["gw-1"]).await;

        agent.directory.write(&fabric_file());
        agent.reaches(&["gw-1", "gw-2"]).await;

        agent.directory.write(&alone);
        agent.reaches(&["gw-1"]).await;
    });
}

#[test]
fn a_prefix_in_the_file_changes_by_a_part_of_the_plan() {
    in_netns(async || {
        let _gateway = Gateway::new(1);
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;
        let before = kernel_state();
        let rules = || run("nft --handle list chain inet liqo source");
        let old_rules = rules();
        let has = |status: &Status, cidr: &str| {
            let peer = &status.peers[0];
            peer.cidrs[0] == cidr && peer.gateways == ["gw-1"]
        };

        let moved = fabric_file().replace("10.245.0.0/16", "10.80.0.0/16");
        agent.directory.write(&moved);
        agent
            .eventually("moved the prefix", |it| has(it, "10.80.0.0/16"))
            .await;
        assert!(run("ip route get 10.80.1.10").contains("172.16.0.11"));
        assert!(run("nft list set inet liqo remote").contains("10.80.0.0/16"));
        assert_eq!(rules(), old_rules, "a plan of the whole replaces the rules");

        agent.directory.write(&fabric_file());
        agent
            .eventually("moved it back", |it| has(it, "10.245.0.0/16"))
            .await;
        assert_eq!(kernel_state(), before);
        assert_eq!(agent.status.read().reapplies, 0);
    });
}

#[test]
fn the_external_address_of_a_node_changes() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;
        let before = agent.status.read().external_ip.unwrap().to_string();
        assert_eq!(before, "10.70.0.1");

        // The simulated gateway also has a route and a neighbor entry for the new address.
        let moved = fabric_file().replace("\"10.70.0.1\"", "\"10.70.0.9\"");
        agent.directory.write(&moved);
        agent
            .eventually("adopted the address", |it| {
                it.external_ip
                    .is_some_and(|ip| ip.to_string() == "10.70.0.9")
            })
            .await;
        let answered = agent.status.read().replicas[0].answered;
        agent
            .eventually("got replies there", |it| {
                it.replicas[0].answered > answered + 1
            })
            .await;

        assert!(!run("ip address show dev liqo-overlay").contains(&before));
        drop(gateway);
    });
}

#[test]
fn a_smaller_mtu_of_the_underlay_reduces_that_of_the_routes() {
    in_netns(async || {
        let _gateway = Gateway::new(1);
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;

        run("ip link set gw1 mtu 1300");

        agent
            .eventually("reduced the MTU", |it| it.peers[0].mtu_bytes == Some(1250))
            .await;
        assert!(run("ip route get 10.245.1.10").contains("mtu 1250"));
        assert_eq!(agent.status.read().reapplies, 0);
    });
}

#[test]
fn the_status_warns_of_a_machine_that_is_not_the_node() {
    in_netns(async || {
        let agent = Running::start().await;

        let warnings = agent.status.read().warnings.join(" ");
        assert!(
            warnings.contains("172.16.0.1, the InternalIP of rome-1"),
            "{warnings}"
        );
        assert!(warnings.contains("ip_forward is 0"), "{warnings}");
    });
}

#[test]
fn an_error_at_the_start_names_its_cause() {
    in_netns(async || {
        let cases = [
            (fabric_file().replace("rome-1", "rome-7"), "rome-2, rome-7"),
            ("kind: Nonsense\napiVersion: v1\n".to_owned(), "Nonsense"),
        ];
        for (content, word) in cases {
            let directory = Directory::new(&content);
            let error = start_fails(&directory).await;
            assert!(error.to_string().contains(word), "{error}");
        }

        let directory = Directory::new(&fabric_file());
        run("ip link add liqo-overlay type veth");
        let error = start_fails(&directory).await;
        assert!(
            error.to_string().contains("veth device named liqo-overlay"),
            "{error}"
        );
    });
}

async fn start_fails(directory: &Directory) -> Error {
    let started = Agent::start(options(directory), Shared::default()).await;
    started.err().expect("the agent started")
}

/// Returns the agent's kernel objects without interface indices, which change if the overlay device
/// is recreated.
fn kernel_state() -> String {
    run("set +e; ip rule; ip route show table 27761 2>/dev/null; ip nexthop; nft list table inet liqo 2>/dev/null
         ip -o link show liqo-overlay 2>/dev/null | cut -d: -f3-
         ip -o address show dev liqo-overlay 2>/dev/null | cut -d' ' -f2-; true")
}
