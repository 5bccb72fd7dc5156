//! Tests when the state of a connection changes after a loss.

use super::*;

/// Returns a pair that has been connected, without traffic, until `phase` after one of its ticks.
fn idle_pair(latency: Duration, phase: Duration) -> Network {
    let mut network = Network::pair();
    network.latency = latency;
    network.run(secs(10) + phase);
    for host in [0, 1] {
        network.events(host);
        assert!(is_connected(&network, host));
    }

    network
}

fn is_connected(network: &Network, host: usize) -> bool {
    network.peer(host).connection == ConnectionState::Connected
}

/// The PINGs of an idle session are 500 ms apart, so a loss may follow a PONG by that time.
fn phases() -> impl Iterator<Item = Duration> {
    (0..500).step_by(20).map(ms)
}

#[test]
fn the_loss_of_an_idle_peer_is_an_error_within_1600_ms() {
    for (latency, limit) in [(ms(1), ms(1_360)), (ms(100), ms(1_600))] {
        for (phase, host) in phases().flat_map(|phase| [(phase, 0), (phase, 1)]) {
            let mut network = idle_pair(latency, phase);
            network.lose_every = Some(1);

            let took = network.run_until(secs(3), |network| !is_connected(network, host));

            let at = format!("host {host}, latency {latency:?}, cut after {phase:?}: {took:?}");
            assert!(took <= limit, "{at}");
        }
    }
}

#[test]
fn an_idle_connection_survives_a_short_cut() {
    for phase in phases() {
        let mut network = idle_pair(ms(1), phase);

        network.lose_every = Some(1);
        network.run(ms(700));
        network.lose_every = None;
        network.run(secs(3));

        for host in [0, 1] {
            let error = Event::Connection {
                peer: PEER,
                state: ConnectionState::Error,
                latency: None,
            };
            assert!(
                !network.events(host).contains(&error),
                "host {host}, cut after {phase:?}"
            );
        }
    }
}
