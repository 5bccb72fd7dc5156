use super::*;

#[test]
fn a_narrow_path_is_found_without_icmp_and_traffic_goes_on() {
    let mut network = Network::pair();
    network.mtu = Some(1_280);

    network.run(secs(5));

    for host in [0, 1] {
        assert_eq!(network.peer(host).sessions[0].mtu, 1_220);
        let session = network.hosts[host]
            .engine
            .select(PEER, 0, std::net::Ipv4Addr::UNSPECIFIED)
            .unwrap();
        assert_eq!(network.hosts[host].engine.mtu(session), Some(1_220));
    }
    network.packet(1, &inner_packet(&[7; 1_200]), 0);
    network.run(ms(20));
    assert_eq!(network.payloads(0).len(), 1);
}

#[test]
fn the_bound_is_never_exceeded_and_probes_must_not_be_fragmented() {
    let mut network = Network::pair();
    network.capture = Some(Vec::new());

    network.run(secs(30));

    assert_eq!(network.peer(1).sessions[0].mtu, MTU);
    let capture = network.capture.take().unwrap();
    let longest = capture.iter().map(|d| d.bytes.len()).max().unwrap();
    assert_eq!(longest, usize::from(MTU) + 32);
    let long = capture.iter().filter(|d| d.bytes.len() > 1_000);
    assert!(long.clone().all(|d| d.dont_fragment));
    assert!(long.count() >= 10);
    let short = capture.iter().filter(|d| d.bytes.len() < 400);
    assert!(short.clone().all(|d| !d.dont_fragment));
}

#[test]
fn a_path_that_widens_again_is_used_again() {
    let mut network = Network::pair();
    network.mtu = Some(1_280);
    network.run(secs(10));

    network.mtu = None;
    network.run(secs(200));

    assert_eq!(network.peer(0).sessions[0].mtu, MTU);
    assert_eq!(network.peer(1).sessions[0].mtu, MTU);
}

#[test]
fn loss_alone_does_not_lower_the_mtu() {
    let mut network = Network::pair();
    network.run(secs(5));
    network.lose_every = Some(5);

    network.run(secs(300));

    assert_eq!(network.peer(0).sessions[0].mtu, MTU);
    assert_eq!(network.peer(1).sessions[0].mtu, MTU);
}

#[test]
fn a_new_bound_applies_at_once_and_the_session_stays() {
    let mut network = Network::pair();
    network.run(secs(5));
    let address = network.address(0);
    let slot = network.peer(1).sessions[0].slot;

    let lower = PeerConfig {
        mtu: 1_200,
        ..calling(&[address])
    };
    network.set_peers(1, vec![lower]);

    assert_eq!(network.peer(1).sessions[0].mtu, 1_200);
    assert_eq!(network.peer(1).sessions[0].slot, slot);
}
