//! Tests with sockets: a proxy, an API server that echoes, and clients on addresses of 127.0.0.0/8.

use super::*;
use fixture::{Client, Fixture, connect, full_listener, settings, soon, unused_address};
use tokio::net::TcpListener;

mod fixture;
mod limits;
mod stop;

#[tokio::test]
async fn every_target_leads_to_the_api_server() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other_address = other.local_addr().unwrap().to_string();
    let fixture = Fixture::start(|_| {}).await;

    for target in [&other_address, "kubernetes.invalid:443", "127.0.0.1:1"] {
        let mut client = fixture.client().await;
        client.send(connect(target).as_bytes()).await;
        client.expect(ESTABLISHED).await;
        client.send(b"ping").await;
        client.expect("ping").await;
    }

    assert_eq!(fixture.dials(), 3);
    let reached = tokio::select! {
        biased;
        _ = other.accept() => true,
        () = std::future::ready(()) => false,
    };
    assert!(!reached, "the proxy has connected to the target");
}

#[tokio::test]
async fn data_that_a_client_sends_before_the_response_is_forwarded() {
    let fixture = Fixture::start(|_| {}).await;
    let mut client = fixture.client().await;

    let request = format!("{}early\r\n\r\n", connect("x:443"));
    client.send(request.as_bytes()).await;

    client.expect(ESTABLISHED).await;
    client.expect("early\r\n\r\n").await;
}

#[tokio::test]
async fn a_request_may_arrive_in_pieces() {
    let fixture = Fixture::start(|_| {}).await;
    let mut client = fixture.client().await;

    for byte in connect("x:443").bytes() {
        client.send(&[byte]).await;
    }

    client.expect(ESTABLISHED).await;
}

#[tokio::test]
async fn requests_that_are_not_connect_are_refused_without_a_dial() {
    let fixture = Fixture::start(|_| {}).await;

    for (request, status) in [
        (
            "GET http://example.com/ HTTP/1.1\r\n\r\n",
            "405 Method Not Allowed\r\nAllow: CONNECT\r\n",
        ),
        (
            &format!("POST / HTTP/1.1\r\n\r\n{}", "x".repeat(32_768)),
            "405 ",
        ),
        ("\x16\x03\x01\r\n\r\n", "400 "),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 "),
        (&"x".repeat(request::HEAD_LEN_MAX), "431 "),
    ] {
        let mut client = fixture.client().await;
        client.send(request.as_bytes()).await;
        let response = client.rest().await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}")),
            "{response}"
        );
    }

    assert_eq!(fixture.dials(), 0);
    let metrics = fixture.metrics();
    for line in [
        "connections_refused_total{reason=\"method\"} 2",
        "connections_refused_total{reason=\"malformed_request\"} 1",
        "connections_refused_total{reason=\"version\"} 1",
        "connections_refused_total{reason=\"long_head\"} 1",
        "connections_accepted_total 0",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn an_unreachable_api_server_is_a_bad_gateway() {
    let mut settings = settings();
    settings.api_server = unused_address().to_string();
    let fixture = Fixture::with(settings).await;
    let mut client = fixture.client().await;

    client.send(connect("x:443").as_bytes()).await;

    let response = client.rest().await;
    assert!(
        response.starts_with("HTTP/1.1 502 Bad Gateway\r\n"),
        "{response}"
    );
}

#[tokio::test]
async fn a_dial_that_takes_too_long_is_a_bad_gateway() {
    let (_full, api_server) = full_listener().await;
    let mut settings = settings();
    settings.api_server = api_server.to_string();
    settings.timeouts.dial = Duration::from_millis(50);
    let fixture = Fixture::with(settings).await;
    let mut client = fixture.client().await;

    client.send(connect("x:443").as_bytes()).await;

    let response = client.rest().await;
    assert!(
        response.starts_with("HTTP/1.1 502 Bad Gateway\r\n"),
        "{response}"
    );
}

#[tokio::test]
async fn closing_one_side_closes_the_other() {
    let fixture = Fixture::start(|_| {}).await;
    let mut client = fixture.connected().await;

    client.send(b"last").await;
    client.end().await;

    // The echoing server ends its direction once it has read the end of the client's.
    assert_eq!(client.rest().await, "last");
    fixture
        .until("connections_ended_total{reason=\"closed\"} 1")
        .await;
    fixture.until("connections_active 0").await;
    let metrics = fixture.metrics();
    for direction in ["to_api_server", "to_client"] {
        let line = format!("relayed_bytes_total{{direction=\"{direction}\"}} 4");
        assert!(metrics.lines().any(|it| it == line), "{line}\n{metrics}");
    }
}

/// The server cannot send what the client does not read, and stops reading then.
#[tokio::test]
async fn data_that_the_receiver_does_not_read_is_not_buffered() {
    const LEN: usize = 256 * 1024 * 1024;
    let fixture = Fixture::start(|_| {}).await;
    let mut client = fixture.connected().await;

    let chunk = vec![7; 1024 * 1024];
    let mut sent = 0;
    while sent < LEN {
        // Much longer than a chunk takes while buffers have space.
        let piece = tokio::time::timeout(Duration::from_secs(1), client.send_some(&chunk));
        match piece.await {
            Ok(length) => sent += length,
            Err(_) => break,
        }
    }

    assert!(sent < LEN, "{sent} bytes were buffered");
    let received = soon(client.receive(sent)).await;
    assert!(received.iter().all(|&byte| byte == 7));
}

/// The first line of the proxy's response to a request that it accepts.
const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

async fn established(fixture: &Fixture, source: &str) -> Client {
    let mut client = fixture.client_from(source).await;
    client.send(connect("x:443").as_bytes()).await;
    client.expect(ESTABLISHED).await;
    client
}
