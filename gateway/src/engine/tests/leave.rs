use super::*;

fn world() -> (World, [usize; 2], [usize; 2]) {
    let mut world = World::new();
    let servers = [world.host("server-0"), world.host("server-1")];
    let clients = [world.host("client-0"), world.host("client-1")];
    let address = world.balancer(&servers);
    for server in servers {
        world.set_replicas(server, &["server-0", "server-1"]);
        world.set_peers(server, vec![serving()]);
    }
    for client in clients {
        world.set_replicas(client, &["client-0", "client-1"]);
        world.set_peers(client, vec![calling(&[address])]);
    }
    world.run(secs(15));
    (world, servers, clients)
}

/// Lets `leaving` leave gracefully, while all of `senders` send to the other cluster; returns the numbers of packets
/// sent and received.
fn leave(
    world: &mut World,
    leaving: usize,
    senders: &[usize],
    receivers: &[usize],
) -> (usize, usize) {
    let (mut sent, mut arrived, mut left) = (0, 0, false);
    let start = world.now;
    while world.now < start + secs(12) {
        if !left && world.now >= start + secs(1) {
            left = true;
            let now = world.now;
            world.hosts[leaving].engine.leave(now);
        }
        let is_drained = world.hosts[leaving].events.contains(&Event::Drained);
        if is_drained {
            world.hosts[leaving].alive = false;
        }
        for sender in senders.iter().filter(|s| **s != leaving) {
            for flow in 0..4 {
                world.packet(*sender, &inner_packet(b"x"), flow * 0x5bd1);
                sent += 1;
            }
        }
        world.run(ms(10));
        for receiver in receivers {
            arrived += world.payloads(*receiver).len();
        }
    }
    assert!(!world.hosts[leaving].alive, "it left");
    (sent, arrived)
}

#[test]
fn a_server_replica_leaves_without_any_loss() {
    let (mut world, servers, clients) = world();

    let (sent, arrived) = leave(&mut world, servers[0], &clients, &servers);

    assert!(sent > 5_000);
    assert_eq!(arrived, sent);
}

#[test]
fn a_client_replica_leaves_without_any_loss() {
    let (mut world, servers, clients) = world();

    let (sent, arrived) = leave(&mut world, clients[1], &servers, &clients);

    assert_eq!(arrived, sent);
}

#[test]
fn leaving_is_over_quickly_when_peers_have_somewhere_to_go() {
    let (mut world, servers, _) = world();
    let now = world.now;

    world.hosts[servers[0]].engine.leave(now);
    let took = world.run_until(secs(3), |world| {
        world.hosts[servers[0]].events.contains(&Event::Drained)
    });

    assert!(took <= secs(1), "{took:?}");
    world.run(secs(10));
    let drained = |event: &&Event| **event == Event::Drained;
    let events = world.events(servers[0]);
    assert_eq!(events.iter().filter(drained).count(), 1);
}

#[test]
fn the_last_replica_serves_on_while_it_leaves_but_not_for_ever() {
    let mut world = World::pair();
    world.run(secs(5));
    let now = world.now;
    world.hosts[0].engine.leave(now);

    let mut drained_after = None;
    for _ in 0..100 {
        world.packet(1, &inner_packet(b"x"), 0);
        world.run(ms(100));
        if drained_after.is_none() && world.hosts[0].events.contains(&Event::Drained) {
            drained_after = Some(world.now - now);
        }
    }

    assert_eq!(world.payloads(0).len(), 100);
    assert!(drained_after.unwrap() >= secs(4));
    assert!(drained_after.unwrap() <= secs(6));
}

#[test]
fn a_replica_without_peers_may_go_at_once() {
    let mut world = World::new();
    let host = world.host("server-0");
    let now = world.now;

    world.hosts[host].engine.leave(now);
    world.run(ms(300));

    assert!(world.events(host).contains(&Event::Drained));
}

