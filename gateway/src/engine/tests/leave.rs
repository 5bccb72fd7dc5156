use super::*;

fn network() -> (Network, [usize; 2], [usize; 2]) {
    let mut network = Network::new();
    let servers = [network.host("server-0"), network.host("server-1")];
    let clients = [network.host("client-0"), network.host("client-1")];
    let address = network.balancer(&servers);
    for server in servers {
        network.set_replicas(server, &["server-0", "server-1"]);
        network.set_peers(server, vec![serving()]);
    }
    for client in clients {
        network.set_replicas(client, &["client-0", "client-1"]);
        network.set_peers(client, vec![calling(&[address])]);
    }
    network.run(secs(15));
    (network, servers, clients)
}

/// Stops the host `leaving` gracefully while all of `senders` send to the other cluster. Returns
/// the numbers of packets sent and received.
fn leave(
    network: &mut Network,
    leaving: usize,
    senders: &[usize],
    receivers: &[usize],
) -> (usize, usize) {
    let (mut sent, mut arrived, mut left) = (0, 0, false);
    let start = network.now;
    while network.now < start + secs(12) {
        if !left && network.now >= start + secs(1) {
            left = true;
            let now = network.now;
            network.hosts[leaving].engine.leave(now);
        }
        let is_drained = network.hosts[leaving].events.contains(&Event::Drained);
        if is_drained {
            network.hosts[leaving].alive = false;
        }
        for sender in senders.iter().filter(|s| **s != leaving) {
            for flow in 0..4 {
                network.packet(*sender, &inner_packet(b"x"), flow * 0x5bd1);
                sent += 1;
            }
        }
        network.run(ms(10));
        for receiver in receivers {
            arrived += network.payloads(*receiver).len();
        }
    }
    assert!(!network.hosts[leaving].alive, "it left");
    (sent, arrived)
}

#[test]
fn a_server_replica_leaves_without_any_loss() {
    let (mut network, servers, clients) = network();

    let (sent, arrived) = leave(&mut network, servers[0], &clients, &servers);

    assert!(sent > 5_000);
    assert_eq!(arrived, sent);
}

#[test]
fn a_client_replica_leaves_without_any_loss() {
    let (mut network, servers, clients) = network();

    let (sent, arrived) = leave(&mut network, clients[1], &servers, &clients);

    assert_eq!(arrived, sent);
}

#[test]
fn leaving_ends_quickly_if_peers_have_other_replicas() {
    let (mut network, servers, _) = network();
    let now = network.now;

    network.hosts[servers[0]].engine.leave(now);
    let took = network.run_until(secs(3), |network| {
        network.hosts[servers[0]].events.contains(&Event::Drained)
    });

    assert!(took <= secs(1), "{took:?}");
    network.run(secs(10));
    let drained = |event: &&Event| **event == Event::Drained;
    let events = network.events(servers[0]);
    assert_eq!(events.iter().filter(drained).count(), 1);
}

#[test]
fn the_last_replica_carries_traffic_while_it_leaves_for_a_limited_time() {
    let mut network = Network::pair();
    network.run(secs(5));
    let now = network.now;
    network.hosts[0].engine.leave(now);

    let mut drained_after = None;
    for _ in 0..100 {
        network.packet(1, &inner_packet(b"x"), 0);
        network.run(ms(100));
        if drained_after.is_none() && network.hosts[0].events.contains(&Event::Drained) {
            drained_after = Some(network.now - now);
        }
    }

    assert_eq!(network.payloads(0).len(), 100);
    assert!(drained_after.unwrap() >= secs(4));
    assert!(drained_after.unwrap() <= secs(6));
}

#[test]
fn a_replica_without_peers_is_drained_at_once() {
    let mut network = Network::new();
    let host = network.host("server-0");
    let now = network.now;

    network.hosts[host].engine.leave(now);
    network.run(ms(300));

    assert!(network.events(host).contains(&Event::Drained));
}

