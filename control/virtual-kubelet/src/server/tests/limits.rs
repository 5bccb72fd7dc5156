//! Clients that are slow, send too much, or open too many connections.

use super::client::Stream;
use super::fixture::{DEADLINE, Running, eventually, get, nothing};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(200);

async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 256];
    let read = timeout(DEADLINE, async {
        while matches!(stream.read(&mut buffer).await, Ok(read) if read > 0) {}
    });
    read.await.is_ok()
}

#[tokio::test]
async fn a_client_without_a_handshake_is_closed() {
    let server = Running::limited(nothing, |it| it.timeouts.start = SHORT).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    assert!(is_closed(&mut silent).await);
    eventually(|| server.metrics.refusals("handshake_timeout") == 1).await;

    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(is_closed(&mut plain).await);
    eventually(|| server.metrics.refusals("handshake") == 1).await;
    assert_eq!(server.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn a_client_with_a_slow_header_is_closed() {
    let server = Running::limited(nothing, |it| it.timeouts.start = SHORT).await;
    let mut stream = server.connect().await;
    stream.send("GET /healthz HTTP/1.1\r\nHost: mi").await;

    assert_eq!(stream.end().await, "");

    eventually(|| server.metrics.refusals("request_timeout") == 1).await;
}

#[tokio::test]
async fn a_connection_without_further_requests_is_closed() {
    let server = Running::limited(nothing, |it| it.timeouts.idle = SHORT).await;
    let mut stream = server.connect().await;
    stream
        .send("GET /healthz HTTP/1.1\r\nHost: milan\r\n\r\n")
        .await;

    assert!(stream.end().await.ends_with("ok"));
    eventually(|| server.metrics.open().0 == 0).await;
}

#[tokio::test]
async fn a_connection_ends_with_a_request_that_is_not_authenticated() {
    let server = Running::start(nothing).await;
    let mut stream = Stream::connect(server.address, None).await;
    stream
        .send("GET /healthz HTTP/1.1\r\nHost: milan\r\n\r\n")
        .await;

    assert!(stream.end().await.starts_with("HTTP/1.1 401"));
    eventually(|| server.metrics.open().0 == 0).await;
}

#[tokio::test]
async fn a_huge_header_is_refused() {
    let server = Running::start(nothing).await;
    let mut stream = server.connect().await;
    let long = format!("X-Long: {}\r\n", "x".repeat(300 << 10));
    stream.send_until_closed(&get("/healthz", &long)).await;
    let response = stream.end().await;
    assert!(
        response.is_empty() || response.starts_with("HTTP/1.1 431"),
        "{response}"
    );

    let many: String = (0..100).map(|it| format!("X-{it}: a\r\n")).collect();
    let mut stream = server.connect().await;
    stream.send_until_closed(&get("/healthz", &many)).await;
    let response = stream.end().await;
    assert!(
        response.is_empty() || response.starts_with("HTTP/1.1 431"),
        "{response}"
    );
    assert_eq!(server.home.received().len(), 0);

    // A command may be long.
    let command = "x".repeat(60 << 10);
    let (status, _, body) = server
        .get(&format!("/exec/shop/web/web?command={command}"))
        .await;
    assert_eq!(status, 400, "{body}");
}

#[tokio::test]
async fn connections_of_a_source_are_limited_and_free_again_when_they_end() {
    let server = Running::limited(nothing, |it| it.connections.per_source = 1).await;
    let first = server.connect().await;

    let mut second = TcpStream::connect(server.address).await.unwrap();
    assert!(is_closed(&mut second).await);
    assert_eq!(server.metrics.refusals("limit_per_source"), 1);

    drop(first);
    eventually(|| server.metrics.open().0 == 0).await;
    let mut third = Stream::connect(server.address, Some(&server.api_server)).await;
    third.send(&get("/healthz", "")).await;
    assert_eq!(third.response().await.0, 200);
}