#[test]
fn replicas_leave_and_start_without_loss_at_two_addresses() {
    for turn in 0..6 {
        let mut world = World::new();
        let servers = [world.host("server-0"), world.host("server-1")];
        let clients = [world.host("client-0"), world.host("client-1")];
        let nodes = [0, 1].map(|_| world.balancer(&servers));
        world.balancers[0].turn = turn;
        for server in servers {
            world.set_replicas(server, &["server-0", "server-1"]);
            world.set_peers(server, vec![serving()]);
        }
        for client in clients {
            world.set_replicas(client, &["client-0", "client-1"]);
            world.set_peers(client, vec![calling(&nodes)]);
        }
        world.run(secs(20));

        for (leaving, senders, receivers) in [
            (clients[1], servers, clients),
            (servers[1], clients, servers),
            (clients[1], clients, servers),
            (servers[0], servers, clients),
        ] {
            let (sent, arrived) = leave(&mut world, leaving, &senders, &receivers);
            assert_eq!(arrived, sent, "turn {turn}: {leaving} left");

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
            world.restart(leaving, &replica, vec![peers]);
            world.set_replicas(leaving, &all);
            let (mut sent, mut arrived) = (0, 0);
            for _ in 0..1000 {
                for sender in senders.iter().filter(|s| **s != leaving) {
                    for flow in 0..4 {
                        world.packet(*sender, &inner_packet(b"x"), flow * 0x5bd1);
                        sent += 1;
                    }
                }
                world.run(ms(10));
                for receiver in receivers {
                    arrived += world.payloads(receiver).len();
                }
            }
            assert_eq!(arrived, sent, "turn {turn}: {leaving} came");
        }
    }
}

/// A replica that has just started is discovered at once, but used only when its nodes know it.
fn comes_without_any_loss(
    newcomer: usize,
    senders: &[usize],
    receivers: &[usize],
    world: &mut World,
) {
    let now = world.now;
    world.hosts[newcomer].engine.set_standby(true, now);
    world.run(secs(1));
    let mut sent = 0;
    let mut send = |world: &mut World, seen: &mut [usize; 2]| {
        for (sender, flow) in senders.iter().flat_map(|it| (0..16).map(move |f| (*it, f))) {
            let hash = u32::wrapping_mul(flow, 0x5bd1_e995);
            world.packet(sender, &inner_packet(b"x"), hash);
            sent += 1;
        }
        world.run(ms(10));
        for (seen, receiver) in seen.iter_mut().zip(receivers) {
            *seen += world.payloads(*receiver).len();
        }
    };

    let mut seen = [0, 0];
    for _ in 0..50 {
        send(world, &mut seen);
    }
    let at = receivers.iter().position(|it| *it == newcomer).unwrap();
    assert_eq!(seen[at], 0, "its nodes refuse them");

    let now = world.now;
    world.hosts[newcomer].engine.set_standby(false, now);
    for _ in 0..50 {
        send(world, &mut seen);
    }

    assert!(seen[at] > 0, "it gets its share");
    assert_eq!(seen[0] + seen[1], sent);
}

#[test]
fn a_server_replica_starts_without_loss() {
    let (mut world, servers, clients) = world();

    comes_without_any_loss(servers[0], &clients, &servers, &mut world);
}

#[test]
fn a_client_replica_starts_without_loss() {
    let (mut world, servers, clients) = world();

    comes_without_any_loss(clients[1], &servers, &clients, &mut world);
}

#[test]
fn replicas_that_have_all_just_started_are_used() {
    let (mut world, servers, clients) = world();
    let now = world.now;
    for server in servers {
        world.hosts[server].engine.set_standby(true, now);
    }
    world.run(secs(1));

    world.packet(clients[0], &inner_packet(b"x"), 7);
    world.run(ms(10));

    let seen = servers.map(|server| world.payloads(server).len());
    assert_eq!(seen[0] + seen[1], 1);
}
