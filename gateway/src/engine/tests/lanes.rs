//! Tests gateways with several lanes.

use super::*;

impl Network {
    /// Adds one lane of a replica as a host.
    pub(super) fn lane(&mut self, replica: &str, lane: LaneId, ip: Ipv4Addr) -> usize {
        let number = self.hosts.len();
        self.hosts.push(Host {
            ip,
            engine: self.engine(replica, lane),
            alive: true,
            ports: BTreeSet::from([PortId::LISTEN]),
            received: Vec::new(),
            events: Vec::new(),
        });
        number
    }

    /// Adds a replica with `of` lanes, which share an address. Returns its lanes.
    pub(super) fn lanes(&mut self, replica: &str, of: u8) -> Vec<usize> {
        let number = u8::try_from(self.hosts.len()).unwrap();
        let ip = Ipv4Addr::new(192, 0, 2, number + 1);
        LaneId::all(of)
            .map(|lane| self.lane(replica, lane, ip))
            .collect()
    }

    /// Returns the lane of a host's replica that receives a message at the shared port.
    pub(super) fn listening(&self, host: usize, bytes: &[u8]) -> usize {
        let slot = match bytes[0] {
            2 => bytes[9],
            _ => bytes.get(5).copied().unwrap_or_default(),
        };
        let lanes = self.hosts.iter().enumerate();
        let mut lanes = lanes.filter(|(_, other)| other.ip == self.hosts[host].ip);
        let holds = |(_, other): &(usize, &Host)| other.engine.lane().holds(slot.into());
        lanes.find(holds).map_or(host, |(lane, _)| lane)
    }

    /// Returns all lanes of a host's replica, in order.
    pub(super) fn siblings(&self, host: usize) -> Vec<usize> {
        let ip = self.hosts[host].ip;
        let lanes = (0..self.hosts.len()).filter(|other| self.hosts[*other].ip == ip);
        lanes.collect()
    }

    /// Passes an event to the other lanes of a replica, as the shell does.
    pub(super) fn update_siblings(&mut self, host: usize, event: &Event) {
        let siblings = self.siblings(host);
        let is_first = siblings.first() == Some(&host);
        match event {
            Event::Remote { peer, kind, .. } if is_first => {
                for other in siblings.into_iter().skip(1) {
                    let now = self.now;
                    self.hosts[other].engine.set_kind(*peer, *kind, now);
                    self.drain(other);
                }
            }
            Event::Initiation {
                local,
                from,
                datagram,
            } => {
                assert!(!is_first, "the first lane handles it");
                let first = &mut self.hosts[siblings[0]].engine;
                first.handle_forwarded_initiation(*local, *from, datagram, self.now);
                self.drain(siblings[0]);
            }
            Event::OpenPort(_)
            | Event::ClosePort(_)
            | Event::Resolve { .. }
            | Event::Connection { .. }
            | Event::Remote { .. }
            | Event::HandshakeEvidence { .. }
            | Event::Reachable { .. }
            | Event::Drained => {}
        }
    }
}

/// Creates two clusters of one replica each, with the given numbers of lanes. Returns the lanes of
/// the server and of the client.
fn pair(servers: u8, clients: u8) -> (Network, Vec<usize>, Vec<usize>) {
    let mut network = Network::new();
    let servers = network.lanes("server-0", servers);
    let clients = network.lanes("client-0", clients);
    let address = network.address(servers[0]);
    for server in &servers {
        network.set_peers(*server, vec![serving()]);
    }
    for client in &clients {
        network.set_peers(*client, vec![calling(&[address])]);
    }
    (network, servers, clients)
}

/// Creates replicas of two lanes each behind a load balancer, and a client of two lanes. Returns
/// the lanes of the client.
fn behind_a_balancer(names: &[&str]) -> (Network, Vec<usize>) {
    behind_a_balancer_with_lanes(names, 2, 2)
}

fn behind_a_balancer_with_lanes(names: &[&str], there: u8, here: u8) -> (Network, Vec<usize>) {
    let mut network = Network::new();
    let servers: Vec<_> = names
        .iter()
        .map(|name| network.lanes(name, there))
        .collect();
    let firsts: Vec<_> = servers.iter().map(|lanes| lanes[0]).collect();
    let address = network.balancer(&firsts);
    for server in servers.concat() {
        network.set_replicas(server, names);
        network.set_peers(server, vec![serving()]);
    }
    let clients = network.lanes("client-0", here);
    for client in &clients {
        network.set_peers(*client, vec![calling(&[address])]);
    }
    (network, clients)
}

/// Returns the numbers of the remote lanes with which a lane has a session that flows may use.
fn lanes_discovered(network: &Network, host: usize) -> Vec<u8> {
    let sessions = network.peer(host).sessions.into_iter();
    let live = sessions.filter(|session| session.state == "live" && !session.leaving);
    let mut lanes: Vec<_> = live.filter_map(|session| session.remote_lane).collect();
    lanes.sort_unstable();
    lanes
}

fn counterparts(of: u8, lane: LaneId) -> Vec<u8> {
    let pairs = LaneId::all(of).filter(|other| lane.pairs_with(*other));
    pairs.map(LaneId::number).collect()
}

