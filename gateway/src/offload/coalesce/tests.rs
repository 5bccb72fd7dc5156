use super::*;
use crate::offload::tests::packets;

const ACK: u8 = 0x10;

/// Returns the segment size and the packet length of each frame that the coalescer writes.
fn written(batch: &[(u16, Vec<u8>)]) -> Vec<(u16, usize)> {
    let mut coalescer = Coalescer::new(Settings::default(), true);
    let mut frames = Vec::new();
    let mut write = |frame: &[u8]| {
        let vnet = vnet::Header::parse(frame).unwrap();
        frames.push((vnet.gso_size, frame.len() - HEADROOM));
    };
    for (peer, packet) in batch {
        coalescer.room()[..packet.len()].copy_from_slice(packet);
        coalescer.push(*peer, packet.len(), &mut write);
    }
    coalescer.flush(&mut write);
    frames
}

fn segment(sequence: u32, flags: u8, len: usize) -> (u16, Vec<u8>) {
    (1, packets::tcp_segment(sequence, flags, &vec![3; len]))
}

#[test]
fn segments_in_order_become_one_write() {
    let batch = [
        segment(0, ACK, 100),
        segment(100, ACK, 100),
        segment(200, ACK, 50),
    ];

    assert_eq!(written(&batch), [(100, 290)]);
}

#[test]
fn push_and_a_short_segment_end_a_super_packet() {
    let pushed = [
        segment(0, ACK, 100),
        segment(100, ACK | 8, 100),
        segment(200, ACK, 100),
    ];
    let short = [
        segment(0, ACK, 100),
        segment(100, ACK, 60),
        segment(160, ACK, 60),
    ];

    assert_eq!(written(&pushed), [(100, 240), (0, 140)]);
    assert_eq!(written(&short), [(100, 200), (0, 100)]);
}

#[test]
fn a_gap_or_another_acknowledgement_starts_a_super_packet() {
    let gap = [segment(0, ACK, 100), segment(200, ACK, 100)];
    let mut other = segment(100, ACK, 100);
    other.1 = {
        let mut packet = other.1;
        packet[31] ^= 1; // Changes the acknowledgement number; the checksum is updated below.
        let sum = u16::from_be_bytes([packet[36], packet[37]]);
        let old = packet[31] ^ 1;
        let delta = i32::from(packet[31]) - i32::from(old);
        let mut sum = i32::from(!sum) + delta;
        if sum < 0 {
            sum += 0xffff;
        }
        let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        packet[36..38].copy_from_slice(&sum.to_be_bytes());
        packets::verified(&packet);
        packet
    };

    assert_eq!(written(&gap), [(0, 140), (0, 140)]);
    assert_eq!(
        written(&[segment(0, ACK, 100), other]),
        [(0, 140), (0, 140)]
    );
}

#[test]
fn a_fin_never_overtakes_the_data_before_it() {
    let batch = [
        segment(0, ACK, 100),
        segment(100, ACK, 100),
        segment(200, ACK | 1, 0),
    ];

    assert_eq!(written(&batch), [(100, 240), (0, 40)]);
}

#[test]
fn equal_flows_of_two_peers_stay_apart() {
    let mut other = segment(100, ACK, 100);
    other.0 = 2;

    assert_eq!(
        written(&[segment(0, ACK, 100), other]),
        [(0, 140), (0, 140)]
    );
}

#[test]
fn a_packet_with_a_wrong_checksum_is_written_alone() {
    let mut bad = segment(100, ACK, 100);
    bad.1[139] ^= 1;

    assert_eq!(written(&[segment(0, ACK, 100), bad]), [(0, 140), (0, 140)]);
}

#[test]
fn packets_of_more_flows_than_the_limit_are_all_written() {
    let batch: Vec<_> = (0..20_u16)
        .flat_map(|peer| {
            let (_, first) = segment(0, ACK, 100);
            let (_, second) = segment(100, ACK, 100);
            [(peer, first), (peer, second)]
        })
        .collect();

    assert_eq!(written(&batch), vec![(100, 240); 20]);
}

#[test]
fn a_super_packet_is_at_most_as_long_as_an_ipv4_packet() {
    let batch: Vec<_> = (0..100).map(|at| segment(at * 1400, ACK, 1400)).collect();

    let frames = written(&batch);

    assert!(frames.iter().all(|(_, len)| *len <= PACKET_MAX));
    assert_eq!(
        frames.iter().map(|(_, len)| len - 40).sum::<usize>(),
        140_000
    );
}