#[test]
fn replicas_leave_and_start_without_loss_at_two_addresses() {
    for seed in 0..6 {
        let mut network = Network::new();
        let servers = [network.host("server-0"), network.host("server-1")];
        let clients = [network.host("client-0"), network.host("client-1")];
        let nodes = [0, 1].map(|_| network.balancer(&servers));
        network.balancers[0].seed = seed;
        for server in servers {
            network.set_replicas(server, &["server-0", "server-1"]);
            network.set_peers(server, vec![serving()]);
        }
        for client in clients {
            network.set_replicas(client, &["client-0", "client-1"]);
            network.set_peers(client, vec![calling(&nodes)]);
        }
        network.run(secs(20));

        for (leaving, senders, receivers) in [
            (clients[1], servers, clients),
            (servers[1], clients, servers),
            (clients[1], clients, servers),
            (servers[0], servers, clients),
        ] {
            let (sent, arrived) = leave(&mut network, leaving, &senders, &receivers);
            assert_eq!(arrived, sent, "seed {seed}: {leaving} left");

            let (replica, all, peers) = if clients.contains(&leaving) {
                (
                    format!("client-{leaving}b"),
                    ["client-0", "client-1"],
                    calling(&nodes),
                )
            } else {
                (
                    format!("server-{leaving}b"),
                    ["server-0", "server-1"],
                    serving(),
                )
            };
            network.restart(leaving, &replica, vec![peers]);
            network.set_replicas(leaving, &all);
            let (mut sent, mut arrived) = (0, 0);
            for _ in 0..1000 {
                for sender in senders.iter().filter(|s| **s != leaving) {
                    for flow in 0..4 {
                        network.packet(*sender, &inner_packet(b"x"), flow * 0x5bd1);
                        sent += 1;
                    }
                }
                network.run(ms(10));
                for receiver in receivers {
                    arrived += network.payloads(receiver).len();
                }
            }
            assert_eq!(arrived, sent, "seed {seed}: {leaving} came");
        }
    }
}

/// Checks that a replica that has just started is discovered at once, but carries flows only after
/// its nodes accept its packets.
fn starts_without_loss(
    newcomer: usize,
    senders: &[usize],
    receivers: &[usize],
    network: &mut Network,
) {
    let now = network.now;
    network.hosts[newcomer].engine.set_standby(true, now);
    network.run(secs(1));
    let mut sent = 0;
    let mut send = |network: &mut Network, seen: &mut [usize; 2]| {
        for (sender, flow) in senders.iter().flat_map(|it| (0..16).map(move |f| (*it, f))) {
            let hash = u32::wrapping_mul(flow, 0x5bd1_e995);
            network.packet(sender, &inner_packet(b"x"), hash);
            sent += 1;
        }
        network.run(ms(10));
        for (seen, receiver) in seen.iter_mut().zip(receivers) {
            *seen += network.payloads(*receiver).len();
        }
    };

    let mut seen = [0, 0];
    for _ in 0..50 {
        send(network, &mut seen);
    }
    let at = receivers.iter().position(|it| *it == newcomer).unwrap();
    assert_eq!(seen[at], 0, "its nodes drop them");

    let now = network.now;
    network.hosts[newcomer].engine.set_standby(false, now);
    for _ in 0..50 {
        send(network, &mut seen);
    }

    assert!(seen[at] > 0, "it gets its share");
    assert_eq!(seen[0] + seen[1], sent);
}

#[test]
fn a_server_replica_starts_without_loss() {
    let (mut network, servers, clients) = network();

    starts_without_loss(servers[0], &clients, &servers, &mut network);
}

#[test]
fn a_client_replica_starts_without_loss() {
    let (mut network, servers, clients) = network();

    starts_without_loss(clients[1], &servers, &clients, &mut network);
}

#[test]
fn replicas_that_have_all_just_started_are_used() {
    let (mut network, servers, clients) = network();
    let now = network.now;
    for server in servers {
        network.hosts[server].engine.set_standby(true, now);
    }
    network.run(secs(1));

    network.packet(clients[0], &inner_packet(b"x"), 7);
    network.run(ms(10));

    let seen = servers.map(|server| network.payloads(server).len());
    assert_eq!(seen[0] + seen[1], 1);
}
