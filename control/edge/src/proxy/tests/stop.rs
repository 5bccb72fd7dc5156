//! Tests of the end of the process.

use super::super::*;
use super::established;
use super::fixture::{Fixture, soon};

/// Number of repetitions that take much longer than a step of the proxy.
const MANY: usize = 300;

#[tokio::test]
async fn a_stopping_proxy_waits_for_open_connections() {
    let mut fixture = Fixture::start(|_| {}).await;
    let mut client = fixture.connected().await;
    assert!(fixture.is_ready());

    fixture.stop();
    fixture.until_not_ready().await;
    for _ in 0..MANY {
        client.send(b"ping").await;
        client.expect("ping").await;
    }
    assert!(!fixture.has_ended());
    drop(client);

    fixture.ended().await;
}

#[tokio::test]
async fn open_connections_are_closed_at_the_leave_timeout() {
    let mut fixture = Fixture::start(|settings| {
        settings.leave_timeout = Duration::from_millis(50);
    })
    .await;
    let mut client = fixture.connected().await;

    fixture.stop();

    client.closed().await;
    fixture.ended().await;
}

/// Nodes forward connections to a pod until they know that it is not ready.
#[tokio::test]
async fn a_stopping_proxy_accepts_clients_at_first() {
    let mut fixture = Fixture::start(|settings| {
        settings.accept_after_stop = settings.leave_timeout;
    })
    .await;

    fixture.stop();
    fixture.until_not_ready().await;

    for _ in 0..MANY {
        established(&fixture, "127.0.0.1").await;
    }
}

#[tokio::test]
async fn a_stopping_proxy_refuses_clients_later() {
    let mut fixture = Fixture::start(|settings| {
        settings.accept_after_stop = Duration::from_millis(50);
    })
    .await;
    let client = fixture.connected().await;

    fixture.stop();

    let refused = async { while fixture.try_client_from("127.0.0.1").await.is_ok() {} };
    soon(refused).await;
    assert!(!fixture.has_ended());
    drop(client);
    fixture.ended().await;
}
