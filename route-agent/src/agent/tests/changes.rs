//! What the agent does when replicas, kernel or file change.

use super::*;
use std::process::Stdio;

#[test]
fn a_silent_replica_is_left_and_the_last_one_leaves_the_cluster_unreachable() {
    in_netns(async || {
        let gateways = [Gateway::new(1), Gateway::new(2)];
        let agent = Running::start().await;
        agent.reaches(&["gw-1", "gw-2"]).await;

        gateways[0].behave(|it| it.answers = false);
        agent.reaches(&["gw-2"]).await;
        assert!(run("ip route get 10.245.1.10").contains("172.16.0.12"));

        gateways[1].behave(|it| it.answers = false);
        agent.reaches(&[]).await;
        let way = run("ip route get 10.245.1.10 2>&1 || true");
        assert!(way.contains("No route to host"), "{way}");

        gateways[0].behave(|it| it.answers = true);
        agent.reaches(&["gw-1"]).await;
    });
}

#[test]
fn a_silent_replica_is_left_although_nft_fails() {
    in_netns(async || {
        let gateways = [Gateway::new(1), Gateway::new(2)];
        let agent = Running::start().await;
        agent.reaches(&["gw-1", "gw-2"]).await;
        let _owned = Owned::new();
        agent
            .eventually("told of the filter", |status| status.error.is_some())
            .await;

        gateways[1].behave(|it| it.answers = false);

        agent.reaches(&["gw-1"]).await;
        assert!(!agent.status.read().converged);
    });
}

/// Our table in the hands of another process, so that nobody else can change it.
struct Owned(std::process::Child);

impl Owned {
    fn new() -> Self {
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
fn a_replica_is_used_for_the_clusters_it_reaches_only() {
    in_netns(async || {
        let gateways = [Gateway::new(1), Gateway::new(2)];
        gateways[0].behave(|it| it.up = vec![false]);
        let agent = Running::start().await;

        agent.reaches(&["gw-2"]).await;

        agent
            .eventually("saw the first replica live", |it| it.replicas[0].alive)
            .await;
        agent.reaches(&["gw-2"]).await;
    });
}

#[test]
fn what_somebody_else_changes_is_put_back_soon_and_once() {
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

            // How soon is for the laboratory to prove: here other tests keep the machine busy.
            eventually(&format!("repaired: {damage}"), async || {
                kernel_state() == intact
            })
            .await;

            let expected = u64::try_from(times).unwrap() + 1;
            agent
                .eventually("counted it", |it| it.reapplies == expected)
                .await;
        }
    });
}

#[test]
fn its_own_changes_keep_nobody_busy() {
    in_netns(async || {
        let _gateway = Gateway::new(1);
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;

        // Several times the delay between an announcement and the look that follows.
        tokio::time::sleep(DEBOUNCE * 8).await;

        assert_eq!(agent.status.read().reapplies, 0);
    });
}

#[test]
fn an_invalid_file_changes_nothing_and_is_told() {
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
                .eventually(&format!("told of {word}"), |status| {
                    let error = status.config.error.as_ref();
                    !status.config.valid && error.is_some_and(|it| it.contains(word))
                })
                .await;
            assert_eq!(kernel_state(), intact);
        }

        agent.directory.write(&fabric_file());
        agent
            .eventually("was content again", |status| {
                status.config.valid && status.config.error.is_none()
            })
            .await;
    });
}

#[test]
fn a_replica_joins_and_leaves_by_the_file() {
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
fn a_node_moves_to_another_external_address() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;
        let before = agent.status.read().external_ip.unwrap().to_string();
        assert_eq!(before, "10.70.0.1");

        // The stand-in reaches nodes at this address, too.
        let moved = fabric_file().replace("\"10.70.0.1\"", "\"10.70.0.9\"");
        agent.directory.write(&moved);
        agent
            .eventually("moved", |it| {
                it.external_ip
                    .is_some_and(|ip| ip.to_string() == "10.70.0.9")
            })
            .await;
        let answered = agent.status.read().replicas[0].answered;
        agent
            .eventually("was answered there", |it| {
                it.replicas[0].answered > answered + 1
            })
            .await;

        assert!(!run("ip address show dev liqo-overlay").contains(&before));
        drop(gateway);
    });
}

#[test]
fn a_smaller_underlay_makes_smaller_routes() {
    in_netns(async || {
        let _gateway = Gateway::new(1);
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;

        run("ip link set gw1 mtu 1300");

        agent
            .eventually("measured it", |it| it.peers[0].mtu_bytes == Some(1250))
            .await;
        assert!(run("ip route get 10.245.1.10").contains("mtu 1250"));
        assert_eq!(agent.status.read().reapplies, 0);
    });
}

#[test]
fn a_machine_that_is_not_the_node_is_warned_of() {
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
fn an_agent_that_cannot_start_says_why() {
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
    started.err().expect("it started")
}

/// Our state but for what changes by itself.
fn kernel_state() -> String {
    run("set +e; ip rule; ip route show table 27761 2>/dev/null; ip nexthop; nft list table inet liqo 2>/dev/null
         ip -o link show liqo-overlay 2>/dev/null | cut -d: -f3-
         ip -o address show dev liqo-overlay 2>/dev/null | cut -d' ' -f2-; true")
}
