//! Tests that send echo requests and replies through the kernel.

use super::*;
use crate::path::message::{self, Message, Token};
use ebpf_common::settings::ECHO_RESPONDER_PORT;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// Time-out for the receipt of a datagram. On an idle machine, it arrives at once.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn an_echo_reply_comes_from_the_address_of_the_request() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        gateway.namespace.run(
            "ip neigh add 10.70.255.255 lladdr 02:6c:71:00:00:01 dev liqo-overlay nud permanent",
        );
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;
        let remote = at(&gateway, Ipv4Addr::new(10, 245, 1, 10));
        let echo = SocketAddrV4::new(Ipv4Addr::new(10, 70, 255, 255), ECHO_RESPONDER_PORT);

        let request = message::request(Token::new(7));
        remote.send_to(&request, echo).await.unwrap();

        let (reply, from) = receive(&remote).await.unwrap();
        assert_eq!(from, SocketAddr::from(echo));
        assert_eq!(reply, message::reply(Token::new(7)));
        // A reply to a reply would make two nodes exchange messages forever.
        for other in [&reply[..], &request[1..], b"?"] {
            remote.send_to(other, echo).await.unwrap();
        }
        remote.send_to(&request, echo).await.unwrap();
        receive(&remote).await.unwrap();
        let more = timeout(Duration::from_millis(300), receive(&remote)).await;
        assert!(more.is_err(), "{more:?}");
    });
}

#[test]
fn a_path_is_up_as_long_as_a_remote_node_replies() {
    in_netns(async || {
        let gateway = Gateway::new(1);
        let agent = Running::start().await;
        agent.reaches(&["gw-1"]).await;
        let target = echo_address_of_milan(&agent);
        gateway
            .namespace
            .run(&format!("ip addr add {target}/32 dev liqo-overlay"));
        let remote = at(&gateway, target);

        let responder = tokio::spawn(async move {
            loop {
                let (reply, from) = next_reply(&remote).await;
                remote.send_to(&reply, from).await.unwrap();
            }
        });
        let is = |up: Option<bool>| move |status: &Status| status.peers[0].path_up == up;
        agent.eventually("found the path up", is(Some(true))).await;
        responder.abort();
        agent
            .eventually("found the path down", is(Some(false)))
            .await;
    });
}

#[test]
fn the_agent_runs_although_the_echo_port_is_in_use() {
    in_netns(async || {
        let _gateway = Gateway::new(1);
        let _foreign = std::net::UdpSocket::bind(("0.0.0.0", ECHO_RESPONDER_PORT)).unwrap();

        let agent = Running::start().await;

        agent.reaches(&["gw-1"]).await;
        assert_eq!(agent.status.read().peers[0].path_up, None);
    });
}

/// Opens the echo socket of a remote node with this address.
fn at(gateway: &Gateway, address: Ipv4Addr) -> UdpSocket {
    let socket = gateway.namespace.with(move || {
        let socket = std::net::UdpSocket::bind((address, ECHO_RESPONDER_PORT)).unwrap();
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

/// Receives the next request. Returns the reply to the request and the reply's destination.
async fn next_reply(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    loop {
        let Some((request, from)) = receive(socket).await else {
            continue;
        };
        if let Some(Message::Request(token)) = message::parse(&request) {
            return (message::reply(token).to_vec(), from);
        }
    }
}

/// Returns the last address of milan's remapped external CIDR, which is the echo address.
fn echo_address_of_milan(agent: &Running) -> Ipv4Addr {
    let cidrs = &agent.status.read().peers[0].cidrs;
    let external: Ipv4Net = cidrs.last().unwrap().parse().unwrap();
    external.broadcast()
}
