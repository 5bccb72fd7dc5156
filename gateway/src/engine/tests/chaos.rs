//! Tests random sequences of faults. The engine must not exceed its limits, and all replicas must
//! reconnect afterwards.

use super::*;
use proptest::prelude::*;

/// A fault in a network of two clusters with two replicas each.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill(usize),
    Restart(usize),
    Move(usize),
    Lose(Option<usize>),
    Latency(u64),
    Narrow(bool),
    Leave(usize),
    Reload(usize),
    Forget,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0..4_usize).prop_map(Fault::Kill),
        (0..4_usize).prop_map(Fault::Restart),
        (2..4_usize).prop_map(Fault::Move),
        prop::option::of(2..20_usize).prop_map(Fault::Lose),
        (1..400_u64).prop_map(Fault::Latency),
        any::<bool>().prop_map(Fault::Narrow),
        (0..4_usize).prop_map(Fault::Leave),
        (0..4_usize).prop_map(Fault::Reload),
        Just(Fault::Forget),
    ]
}

const NAMES: [&str; 4] = ["server-0", "server-1", "client-0", "client-1"];

struct Chaos {
    network: Network,
    address: SocketAddr,
    moves: u8,
}

impl Chaos {
    fn new() -> Self {
        let mut network = Network::new();
        for name in NAMES {
            network.host(name);
        }
        let address = network.balancer(&[0, 1]);
        let mut chaos = Self {
            network,
            address,
            moves: 0,
        };
        for host in 0..4 {
            chaos.start(host);
        }
        chaos
    }

    fn peers(&self, host: usize) -> Vec<PeerConfig> {
        match host {
            0 | 1 => vec![serving()],
            _ => vec![calling(&[self.address])],
        }
    }

    fn start(&mut self, host: usize) {
        let peers = self.peers(host);
        self.network.restart(host, NAMES[host], peers);
        let own = if host < 2 { &NAMES[..2] } else { &NAMES[2..] };
        self.network.set_replicas(host, own);
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(host) => self.network.hosts[host].alive = false,
            Fault::Restart(host) => self.start(host),
            Fault::Move(host) => {
                self.moves += 1;
                self.network.hosts[host].ip = Ipv4Addr::new(203, 0, 113, self.moves);
            }
            Fault::Lose(every) => self.network.lose_every = every,
            Fault::Latency(latency) => self.network.latency = ms(latency),
            Fault::Narrow(is_narrow) => self.network.mtu = is_narrow.then_some(1_280),
            Fault::Leave(host) => {
                let now = self.network.now;
                self.network.hosts[host].engine.leave(now);
            }
            Fault::Reload(host) => {
                let peers = self.peers(host);
                self.network.set_peers(host, peers);
            }
            Fault::Forget => self.network.balancers[0].tracked.clear(),
        }
    }

    fn check_limits(&self) {
        for host in &self.network.hosts {
            let snapshot = host.engine.snapshot(self.network.now);
            let sessions = snapshot.peers.iter().map(|peer| peer.sessions.len());
            assert!(sessions.sum::<usize>() <= 128);
            assert!(host.ports.len() <= 24, "{} ports", host.ports.len());
            let queued = snapshot.peers.iter().map(|peer| peer.queued_bytes);
            assert!(queued.sum::<usize>() <= 256 * 1_024);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 100, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn after_any_faults_and_restarts_every_replica_reconnects(
        faults in proptest::collection::vec((fault(), 0..3_000_u64), 1..12),
    ) {
        let mut chaos = Chaos::new();
        chaos.network.run(secs(5));

        for (fault, pause) in faults {
            chaos.inject(fault);
            let end = chaos.network.now + ms(pause);
            while chaos.network.now < end {
                for host in 0..4 {
                    if chaos.network.hosts[host].alive {
                        chaos.network.packet(host, &inner_packet(b"x"), 7);
                    }
                }
                chaos.network.run(ms(50));
            }
            chaos.check_limits();
        }
        chaos.network.lose_every = None;
        chaos.network.latency = ms(5);
        chaos.network.mtu = None;
        for host in 0..4 {
            chaos.start(host);
        }
        chaos.network.run(secs(60));

        for (host, name) in NAMES.into_iter().enumerate() {
            chaos.check_limits();
            prop_assert_eq!(chaos.network.discovered(host).len(), 2, "{}", name);
            let sessions = chaos.network.peer(host).sessions;
            prop_assert_eq!(sessions.len(), 2);
            prop_assert!(sessions.iter().all(|session| session.mtu == MTU));
        }
    }

    #[test]
    fn survivors_of_faults_reconnect_without_a_restart(
        faults in proptest::collection::vec((fault(), 0..3_000_u64), 1..12),
    ) {
        let mut chaos = Chaos::new();
        chaos.network.run(secs(5));

        for (fault, pause) in faults {
            if matches!(fault, Fault::Leave(_) | Fault::Kill(_)) {
                continue;
            }
            chaos.inject(fault);
            chaos.network.run(ms(pause));
        }
        chaos.network.lose_every = None;
        chaos.network.latency = ms(5);
        chaos.network.run(secs(60));

        for (host, name) in NAMES.into_iter().enumerate() {
            prop_assert_eq!(chaos.network.discovered(host).len(), 2, "{}", name);
            prop_assert_eq!(chaos.network.peer(host).sessions.len(), 2);
        }
        for host in 0..4 {
            chaos.network.payloads(host);
            chaos.network.packet(host, &inner_packet(b"well"), 1);
        }
        chaos.network.run(ms(100));
        let arrived = (0..4).map(|host| chaos.network.payloads(host).len());
        prop_assert_eq!(arrived.sum::<usize>(), 4);
    }
}

#[test]
fn time_passes_while_every_host_is_dead() {
    let mut chaos = Chaos::new();
    chaos.network.run(secs(5));
    let before = chaos.network.now;

    for host in 0..4 {
        chaos.inject(Fault::Kill(host));
    }
    chaos.network.run(secs(1));

    assert_eq!(chaos.network.now, before + secs(1));
}
