//! Tests that apply one change of the file, without the observation of the kernel's state that later
//! repairs what a wrong change has missed. Each test runs in a new network namespace.

use super::*;
use crate::testing::gateway::Gateway;

#[test]
fn a_moved_prefix_is_followed_by_status_echo_checks_and_kernel() {
    in_netns(async || {
        let _gateway = Gateway::new(1);
        let (mut agent, directory) = reaching_agent().await;

        directory.write(&fabric_file().replace("10.245.0.0/16", "10.80.0.0/16"));
        agent.reload().await;

        let moved = crate::testing::net("10.80.0.0/16");
        assert_eq!(agent.status.read().peers[0].cidrs[0], moved.to_string());
        assert!(agent.remote.contains(&moved));
        assert!(agent.state.routes.contains_key(&moved));
        assert_follows_plan(&agent);
    });
}

#[test]
fn after_a_removal_no_replica_reaches_the_cluster() {
    in_netns(async || {
        let _gateway = Gateway::new(1);
        let (mut agent, directory) = reaching_agent().await;

        let file = fabric_file();
        let objects = file
            .split("---\n")
            .filter(|it| !it.contains("cluster-id: milan"));
        directory.write(&objects.collect::<Vec<_>>().join("---\n"));
        agent.reload().await;

        assert!(agent.fabric.peers.is_empty());
        assert!(agent.liveness.view().replicas_of("milan").is_empty());
        assert_follows_plan(&agent);
    });
}

#[test]
fn a_node_behind_another_interface_changes_the_filter() {
    in_netns(async || {
        let _gateway = Gateway::new(1);
        let (mut agent, directory) = reaching_agent().await;
        run(
            "ip link add un2 type veth peer name beyond; ip link set un2 up; ip link set beyond up
             ip address add 172.20.0.1/24 dev un2",
        );

        let node = "apiVersion: v1\nkind: Node\nmetadata: {name: rome-3}\n\
            status:\n  addresses: [{type: InternalIP, address: 172.20.0.2}]\n---\n";
        let objects = control_fabric::parse(&(node.to_owned() + &fabric_file()));
        let mut objects = objects.unwrap();
        control_fabric::plan(&mut objects).unwrap();
        directory.write(&objects.to_yaml());
        agent.reload().await;

        assert!(agent.underlay.interfaces.contains("un2"));
        assert_follows_plan(&agent);
    });
}

#[test]
fn after_a_failure_of_nft_routes_change_and_the_next_change_is_planned_whole() {
    in_netns(async || {
        let _gateway = Gateway::new(1);
        let (mut agent, directory) = reaching_agent().await;
        let owned = super::changes::Owned::new();
        eventually("owned the table", async || {
            run("nft list table inet liqo 2>&1 || true").contains("flags owner")
        })
        .await;

        directory.write(&fabric_file().replace("10.245.0.0/16", "10.80.0.0/16"));
        agent.reload().await;

        let moved = crate::testing::net("10.80.0.0/16");
        assert!(agent.state.routes.contains_key(&moved));
        assert!(agent.schedule.due().is_some() && !agent.is_converged);
        assert!(!agent.status.read().converged);
        drop(owned);
        agent.repair().await;
        assert!(agent.is_converged);
        assert_follows_plan(&agent);
    });
}

/// Starts an agent for which the replica gw-1 reaches all clusters, without its event loop.
async fn reaching_agent() -> (Agent, Directory) {
    let directory = Directory::new(&fabric_file());
    let started = Agent::start(options(&directory), Shared::default()).await;
    let mut agent = started.unwrap();
    let mut view = View::default();
    view.reaches("gw-1", "milan");
    agent.liveness.adopt(&view);
    agent.converge().await.unwrap();
    assert!(agent.is_converged && !agent.state.groups.is_empty());

    (agent, directory)
}

/// Checks that the agent has nothing left to change.
fn assert_follows_plan(agent: &Agent) {
    let plan = agent.plan(&agent.liveness.view()).unwrap();

    assert_eq!(diff(&agent.state, &plan.state), []);
}
