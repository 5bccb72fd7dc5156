use super::*;

#[test]
fn a_narrow_path_is_found_without_icmp_and_traffic_goes_on() {
    let mut world = World::pair();
    world.mtu = Some(1_280);

    world.run(secs(5));

    for host in [0, 1] {
        assert_eq!(world.peer(host).sessions[0].mtu, 1_220);
        let session = world.hosts[host].engine.select(PEER, 0).unwrap();
        assert_eq!(world.hosts[host].engine.mtu(session), Some(1_220));
    }
    world.packet(1, &inner_packet(&[7; 1_200]), 0);
    world.run(ms(20));
    assert_eq!(world.payloads(0).len(), 1);
}

#[test]
fn the_bound_is_never_exceeded_and_probes_must_not_be_fragmented() {
    let mut world = World::pair();
    world.capture = Some(Vec::new());

    world.run(secs(30));

    assert_eq!(world.peer(1).sessions[0].mtu, MTU);
    let capture = world.capture.take().unwrap();
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
    let mut world = World::pair();
    world.mtu = Some(1_280);
    world.run(secs(10));

    world.mtu = None;
    world.run(secs(200));

    assert_eq!(world.peer(0).sessions[0].mtu, MTU);
    assert_eq!(world.peer(1).sessions[0].mtu, MTU);
}

#[test]
fn loss_alone_lowers_nothing() {
    let mut world = World::pair();
    world.run(secs(5));
    world.lose_every = Some(5);

    world.run(secs(300));

    assert_eq!(world.peer(0).sessions[0].mtu, MTU);
    assert_eq!(world.peer(1).sessions[0].mtu, MTU);
}

#[test]
fn a_new_bound_is_obeyed_at_once_and_the_session_stays() {
    let mut world = World::pair();
    world.run(secs(5));
    let address = world.address(0);
    let slot = world.peer(1).sessions[0].slot;

    let lower = PeerConfig {
        mtu: 1_200,
        ..calling(&[address])
    };
    world.set_peers(1, vec![lower]);

    assert_eq!(world.peer(1).sessions[0].mtu, 1_200);
    assert_eq!(world.peer(1).sessions[0].slot, slot);
}
