use super::*;

#[test]
fn packets_leave_in_order() {
    let (mut queue, mut drops, now) = (Queue::default(), Drops::new(), Instant::now());

    queue.push(1, b"first", now, &mut drops);
    queue.push(2, b"other", now, &mut drops);
    queue.push(1, b"second", now, &mut drops);

    assert_eq!(queue.peers.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(queue.pop(1).as_deref(), Some(&b"first"[..]));
    assert_eq!(queue.pop(1).as_deref(), Some(&b"second"[..]));
    assert_eq!(queue.pop(1), None);
    assert_eq!(queue.peers.keys().copied().collect::<Vec<_>>(), [2]);
}

#[test]
fn one_peer_holds_no_more_than_its_share_and_keeps_the_newest() {
    let (mut queue, mut drops, now) = (Queue::default(), Drops::new(), Instant::now());

    for n in 0..10_000_u32 {
        let mut packet = [0; 100];
        packet[..4].copy_from_slice(&n.to_be_bytes());
        queue.push(1, &packet, now, &mut drops);
    }

    assert!(queue.bytes(1) <= PEER_BYTES_MAX);
    let kept = std::iter::from_fn(|| queue.pop(1)).collect::<Vec<_>>();
    assert_eq!(kept.last().unwrap()[..4], 9_999_u32.to_be_bytes());
    assert_eq!(drops.get(Drop::QueueFull), 10_000 - kept.len() as u64);
    assert_eq!(queue.bytes, 0);
}

#[test]
fn all_peers_together_hold_no_more_than_the_limit() {
    let (mut queue, mut drops, now) = (Queue::default(), Drops::new(), Instant::now());

    for peer in 0..100 {
        for _ in 0..200 {
            queue.push(peer, &[0; 1_400], now, &mut drops);
        }
    }

    assert!(queue.bytes <= BYTES_MAX);
    assert!(queue.bytes(0) > 0, "no peer starves another");
}

#[test]
fn a_packet_that_waited_too_long_is_dropped() {
    let (mut queue, mut drops, now) = (Queue::default(), Drops::new(), Instant::now());
    queue.push(1, b"old", now, &mut drops);
    queue.push(1, b"new", now + AGE_MAX / 2, &mut drops);

    queue.handle_timeout(now + AGE_MAX, &mut drops);

    assert_eq!(queue.pop(1).as_deref(), Some(&b"new"[..]));
    assert_eq!(drops.get(Drop::QueueExpired), 1);
}

#[test]
fn the_queue_of_a_removed_peer_is_counted() {
    let (mut queue, mut drops, now) = (Queue::default(), Drops::new(), Instant::now());
    queue.push(1, b"packet", now, &mut drops);

    queue.remove(1, &mut drops);

    assert_eq!((queue.bytes, drops.get(Drop::NoPeer)), (0, 1));
}
