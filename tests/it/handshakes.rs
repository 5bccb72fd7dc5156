//! Tests that the handshake initiators of the benchmark count correctly.

use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tests::lab::netns::Netns;
use tests::traffic::handshakes::{Initiators, Peer};

/// The interval at which the responder checks whether the test is over.
const TICK: Duration = Duration::from_millis(20);

#[test]
fn every_handshake_that_counts_as_answered_is_confirmed() {
    let here = Netns::adopt("here", File::open("/proc/thread-self/ns/net").unwrap());
    let [initiator_key, responder_key] = [[1; 32], [2; 32]].map(StaticSecret::from);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(TICK)).unwrap();
    let SocketAddr::V4(target) = socket.local_addr().unwrap() else {
        panic!("the socket is bound to an IPv4 address");
    };
    let peer = Peer {
        private: initiator_key.to_bytes(),
        responder: PublicKey::from(&responder_key).to_bytes(),
        address: Ipv4Addr::LOCALHOST,
    };
    let mut initiators = Initiators::new(&here, target, &[peer]).unwrap();
    let limiter = RateLimiter::new(&PublicKey::from(&responder_key), u64::MAX);
    let (public, limiter) = (PublicKey::from(&initiator_key), Some(Arc::new(limiter)));
    let responder = Tunn::new(responder_key, public, None, None, 7, limiter);
    let is_over = AtomicBool::new(false);

    let (counts, confirmed) = thread::scope(|scope| {
        let confirmed = scope.spawn(|| respond(&socket, responder, &is_over));
        initiators.complete_all(Duration::from_secs(5)).unwrap();
        let counts = initiators.run(Duration::from_millis(500)).unwrap();
        is_over.store(true, Ordering::Release);
        (counts, confirmed.join().unwrap())
    });

    // The upper limit holds because an initiator pauses between its handshakes.
    assert!((2..=17).contains(&counts.answered), "{counts:?}");
    assert_eq!((counts.unanswered, counts.cookies), (0, 0));
    assert_eq!(confirmed, counts.answered + 1);
}

#[test]
fn initiations_without_response_are_counted() {
    let here = Netns::adopt("here", File::open("/proc/thread-self/ns/net").unwrap());
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(target) = silent.local_addr().unwrap() else {
        panic!("the socket is bound to an IPv4 address");
    };
    let peer = Peer {
        private: [1; 32],
        responder: PublicKey::from(&StaticSecret::from([2; 32])).to_bytes(),
        address: Ipv4Addr::LOCALHOST,
    };
    let mut initiators = Initiators::new(&here, target, &[peer]).unwrap();

    let error = initiators
        .complete_all(Duration::from_millis(600))
        .unwrap_err();

    assert!(error.to_string().starts_with("1 of 1 peers"), "{error}");
    let counts = initiators.run(Duration::from_millis(600)).unwrap();
    assert_eq!((counts.answered, counts.unanswered), (0, 1), "{counts:?}");
}

/// Responds to handshakes until `is_over` is set and no message is left, and returns the number of
/// confirmed handshakes.
fn respond(socket: &UdpSocket, mut tunn: Tunn, is_over: &AtomicBool) -> u64 {
    let mut confirmed = 0;
    loop {
        let (mut message, mut buffer) = ([0; 2048], [0; 2048]);
        let Ok((len, from)) = socket.recv_from(&mut message) else {
            if is_over.load(Ordering::Acquire) {
                return confirmed;
            }
            continue;
        };
        match tunn.decapsulate(None, &message[..len], &mut buffer) {
            TunnResult::WriteToNetwork(response) => {
                socket.send_to(response, from).unwrap();
            }
            TunnResult::Done => confirmed += 1,
            other @ (TunnResult::Err(_)
            | TunnResult::WriteToTunnelV4(..)
            | TunnResult::WriteToTunnelV6(..)) => panic!("{other:?}"),
        }
    }
}
