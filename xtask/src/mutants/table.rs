//! All mechanisms that a mutant build can disable, and for each mechanism the test that must then
//! fail.

use Suite::{Gateway, Kernel, Laboratory};

/// The test binary that contains the test of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suite {
    /// Integration tests in `tests/it`, which send traffic through gateway and route agent.
    Laboratory,
    /// Tests of the eBPF programs with `BPF_PROG_TEST_RUN`.
    Kernel,
    /// Unit tests of the gateway, for situations that the laboratory cannot create.
    Gateway,
}

/// A mechanism that can be disabled, and its test.
#[derive(Debug)]
pub(super) struct Mutant {
    /// The value of the environment variable `LIQO_MUTANT` that disables the mechanism.
    pub(super) name: &'static str,
    pub(super) suite: Suite,
    /// The full path of the test, as `cargo test` prints it.
    pub(super) test: &'static str,
}

/// The mechanisms of the eBPF programs, the gateway and the route agent.
pub(super) const MUTANTS: &[Mutant] = &[
    mutant(
        "source-check",
        Laboratory,
        "isolation::a_node_cannot_send_from_the_sources_of_other_networks",
    ),
    mutant(
        "outer-check",
        Laboratory,
        "isolation::vxlan_from_unknown_sources_is_dropped_and_counted_by_gateways",
    ),
    mutant(
        "mss-clamp",
        Laboratory,
        "sizes::tcp_segments_are_clamped_to_the_tunnel",
    ),
    mutant(
        "checksum-fix",
        Laboratory,
        "overlap::every_received_packet_has_correct_checksums",
    ),
    mutant(
        "icmp-quote",
        Laboratory,
        "sizes::an_icmp_error_of_a_closed_port_reaches_the_right_socket",
    ),
    mutant(
        "quote-check",
        Kernel,
        "tests::icmp::an_error_from_a_peer_about_a_packet_that_it_did_not_get_is_refused",
    ),
    mutant(
        "prefix-only",
        Kernel,
        "tests::tap::a_peer_sends_only_from_its_own_prefixes",
    ),
    mutant(
        "transit-drop",
        Laboratory,
        "transit::a_pod_without_ip_object_may_not_use_the_third_cluster",
    ),
    mutant(
        "heartbeat-age",
        Laboratory,
        "failover::flows_survive_a_gateway_that_hangs",
    ),
    mutant(
        "life-socket",
        Kernel,
        "tests::probe::a_dead_process_does_not_reply_from_the_moment_of_its_death",
    ),
    mutant(
        "replay-window",
        Laboratory,
        "hostile::replayed_datagrams_are_dropped_and_counted",
    ),
    mutant(
        "re-initiation",
        Laboratory,
        "failover::flows_survive_seven_kills_of_server_side_processes",
    ),
    mutant(
        "cookie",
        Laboratory,
        "hostile::a_flood_of_handshakes_causes_cookie_replies_and_costs_no_memory",
    ),
    mutant(
        "queue-bound",
        Gateway,
        "engine::queue::tests::one_peer_holds_no_more_than_its_share_and_keeps_the_newest",
    ),
    mutant(
        "allowed-source",
        Laboratory,
        "upstream::packets_from_outside_the_allowed_ips_are_dropped_and_counted",
    ),
    mutant(
        "slots",
        Laboratory,
        "failover::flows_are_spread_over_all_pairs_of_gateways",
    ),
    mutant(
        "mtu",
        Laboratory,
        "sizes::tcp_survives_a_smaller_mtu_without_icmp_errors",
    ),
    mutant(
        "unreachable-route",
        Laboratory,
        "isolation::without_a_live_gateway_packets_are_refused_and_none_leaks",
    ),
    mutant(
        "vxlan-filter",
        Laboratory,
        "isolation::vxlan_from_unknown_sources_is_dropped_and_counted_by_nodes",
    ),
    mutant(
        "reverse-path",
        Laboratory,
        "spoofing::a_pod_cannot_send_to_a_gateway_as_a_node",
    ),
    mutant(
        "untracked",
        Laboratory,
        "spoofing::a_service_does_not_lead_forged_packets_to_a_node_or_gateway",
    ),
    mutant(
        "tunnel-filter",
        Laboratory,
        "spoofing::a_peer_cannot_send_to_the_tunnels_of_a_node",
    ),
    mutant(
        "reapply",
        Laboratory,
        "restart::state_that_another_program_removes_is_restored_within_two_seconds",
    ),
    mutant(
        "no-masquerade",
        Laboratory,
        "overlap::each_cluster_remaps_the_other_to_a_prefix_of_its_own",
    ),
    mutant(
        "liveness",
        Laboratory,
        "failover::flows_survive_seven_kills_of_client_side_processes",
    ),
];

const fn mutant(name: &'static str, suite: Suite, test: &'static str) -> Mutant {
    Mutant { name, suite, test }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_mechanism_is_listed_once() {
        let names: BTreeSet<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();

        assert_eq!(names.len(), MUTANTS.len());
    }

    #[test]
    fn each_test_exists() {
        for mutant in MUTANTS {
            let folder = match mutant.suite {
                Laboratory => "tests/it",
                Kernel => "ebpf/src",
                Gateway => "gateway/src",
            };
            let mut parts: Vec<_> = mutant.test.split("::").collect();
            let function = parts.pop().unwrap();
            let file = crate::workspace::root().join(folder).join(parts.join("/"));
            // Unit tests may be in the file of the module that they test.
            let files = [
                file.with_extension("rs"),
                file.parent().unwrap().with_extension("rs"),
            ];

            let exists = files
                .iter()
                .filter_map(|file| std::fs::read_to_string(file).ok())
                .any(|text| text.contains(&format!("fn {function}()")));
            assert!(exists, "{}: there is no test {}", mutant.name, mutant.test);
        }
    }
}
