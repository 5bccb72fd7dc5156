//! Tests that need a real API server, but neither nodes nor pods.
//!
//! All tests share a [control plane](kubernetes_lab::control_plane) with the CRDs, the RBAC rules and
//! the admission policies of Liqo's chart. Each test has namespaces of its own. `cargo xtask test
//! --kubernetes` runs the tests.

mod fixture;
mod manager;

mod allocations;
mod authentication;
mod bad_input;
mod changes;
mod conflicts;
mod endings;
mod handover;
mod history;
mod identities;
mod lifecycle;
mod liqoctl;
mod manifests;
mod multicluster;
mod namespaces;
mod offline;
mod offload;
mod offloading;
mod other_kinds;
mod ownership;
mod peering;
mod policies;
mod proxy;
mod recovery;
mod reflection;
mod refusals;
mod rights;
mod runtime;
mod scale;
mod terminal;
mod topologies;
mod traces;
mod upgrade;
mod upstream;
mod webhooks;

use kubernetes_lab::control_plane;
use libtest_mimic::Arguments;
use std::process::ExitCode;

/// The tests that `cargo xtask test --kubernetes --quick` leaves out: they take long, or compare
/// durations.
const SLOW: &[&str] = &[
    "bad_input::wrong_objects_are_reported_and_other_tenants_are_untouched",
    "conflicts::other_owners_at_the_provider_keep_their_objects_and_fields",
    "endings::a_cluster_that_was_installed_again_is_left_and_peered_again",
    "endings::a_dead_provider_that_returns_loses_the_objects_that_were_deleted_meanwhile",
    "endings::a_provider_that_is_gone_is_left_without_force",
    "handover::a_killed_holder_is_replaced_when_its_lease_expires",
    "handover::a_removed_virtual_node_leaves_the_objects_and_pods_of_the_other_one",
    "handover::a_stopped_holder_is_replaced_at_once_and_stands_by_when_it_is_back",
    "liqoctl::purge::a_purge_waits_for_a_namespace_that_ends_slowly_and_names_it",
    "manifests::plain_manifests_peer_clusters_in_any_order",
    "multicluster::the_cases_of_the_conformance_suite_pass",
    "namespaces::a_withdrawn_namespace_outlasts_the_objects_of_its_consumer",
    "namespaces::unpeer_ends_the_namespaces_of_the_consumer",
    "other_kinds::a_custom_resource_is_reflected_as_both_clusters_permit",
    "other_kinds::a_kind_that_one_consumer_is_granted_is_reflected_again_after_it_vanished",
    "peering::interrupted::a_manager_that_is_killed_after_each_of_its_writes_peers_and_parts",
    "peering::interrupted::a_provider_that_is_away_during_each_step_delays_it_only",
    "peering::renewal::credentials_of_four_minutes_are_renewed_without_a_failed_request",
    "recovery::a_cut_of_five_minutes_leaves_both_clusters_equal",
    "recovery::a_restart_during_changes_leaves_both_clusters_equal",
    "recovery::random_changes_and_faults_leave_both_clusters_equal",
    "refusals::a_kubeconfig_that_is_missing_or_of_another_cluster_is_named",
    "refusals::pods_and_namespaces_that_cannot_be_offloaded_say_why",
    "refusals::pods_that_a_provider_refuses_say_why_until_they_run",
    "runtime::admission::a_slow_webhook_delays_no_other_writes",
    "runtime::credentials::replaced_credentials_cause_no_list_and_lose_no_change",
    "runtime::failures::a_cut_network_loses_no_change",
    "runtime::failures::a_restored_snapshot_is_listed_again_by_quiet_watches_without_a_lease",
    "runtime::leader::a_standby_writes_as_soon_as_the_lease_of_a_killed_leader_has_expired",
    "scale::a_hundred_consumers_cost_no_more_each_than_ten",
    "scale::a_hundred_providers_are_idle",
    "scale::authentication_without_peers_causes_no_requests",
    "terminal::unpeer_asks_on_a_terminal_only_and_only_if_namespaces_are_offloaded",
    "topologies::a_tenant_namespace_that_is_deleted_by_hand_ends_both_directions_only_there",
    "topologies::clusters_peer_in_each_topology_and_part_without_a_trace",
    "upstream::a_consumer_that_peers_again_changes_no_decision_of_the_provider",
    "upstream::offloading::upstreams_virtual_kubelet_runs_pods_at_a_provider",
    "upstream::upstreams_liqoctl_peers_and_parts_repeatedly",
];

fn main() -> ExitCode {
    // A replica stays in the namespaces of the tests that started it.
    let ready = runtime::replica::run_if_started_as_replica().and_then(|has_run| match has_run {
        true => std::process::exit(0),
        false => control_plane::isolate(),
    });
    if let Err(error) = ready {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    let mut suite = fixture::Suite::default();
    suite.slow(SLOW);
    ownership::add(&mut suite);
    lifecycle::add(&mut suite);
    identities::add(&mut suite);
    webhooks::add(&mut suite);
    rights::add(&mut suite);
    runtime::add(&mut suite);
    allocations::add(&mut suite);
    authentication::add(&mut suite);
    offload::add(&mut suite);
    offloading::add(&mut suite);
    changes::add(&mut suite);
    conflicts::add(&mut suite);
    handover::add(&mut suite);
    multicluster::add(&mut suite);
    other_kinds::add(&mut suite);
    peering::add(&mut suite);
    policies::add(&mut suite);
    proxy::add(&mut suite);
    recovery::add(&mut suite);
    reflection::add(&mut suite);
    refusals::add(&mut suite);
    liqoctl::add(&mut suite);
    topologies::add(&mut suite);
    manifests::add(&mut suite);
    namespaces::add(&mut suite);
    offline::add(&mut suite);
    bad_input::add(&mut suite);
    endings::add(&mut suite);
    terminal::add(&mut suite);
    history::add(&mut suite);
    upgrade::add(&mut suite);
    upstream::add(&mut suite);
    scale::add(&mut suite);

    suite.run(env!("CARGO_BIN_EXE_cluster"), Arguments::from_args())
}