#[test]
fn lanes_connect_to_their_counterparts_only() {
    for (there, here) in [(1, 2), (2, 1), (2, 2), (3, 2), (2, 3), (4, 4)] {
        let (mut network, servers, clients) = pair(there, here);

        let is_done = |network: &Network| {
            let all = servers.iter().map(|host| (host, here));
            let mut all = all.chain(clients.iter().map(|host| (host, there)));
            all.all(|(host, of)| {
                let lane = network.hosts[*host].engine.lane();
                lanes_discovered(network, *host) == counterparts(of, lane)
            })
        };
        network.run_until(secs(20), is_done);
        network.run(secs(130));

        assert!(is_done(&network), "{there} and {here}");
        for host in servers.iter().chain(&clients) {
            let peer = network.peer(*host);
            let of = if servers.contains(host) { here } else { there };
            let lane = network.hosts[*host].engine.lane();
            let expected = counterparts(of, lane).len();
            assert_eq!(
                peer.sessions.len(),
                expected,
                "{there} and {here}: no surplus session"
            );
        }
    }
}

#[test]
fn every_lane_of_every_replica_is_discovered_behind_a_balancer() {
    let (mut network, clients) = behind_a_balancer(&["server-0", "server-1"]);

    network.run_until(secs(30), |network| {
        clients.iter().all(|client| {
            let own = network.hosts[*client].engine.lane().number();
            network.discovered(*client).len() == 2
                && lanes_discovered(network, *client) == [own, own]
        })
    });
}

#[test]
fn packets_go_from_lane_to_lane_in_order() {
    let (mut network, servers, clients) = pair(2, 2);
    network.run_until(secs(20), |network| {
        clients.iter().all(|host| network.reachable(*host))
            && servers.iter().all(|host| network.reachable(*host))
            && clients
                .iter()
                .all(|host| lanes_discovered(network, *host).len() == 1)
    });
    network.run(secs(2));

    for (client, server) in clients.iter().zip(&servers) {
        let sent: Vec<_> = (0..20_u8).map(|number| vec![number; 8]).collect();
        for payload in &sent {
            network.packet(*client, &inner_packet(payload), 1);
        }
        network.run(ms(50));
        assert_eq!(network.payloads(*server), sent);

        network.packet(*server, &inner_packet(b"back"), 1);
        network.run(ms(50));
        assert_eq!(network.payloads(*client), [b"back"]);
    }
}

#[test]
fn a_server_that_restarts_with_other_lanes_is_discovered_again() {
    let (mut network, servers, clients) = pair(2, 2);
    let lanes = |network: &Network| {
        clients
            .iter()
            .map(|it| lanes_discovered(network, *it))
            .collect()
    };
    network.run_until(secs(20), |network| {
        let pairs: Vec<_> = lanes(network);
        pairs == [[0], [1]]
    });

    network.hosts[servers[1]].alive = false;
    network.hosts[servers[1]].ip = Ipv4Addr::new(203, 0, 113, 1);
    network.restart(servers[0], "server-0", vec![serving()]);
    network.run_until(secs(20), |network| {
        lanes_discovered(network, servers[0]) == [0, 1]
    });
    network.run(secs(5));

    let pairs: Vec<_> = lanes(&network);
    assert_eq!(pairs, [[0], [0]]);
    network.packet(clients[1], &inner_packet(b"there"), 1);
    network.run(ms(50));
    assert_eq!(network.payloads(servers[0]), [b"there"]);
}

#[test]
fn discovered_replicas_are_limited() {
    let names: Vec<_> = (0..24).map(|number| format!("server-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (mut network, clients) = behind_a_balancer(&names);

    network.run(secs(90));

    let most = probe::REPLICAS_MAX as usize;
    for client in &clients {
        let peer = network.peer(*client);
        let kept = peer.sessions.iter().filter(|it| it.state == "live");
        assert!(kept.count() <= most, "{} sessions", peer.sessions.len());
        assert_eq!(network.discovered(*client).len(), most);
    }
}

#[test]
fn sessions_with_one_peer_are_limited() {
    let names: Vec<_> = (0..9).map(|number| format!("server-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (mut network, clients) = behind_a_balancer_with_lanes(&names, 16, 1);
    let sessions = |network: &Network| network.peer(clients[0]).sessions.len();

    network.run_until(secs(300), |network| {
        network.drops(clients[0], Drop::SessionLimit) > 10
    });

    assert_eq!(sessions(&network), 128, "fewer than 9 x 16");
}

#[test]
fn a_peer_with_one_session_is_handed_to_the_first_lane() {
    for slot in [0, 1, 2, 3] {
        let mut network = Network::new();
        let servers = network.lanes("server-0", 4);
        for server in &servers {
            network.set_peers(*server, vec![serving()]);
        }
        let mut buffer = [0; noise::HANDSHAKE_BUFFER];
        let key = noise::LocalKey::new(&CLIENT_KEY.into());
        let remote = noise::public_key(&SERVER_KEY.into());
        let mut stranger = noise::Tunnel::new(&key, remote, slot);
        let len = stranger.initiate(&mut buffer).unwrap();
        let from = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 9), 7).into();
        let to = network.address(servers[0]);

        network.send(from, to, buffer[..len].to_vec(), false);
        network.run(ms(50));

        let replies = std::mem::take(&mut network.unrouted);
        assert_eq!(replies.len(), 1, "slot {slot}");
        let sessions: Vec<_> = servers
            .iter()
            .map(|it| network.peer(*it).sessions.len())
            .collect();
        assert_eq!(sessions, [1, 0, 0, 0], "slot {slot}");
    }
}
