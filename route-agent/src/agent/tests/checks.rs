//! Checks of the way, asked and answered through the kernel.

use super::*;
use crate::path::message::{self, Message, Token};
use ebpf_common::settings::REFLECTOR_PORT;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// For what happens at once, on a busy machine.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn a_remote_node_is_answered_under_the_address_that_it_asked() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        gateway.namespace.run(
            "ip neigh add 10.70.255.255 lladdr 02:6c:71:00:00:01 dev liqo-overlay nud permanent",
        );
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;
        let remote = at(&gateway, Ipv4Addr::new(10, 245, 1, 10));
        let reflector = SocketAddrV4::new(Ipv4Addr::new(10, 70, 255, 255), REFLECTOR_PORT);

        let question = message::question(Token::new(7));
        remote.send_to(&question, reflector).await.unwrap();

        let (answer, from) = receive(&remote).await.unwrap();
        assert_eq!(from, SocketAddr::from(reflector));
        assert_eq!(answer, message::answer(Token::new(7)));
        // Nonsense is not answered, and neither are answers: two nodes would never stop.
        for nonsense in [&answer[..], &question[1..], b"?"] {
            remote.send_to(nonsense, reflector).await.unwrap();
        }
        remote.send_to(&question, reflector).await.unwrap();
        receive(&remote).await.unwrap();
        let more = timeout(Duration::from_millis(300), receive(&remote)).await;
        assert!(more.is_err(), "{more:?}");
    });
}

#[test]
fn a_way_is_whole_as_long_as_a_remote_node_answers() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;
        let target = reflector_of_milan(&agent);
        gateway
            .namespace
            .run(&format!("ip addr add {target}/32 dev liqo-overlay"));
        let remote = at(&gateway, target);

        let answering = tokio::spawn(async move {
            loop {
                let (question, from) = answer_to(&remote).await;
                remote.send_to(&question, from).await.unwrap();
            }
        });
        let is = |up: Option<bool>| move |status: &Status| status.peers[0].path_up == up;
        agent.eventually("found a whole way", is(Some(true))).await;
        answering.abort();
        agent.eventually("lost the way", is(Some(false))).await;
    });
}

#[test]
fn a_port_that_is_taken_keeps_nobody_from_running() {
    in_netns(async || {
        let _gateway = Gateway::new(1);
        let _foreign = std::net::UdpSocket::bind(("0.0.0.0", REFLECTOR_PORT)).unwrap();

        let agent = Running::start().await;

        agent.reaches(&["gw-1"]).await;
        assert_eq!(agent.status.read().peers[0].path_up, None);
    });
}

/// A socket behind the tunnel.
fn at(gateway: &Gateway, address: Ipv4Addr) -> UdpSocket {
    let socket = gateway.namespace.with(move || {
        let socket = std::net::UdpSocket::bind((address, REFLECTOR_PORT)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    });
    UdpSocket::from_std(socket).unwrap()
}

async fn receive(socket: &UdpSocket) -> Option<(Vec<u8>, SocketAddr)> {
    let mut datagram = [0; 64];
    let received = timeout(SOON, socket.recv_from(&mut datagram)).await.ok()?;
    let (len, from) = received.ok()?;

    Some((datagram[..len].to_vec(), from))
}

/// The answer to the next question, and where it goes.
async fn answer_to(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    loop {
        let Some((question, from)) = receive(socket).await else {
            continue;
        };
        if let Some(Message::Question(token)) = message::parse(&question) {
            return (message::answer(token).to_vec(), from);
        }
    }
}

/// The last address of milan's external CIDR as seen here.
fn reflector_of_milan(agent: &Running) -> Ipv4Addr {
    let cidrs = &agent.status.read().peers[0].cidrs;
    let external: Ipv4Net = cidrs.last().unwrap().parse().unwrap();
    external.broadcast()
}
