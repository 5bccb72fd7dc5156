use super::*;
use proptest::prelude::*;

fn nets(nets: &[&str]) -> Vec<Ipv4Net> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

fn sources() -> Sources {
    Sources::new(&nets(&["10.244.0.0/16"]))
}

fn packet(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(IPV4_HEADER + payload.len()).unwrap();
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet.extend(source);
    packet.extend(destination);
    packet.extend(payload);
    packet
}

/// Builds an ICMP error from a router outside the peer's prefixes.
fn icmp_error(kind: u8, to: [u8; 4], quoted: &[u8]) -> Vec<u8> {
    icmp_error_from([192, 168, 7, 1], kind, to, quoted)
}

fn icmp_error_from(source: [u8; 4], kind: u8, to: [u8; 4], quoted: &[u8]) -> Vec<u8> {
    let mut icmp = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    icmp.extend(quoted);
    packet(source, to, ICMP, &icmp)
}

#[test]
fn a_source_inside_the_prefixes_passes() {
    let packet = packet([10, 244, 1, 10], [10, 244, 1, 10], 6, &[0; 20]);

    assert_eq!(check(&packet, &sources()), Ok(Inner::Forward));
}

#[test]
fn a_source_outside_the_prefixes_is_refused() {
    let packet = packet([10, 245, 1, 10], [10, 244, 1, 10], 6, &[0; 20]);

    assert_eq!(check(&packet, &sources()), Err(Drop::SourceNotAllowed));
}

#[test]
fn an_error_that_quotes_a_packet_of_its_receiver_passes_from_any_source() {
    let ours = packet([10, 244, 1, 10], [10, 244, 9, 9], UDP, &[0; 8]);

    for kind in [3, 4, 11, 12] {
        let error = icmp_error(kind, [10, 244, 1, 10], &ours);
        assert_eq!(check(&error, &sources()), Ok(Inner::Forward));
    }
}

#[test]
fn an_error_about_a_packet_that_the_peer_did_not_get_is_refused_from_any_source() {
    let to_elsewhere = packet([10, 244, 1, 10], [8, 8, 8, 8], UDP, &[0; 8]);
    let of_another = packet([10, 244, 1, 11], [10, 244, 9, 9], UDP, &[0; 8]);
    let ours = packet([10, 244, 1, 10], [10, 244, 9, 9], UDP, &[0; 8]);

    for source in [[192, 168, 7, 1], [10, 244, 9, 9]] {
        for (kind, quoted) in [
            (3, &to_elsewhere[..]),
            (11, &of_another),
            (3, &ours[..12]),
            (REDIRECT, &ours),
        ] {
            let error = icmp_error_from(source, kind, [10, 244, 1, 10], quoted);
            assert_eq!(check(&error, &sources()), Err(Drop::QuoteNotAllowed));
            let mut first_fragment = error;
            first_fragment[6] = 0x20;
            assert_eq!(
                check(&first_fragment, &sources()),
                Err(Drop::QuoteNotAllowed)
            );
        }
    }
    let echo = icmp_error(8, [10, 244, 1, 10], &ours);
    assert_eq!(check(&echo, &sources()), Err(Drop::SourceNotAllowed));
}

#[test]
fn lengths_that_disagree_are_malformed() {
    let good = packet([10, 244, 1, 10], [10, 244, 1, 10], 6, &[0; 20]);
    let mut longer = good.clone();
    longer.push(0);
    let mut short_header = good.clone();
    short_header[0] = 0x44;
    let mut options_beyond_end = packet([10, 244, 1, 10], [10, 244, 1, 10], 6, &[]);
    options_beyond_end[0] = 0x46;

    for bad in [
        &good[..19],
        &good[..39],
        &longer,
        &short_header,
        &options_beyond_end,
    ] {
        assert_eq!(check(bad, &sources()), Err(Drop::InnerMalformed));
    }
}

#[test]
fn a_probe_is_recognised_by_address_and_port() {
    let probe = probe_packet(CLIENT, (SERVER, PROBE_PORT), b"{}");

    assert_eq!(check(&probe, &sources()), Ok(Inner::Probe(28..30)));
    let addresses = probe_addresses(&probe);
    assert_eq!(addresses.source, (CLIENT, PROBE_PORT));
    assert_eq!(addresses.destination, SERVER);
}

#[test]
fn another_port_or_a_fragment_is_no_probe() {
    let mut other_port = probe_packet(CLIENT, (SERVER, PROBE_PORT + 1), b"{}");
    let mut fragment = probe_packet(CLIENT, (SERVER, PROBE_PORT), b"{}");
    fragment[6] = 0x20;

    for packet in [&mut other_port, &mut fragment] {
        assert_eq!(check(packet, &sources()), Err(Drop::SourceNotAllowed));
    }
}

#[test]
fn a_probe_carries_right_checksums() {
    for json in [&b"{}"[..], b"{\"a\":1}", b""] {
        let packet = probe_packet(SERVER, (CLIENT, 4711), json);
        let udp_len = u32::try_from(UDP_HEADER + json.len()).unwrap();

        assert_eq!(fold(sum(&packet[..IPV4_HEADER])), 0xffff);
        assert_eq!(fold(sum(&packet[12..]) + u32::from(UDP) + udp_len), 0xffff);
    }
}

proptest! {
    #[test]
    fn the_check_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
        let _ = check(&bytes, &sources());
        let _ = flow_hash(&bytes);
    }

    #[test]
    fn the_check_never_panics_on_ipv4(
        source: [u8; 4],
        ihl in 0..16u8,
        protocol in prop_oneof![Just(ICMP), Just(UDP), any::<u8>()],
        payload in proptest::collection::vec(any::<u8>(), 0..96),
    ) {
        let mut packet = packet(source, SERVER.octets(), protocol, &payload);
        packet[0] = 0x40 | ihl;

        if let Ok(Inner::Probe(json)) = check(&packet, &sources()) {
            prop_assert!(json.end <= packet.len());
            probe_addresses(&packet);
        }
        flow_hash(&packet);
    }

    #[test]
    fn ranges_agree_with_prefixes(
        prefixes in proptest::collection::vec((any::<u32>(), 0..=32u8), 0..6),
        address: u32,
    ) {
        let nets: Vec<_> = prefixes
            .iter()
            .map(|(bits, len)| Ipv4Net::new(Ipv4Addr::from_bits(*bits), *len).unwrap())
            .collect();
        let sources = Sources::new(&nets);
        let mut addresses = vec![address];
        addresses.extend(prefixes.iter().map(|(bits, _)| *bits));

        for address in addresses {
            let expected = nets.iter().any(|net| net.contains(&Ipv4Addr::from_bits(address)));
            prop_assert_eq!(sources.contains(address), expected);
        }
    }
}
