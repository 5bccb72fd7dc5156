//! Tests of the networking module on two real clusters with the same CIDRs. `liqoctl` connects
//! them.
//!
//! All tests share the clusters and their connection. `cargo xtask test --kubernetes` runs the
//! tests.

mod converged;
mod fixture;
mod flow;
mod foreign;
mod page;
mod rounds;

mod addresses;
mod api_server;
mod chart;
mod cluster_ips;
mod confinement;
mod connect;
mod deletion;
mod failover;
mod health;
mod input;
mod members;
mod multicluster;
mod node_loss;
mod objects;
mod offload;
mod peering;
mod removal;
mod scale;
mod security;
mod settings;
mod spoofing;
mod three;
mod upstream;

use libtest_mimic::Arguments;
use std::process::ExitCode;

/// The local cluster of `liqoctl network connect`, which is the client of the peering.
const ROME: &str = "it-rome";

/// The remote cluster of `liqoctl network connect`, which is the server of the peering.
const MILAN: &str = "it-milan";

/// A third cluster, which only some tests create.
const NAPLES: &str = "it-naples";

/// The tests of `cargo xtask test --kubernetes --quick`. These tests take six minutes.
const ESSENTIAL: &[&str] = &[
    "connect::every_pod_reaches_every_remote_pod",
    "connect::a_node_reaches_remote_pods",
    "connect::a_pod_reaches_remote_nodes_by_their_mapped_addresses",
    "connect::both_connections_are_connected_and_report_their_latency",
    "connect::liqoctl_reports_a_healthy_network",
    "addresses::a_pod_is_reached_by_its_mapped_address",
    "confinement::a_running_gateway_is_confined_and_keeps_only_net_admin",
    "failover::streams_survive_a_deleted_gateway_of_the_server",
    "chart::liqoctl_without_path_makes_a_release_that_helm_upgrades",
    "peering::a_peering_connects_pods_and_ends_without_a_trace",
    "offload::pods_of_both_clusters_share_services_configuration_and_tokens",
    "offload::logs_commands_files_and_ports_of_offloaded_pods",
    "offload::kills::a_restarted_virtual_kubelet_serves_the_next_pod_at_once",
    "removal::an_uninstall_leaves_nothing_and_an_install_restores_the_peering",
];

fn main() -> ExitCode {
    let mut suite = fixture::Suite::default();
    suite.essential(ESSENTIAL);
    connect::add(&mut suite);
    addresses::add(&mut suite);
    objects::add(&mut suite);
    confinement::add(&mut suite);
    settings::add(&mut suite);
    spoofing::add(&mut suite);
    upstream::add(&mut suite);
    scale::add(&mut suite);
    failover::add(&mut suite);
    node_loss::add(&mut suite);
    api_server::add(&mut suite);
    members::add(&mut suite);
    three::add(&mut suite);
    cluster_ips::add(&mut suite);
    deletion::add(&mut suite);
    chart::add(&mut suite);
    health::add(&mut suite);
    input::add(&mut suite);
    security::add(&mut suite);
    removal::add(&mut suite);
    peering::add(&mut suite);
    offload::add(&mut suite);
    multicluster::add(&mut suite);

    let code = suite.run(env!("CARGO_BIN_EXE_cluster"), Arguments::from_args());
    rounds::print();
    code
}
