//! Tests of the limits: time, and number of connections.

use super::super::*;
use super::established;
use super::fixture::{Fixture, connect};

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_head_that_is_not_complete_in_time_is_refused() {
    let fixture = Fixture::start(|settings| settings.timeouts.head = SHORT).await;
    let mut silent = fixture.client().await;
    let mut slow = fixture.client().await;

    slow.send(b"CONNECT x:443 HTTP/1.1\r\n").await;

    for client in [&mut silent, &mut slow] {
        let response = client.rest().await;
        assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    }
    assert_eq!(fixture.dials(), 0);
    fixture
        .until("connections_refused_total{reason=\"head_timeout\"} 2")
        .await;
}

#[tokio::test]
async fn the_time_limit_of_the_head_is_not_extended_by_bytes() {
    let fixture = Fixture::start(|settings| settings.timeouts.head = SHORT).await;
    let mut client = fixture.client().await;

    client.send(b"CONNECT x:443 HTTP/1.1\r\n").await;
    // Ends when the proxy has closed the connection, since the head never ends.
    while client.try_send(b"X: y\r\n").await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    fixture
        .until("connections_refused_total{reason=\"head_timeout\"} 1")
        .await;
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let fixture = Fixture::start(|settings| settings.timeouts.idle = SHORT).await;
    let mut client = fixture.connected().await;

    client.closed().await;

    fixture
        .until("connections_ended_total{reason=\"idle\"} 1")
        .await;
    fixture.until("connections_active 0").await;
}

#[tokio::test]
async fn a_connection_with_data_is_not_idle() {
    let idle = Duration::from_secs(1);
    let fixture = Fixture::start(|settings| settings.timeouts.idle = idle).await;
    let mut client = fixture.connected().await;

    let start = std::time::Instant::now();
    while start.elapsed() < idle * 2 {
        client.send(b"ping").await;
        client.expect("ping").await;
    }

    fixture.until("connections_active 1").await;
}

#[tokio::test]
async fn a_half_closed_connection_is_closed_sooner() {
    let api_server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = api_server.local_addr().unwrap().to_string();
    let fixture = Fixture::start(|settings| {
        settings.timeouts.half_closed = SHORT;
        // A server that does not end its direction.
        settings.api_server = address;
    })
    .await;
    let mut client = fixture.connected().await;
    let _open = api_server.accept().await.unwrap();

    client.end().await;
    client.closed().await;

    fixture
        .until("connections_ended_total{reason=\"half_closed\"} 1")
        .await;
}

#[tokio::test]
async fn a_source_has_a_limited_number_of_connections() {
    let fixture = Fixture::start(|settings| settings.limits.per_source = 2).await;
    let first = fixture.connected().await;
    // Also a connection without a request counts.
    let _second = fixture.client().await;
    fixture.until("connections_active 2").await;

    let mut third = fixture.client().await;
    let refused = third.rest().await;
    let mut other_source = established(&fixture, "127.0.0.2").await;
    drop(first);
    fixture.until("connections_active 2").await;
    let _fourth = fixture.connected().await;

    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    other_source.send(b"ping").await;
    other_source.expect("ping").await;
    fixture
        .until("connections_refused_total{reason=\"limit_per_source\"} 1")
        .await;
}

#[tokio::test]
async fn the_number_of_all_connections_is_limited() {
    let fixture = Fixture::start(|settings| settings.limits.total = 2).await;
    let _first = established(&fixture, "127.0.0.1").await;
    let _second = established(&fixture, "127.0.0.2").await;

    let mut third = fixture.client_from("127.0.0.3").await;
    let refused = third.rest().await;

    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    fixture
        .until("connections_refused_total{reason=\"limit\"} 1")
        .await;
}

#[tokio::test]
async fn a_client_that_leaves_before_its_request_frees_its_slot() {
    let fixture = Fixture::start(|settings| settings.limits.total = 1).await;
    let client = fixture.client().await;
    fixture.until("connections_active 1").await;

    drop(client);

    fixture.until("connections_active 0").await;
    let mut next = fixture.client().await;
    next.send(connect("x:443").as_bytes()).await;
    next.expect(super::ESTABLISHED).await;
}
