use super::*;
use crate::offload::tests::packets;
use crate::offload::vnet::Partial;
use proptest::prelude::*;

/// Returns a super-packet of the maximum length, with `headers` bytes of IPv4 and TCP or UDP
/// header.
fn longest(udp: bool, headers: usize) -> Vec<u8> {
    let mut packet = vec![0; frame::PACKET_MAX];
    packet[0] = 0x45;
    packet[9] = if udp { ipv4::UDP } else { ipv4::TCP };
    packet[32] = u8::try_from((headers - 20) / 4).unwrap() << 4;
    packet
}

/// Segments the result of [`longest`] into segments of `size` bytes; returns their number.
fn segments(udp: bool, headers: usize, size: u16) -> Result<usize, Error> {
    let mut packet = longest(udp, headers);
    let gso = if udp {
        Gso::UdpL4
    } else {
        Gso::TcpV4 { ecn: false }
    };
    let vnet = vnet::Header {
        gso,
        gso_size: size,
        ..vnet::Header::default()
    };
    let mut split = Split::new(vnet, &mut packet)?;
    let mut count = 0;
    while split.next().is_some() {
        count += 1;
    }
    Ok(count)
}

#[test]
fn a_frame_of_tiny_segments_is_refused() {
    for udp in [false, true] {
        for size in [1, 2, 8, 48, 100, 200, 255] {
            assert_eq!(
                segments(udp, 40, size),
                Err(Error::TooManySegments),
                "{size}"
            );
        }
    }
}

#[test]
fn a_small_packet_of_tiny_segments_is_split() {
    let mut packet = packets::tcp_segment(100, 0x10, &[5; SEGMENTS_MAX]);
    let vnet = vnet::Header {
        gso: Gso::TcpV4 { ecn: false },
        gso_size: 1,
        ..vnet::Header::default()
    };

    let mut split = Split::new(vnet, &mut packet).unwrap();

    let mut count = 0;
    while split.next().is_some() {
        count += 1;
    }
    assert_eq!(count, SEGMENTS_MAX);
}

proptest! {
    /// 536 and 1,220 bytes are the default MSS of IPv4 and of IPv6 (RFC 9293 section 3.7.1).
    #[test]
    fn the_longest_super_packet_of_any_ordinary_mss_is_split(
        mss in prop_oneof![Just(536), Just(1_220), 536..=8_960_u16],
        options in 0..=10_usize,
    ) {
        let options = options * 4;
        let size = usize::from(mss) - options;
        let headers = 40 + options;

        let count = segments(false, headers, u16::try_from(size).unwrap());

        prop_assert_eq!(count, Ok((frame::PACKET_MAX - headers).div_ceil(size)));
    }

    /// Linux rejects a `UDP_SEGMENT` send of more than 128 datagrams with `EINVAL`.
    #[test]
    fn a_super_packet_of_up_to_128_datagrams_is_split(
        datagrams in 1..=128_usize,
        size in 1..=1_472_usize,
        last in 1..=1_472_usize,
    ) {
        let payload = ((datagrams - 1) * size + last.min(size)).min(frame::PACKET_MAX - 28);
        let mut packet = longest(true, 28);
        packet.truncate(28 + payload);
        let vnet = vnet::Header {
            gso: Gso::UdpL4,
            gso_size: u16::try_from(size).unwrap(),
            ..vnet::Header::default()
        };

        prop_assert!(Split::new(vnet, &mut packet).is_ok());
    }
}

#[test]
fn fin_and_push_end_the_last_segment_and_cwr_starts_the_first() {
    let mut packet = packets::tcp_segment(100, 0x10 | FIN | PSH | CWR, &[5; 250]);
    let vnet = vnet::Header {
        gso: Gso::TcpV4 { ecn: true },
        gso_size: 100,
        ..vnet::Header::default()
    };

    let mut split = Split::new(vnet, &mut packet).unwrap();
    let mut seen = Vec::new();
    while let Some(segment) = split.next() {
        packets::verified(segment);
        let sequence = u32::from_be_bytes(segment[24..28].try_into().unwrap());
        seen.push((sequence, segment[20 + TCP_FLAGS], segment.len()));
    }

    assert_eq!(
        seen,
        [
            (100, 0x10 | CWR, 140),
            (200, 0x10, 140),
            (300, 0x10 | FIN | PSH, 90)
        ]
    );
}

#[test]
fn a_checksum_left_open_is_completed() {
    let expected = packets::tcp_packet(b"hello");
    let mut packet = expected.clone();
    let ip = Header::parse(&packet).unwrap();
    let len = u16::try_from(packet.len() - 20).unwrap();
    let partial = Sum::pseudo(ip.source, ip.destination, ipv4::TCP, len).partial();
    packet[36..38].copy_from_slice(&partial);
    let vnet = vnet::Header {
        partial: Some(Partial {
            start: 34,
            offset: 16,
        }),
        ..vnet::Header::default()
    };

    let mut split = Split::new(vnet, &mut packet).unwrap();

    assert_eq!(split.next().unwrap(), expected);
    assert!(split.next().is_none());
}

#[test]
fn the_padding_of_a_short_frame_is_removed() {
    let expected = packets::tcp_packet(b"hi");
    let mut packet = expected.clone();
    packet.extend_from_slice(&[0; 6]);

    let mut split = Split::new(vnet::Header::default(), &mut packet).unwrap();

    assert_eq!(split.next().unwrap(), expected);
}

#[test]
fn a_packet_shorter_than_its_total_length_is_malformed() {
    let mut packet = packets::tcp_packet(b"hello");
    packet.pop();

    assert!(Split::new(vnet::Header::default(), &mut packet).is_err());
}
