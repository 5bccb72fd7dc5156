//! The networking module on real clusters: two clusters with the same networks, connected by
//! `liqoctl`, whose pods reach each other.
//!
//! All tests share the two clusters and their connection; run it with `cargo xtask test
//! --kubernetes`.

mod fixture;
mod flow;
mod foreign;
mod rounds;
mod whole;

mod addresses;
mod api_server;
mod chart;
mod connect;
mod deletion;
mod failover;
mod health;
mod input;
mod members;
mod node_loss;
mod objects;
mod removal;
mod scale;
mod settings;
mod three;
mod upstream;

use libtest_mimic::Arguments;
use std::process::ExitCode;

/// The cluster on which `liqoctl network connect` runs: the client.
const ROME: &str = "it-rome";

/// Its remote cluster: the server.
const MILAN: &str = "it-milan";

/// A third one, which only some tests make.
const NAPLES: &str = "it-naples";

/// What every change must pass, in two minutes: `cargo xtask test --kubernetes --quick`.
const ESSENTIAL: &[&str] = &[
    "connect::every_pod_reaches_every_remote_pod",
    "connect::a_node_reaches_remote_pods",
    "connect::a_pod_reaches_remote_nodes_by_their_mapped_addresses",
    "connect::both_connections_are_connected_and_tell_how_long_an_answer_takes",
    "connect::liqoctl_finds_the_network_in_order",
    "addresses::a_pod_is_reached_by_its_mapped_address",
    "failover::streams_survive_a_deleted_gateway_of_the_server",
    "failover::a_route_agents_restart_loses_nothing",
    "chart::liqoctl_without_path_makes_a_release_that_helm_upgrades",
    "removal::an_uninstall_leaves_nothing_and_an_install_brings_it_back",
];

fn main() -> ExitCode {
    let mut suite = fixture::Suite::default();
    suite.essential(ESSENTIAL);
    connect::add(&mut suite);
    addresses::add(&mut suite);
    objects::add(&mut suite);
    settings::add(&mut suite);
    upstream::add(&mut suite);
    scale::add(&mut suite);
    failover::add(&mut suite);
    node_loss::add(&mut suite);
    api_server::add(&mut suite);
    members::add(&mut suite);
    three::add(&mut suite);
    deletion::add(&mut suite);
    chart::add(&mut suite);
    health::add(&mut suite);
    input::add(&mut suite);
    removal::add(&mut suite);

    let code = suite.run(env!("CARGO_BIN_EXE_cluster"), Arguments::from_args());
    rounds::print();
    code
}
