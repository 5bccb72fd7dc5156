//! Logs of containers.

use super::fake::{json, reply, streamed};
use super::fixture::{DEADLINE, Running, eventually, get};
use serde_json::json as object;
use std::sync::Mutex;
use tokio::time::timeout;

#[tokio::test]
async fn a_log_is_forwarded_with_its_options_and_any_length() {
    let server = Running::start(|_| reply(200, vec![b'x'; 40 << 20])).await;

    let path = "/containerLogs/shop/web/web?tailLines=5&timestamps=true&unknown=1";
    let mut stream = server.connect().await;
    stream.send(&get(path, "")).await;
    let (head, body) = (stream.head().await, stream.end().await);

    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("content-type: text/plain"), "{head}");
    assert_eq!(body.matches('x').count(), 40 << 20);
    assert_eq!(
        server.forwarded(),
        ["GET /api/v1/namespaces/shop-rome/pods/web/log?container=web&tailLines=5&timestamps=true"]
    );
    assert_eq!(server.reviews(), ["apiserver: get proxy"]);
    assert_eq!(server.metrics.open().1, 0);
}

#[tokio::test]
async fn lines_of_a_log_that_is_followed_arrive_as_they_are_written() {
    let (response, lines) = streamed();
    let response = Mutex::new(Some(response));
    let server = Running::start(move |_| response.lock().unwrap().take().unwrap()).await;
    let mut stream = server.connect().await;

    let path = "/containerLogs/shop/web/web?follow=true";
    stream.send(&get(path, "")).await;
    lines.send("first\n".to_owned()).unwrap();

    stream.until("first\n").await;
    assert_eq!(server.metrics.open(), (1, 1));
    lines.send("second\n".to_owned()).unwrap();
    stream.until("second\n").await;
    drop(lines);
    stream.end().await;
    eventually(|| server.metrics.open() == (0, 0)).await;
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_log_at_the_provider() {
    let (response, lines) = streamed();
    let response = Mutex::new(Some(response));
    let server = Running::start(move |_| response.lock().unwrap().take().unwrap()).await;
    let mut stream = server.connect().await;
    stream
        .send(&get("/containerLogs/shop/web/web?follow=true", ""))
        .await;
    lines.send("first\n".to_owned()).unwrap();
    stream.until("first\n").await;

    drop(stream);

    timeout(DEADLINE, server.provider.ends(1)).await.unwrap();
    eventually(|| server.metrics.open() == (0, 0)).await;
}

#[tokio::test]
async fn a_refusal_is_the_message_of_the_provider() {
    let server = Running::start(|_| {
        let message = "container \"web\" in pod \"web\" is waiting to start: ContainerCreating";
        json(
            400,
            &object!({"kind": "Status", "code": 400, "message": message}),
        )
    })
    .await;

    let (status, head, body) = server.get("/containerLogs/shop/web/web").await;

    assert_eq!(status, 400);
    assert!(head.contains("text/plain"), "{head}");
    assert_eq!(
        body,
        "container \"web\" in pod \"web\" is waiting to start: ContainerCreating\n"
    );
}
