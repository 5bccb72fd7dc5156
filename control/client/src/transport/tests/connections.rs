//! Connections that fail without an error, and connections that are replaced.

use super::pool::{HTTP1_MAX, PING_INTERVAL, PING_TIMEOUT};
use super::*;
use tokio::time::{Instant, timeout};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";
const POD: &str = "/api/v1/pods/a";
const PODS: &str = "/api/v1/pods?watch=true";

/// Returns a transport through a relay.
async fn relayed(server: &Server) -> (Relay, Transport) {
    let relay = Relay::start(server).await;
    let transport =
        Transport::new(&relay.config(server), Destinations::Any).expect("a valid configuration");
    (relay, transport)
}

/// Waits under virtual time until a request fails at its deadline.
async fn expect_deadline(transport: &Transport, path: &str, kind: Kind) {
    tokio::time::pause();
    let error = get(transport, path).await.expect_err("no response");
    tokio::time::resume();
    let error = error.downcast_ref::<DeadlineError>();
    assert_eq!(error.expect("a DeadlineError").kind, kind);
}

fn patch(path: &str) -> Request<Body> {
    let request = Request::patch(path).body(Body::from(b"{}".to_vec()));
    request.expect("a valid request")
}

#[tokio::test]
async fn requests_use_another_connection_after_one_without_response() {
    let server = Server::start(Protocols::Http2, 100).await;
    let (relay, transport) = relayed(&server).await;
    for path in [LEASE, POD] {
        get(&transport, path).await.expect("a response");
    }
    assert_eq!(relay.accepted(), 2);
    relay.silence();

    expect_deadline(&transport, LEASE, Kind::Lease).await;
    expect_deadline(&transport, POD, Kind::Read).await;

    for path in [LEASE, POD] {
        get(&transport, path).await.expect("a response");
    }
    assert_eq!((relay.accepted(), transport.connections()), (4, 2));
}

#[tokio::test]
async fn a_shorter_time_than_that_of_the_kind_ends_the_request_and_the_use_of_its_connection() {
    let server = Server::start(Protocols::Http2, 100).await;
    let (relay, transport) = relayed(&server).await;
    let probe = |seconds| {
        let mut request = request(POD);
        let limit = TimeLimit(Duration::from_secs(seconds));
        request.extensions_mut().insert(limit);
        transport.clone().oneshot(request)
    };
    probe(5).await.expect("a response");
    for (seconds, limit) in [(5, 5), (60, Kind::Read.deadline().as_secs())] {
        relay.silence();
        tokio::time::pause();
        let error = probe(seconds).await.expect_err("no response");
        tokio::time::resume();
        let error = error.downcast_ref::<DeadlineError>();
        assert_eq!(error.expect("a DeadlineError").limit.as_secs(), limit);

        probe(5).await.expect("a response on another connection");
    }
}

#[tokio::test]
async fn a_lease_request_does_not_wait_for_the_connection_of_another_request() {
    for protocols in [Protocols::Http2, Protocols::Http1] {
        let server = Server::start(protocols, 100).await;
        let (relay, transport) = relayed(&server).await;
        relay.hold(0..1);
        let read = tokio::spawn(transport.clone().oneshot(request(POD)));
        let accepted = timeout(PROMPT, relay.accepts(1)).await;
        accepted.expect("a connection in time");

        get(&transport, LEASE).await.expect("a response");

        relay.hold(0..0);
        let read = timeout(PROMPT, read).await.expect("an end in time");
        read.expect("no panic").expect("a response");
    }
}

#[tokio::test]
async fn requests_go_on_although_another_of_their_connection_has_no_response() {
    let server = Server::start(Protocols::Http2, 100).await;
    let transport = transport(&server);
    get(&transport, POD).await.expect("a response");
    let write = tokio::spawn(transport.clone().oneshot(patch("/delayed")));
    let received = timeout(PROMPT, server.received(2)).await;
    received.expect("the write in time");

    expect_deadline(&transport, "/hang", Kind::Read).await;

    get(&transport, POD).await.expect("a response");
    assert_eq!(server.accepted(), 2);
    server.reply_to_delayed();
    let write = timeout(PROMPT, write).await.expect("an end in time");
    write.expect("no panic").expect("a response");
}

#[tokio::test]
async fn a_connection_without_reply_to_a_ping_is_closed_and_the_watch_resumes() {
    let server = Server::start(Protocols::Http2, 100).await;
    let (relay, transport) = relayed(&server).await;
    let mut watch = get(&transport, PODS).await.expect("a watch");
    let event = watch.frame().await.expect("a first event");
    event.expect("no error");
    relay.silence();
    tokio::time::pause();
    let began = Instant::now();

    let end = watch.frame().await.expect("an error");

    end.expect_err("an error");
    let second = Duration::from_secs(1);
    let expected = PING_INTERVAL + PING_TIMEOUT;
    let elapsed = began.elapsed();
    assert!(elapsed > expected - second && elapsed < expected + second);
    tokio::time::resume();
    let mut watch = get(&transport, PODS).await.expect("a watch");
    let event = watch.frame().await.expect("an event");
    event.expect("no error");
    assert_eq!(relay.accepted(), 2);
}

#[tokio::test]
async fn http2_is_offered_again_some_minutes_after_the_server_chose_http1() {
    let server = Server::start(Protocols::Http1, 100).await;
    let transport = transport(&server);
    let version = async || {
        let response = get(&transport, POD).await.expect("a response");
        response.version()
    };
    assert_eq!(version().await, http::Version::HTTP_11);
    server.offer(Protocols::Http2);
    assert_eq!(version().await, http::Version::HTTP_11);

    tokio::time::pause();
    tokio::time::advance(HTTP1_MAX).await;
    tokio::time::resume();

    assert_eq!(version().await, http::Version::HTTP_2);
}

#[tokio::test]
async fn a_write_in_flight_while_credentials_are_replaced_ends_once_and_is_sent_once() {
    for protocols in [Protocols::Http2, Protocols::Http1] {
        let server = Server::start(protocols, 100).await;
        let transport =
            Transport::new(&with_token(&server, "old"), Destinations::Any).expect("a transport");
        let write = tokio::spawn(transport.clone().oneshot(patch("/delayed")));
        let received = timeout(PROMPT, server.received(1)).await;
        received.expect("the write in time");

        let new = with_token(&server, "new");
        transport.replace(&new).expect("a valid configuration");
        server.reply_to_delayed();

        let end = timeout(PROMPT, write).await.expect("an end in time");
        let error = end.expect("no panic").expect_err("an unknown outcome");
        assert!(error.is::<ReplacedError>(), "{error:?}");
        get(&transport, POD).await.expect("a response");
        assert_eq!(server.requests(), ["PATCH /delayed", "GET /api/v1/pods/a"]);
    }
}

#[tokio::test]
async fn a_write_that_waits_for_a_connection_while_credentials_are_replaced_is_not_sent() {
    for protocols in [Protocols::Http2, Protocols::Http1] {
        let server = Server::start(protocols, 100).await;
        let (relay, transport) = relayed(&server).await;
        relay.hold(0..usize::MAX);
        let write = tokio::spawn(transport.clone().oneshot(patch(POD)));
        let accepted = timeout(PROMPT, relay.accepts(1)).await;
        accepted.expect("a connection in time");

        let new = with_token(&server, "new");
        transport.replace(&new).expect("a valid configuration");
        relay.hold(0..0);

        let end = timeout(PROMPT, write).await.expect("an end in time");
        let error = end.expect("no panic").expect_err("not sent");
        assert!(error.is::<ReplacedError>(), "{error:?}");
        get(&transport, POD).await.expect("a response");
        assert_eq!(server.requests(), ["GET /api/v1/pods/a"]);
    }
}

#[tokio::test]
async fn the_responses_of_a_cluster_are_limited_together() {
    let server = Server::start(Protocols::Http2, 100).await;
    let transport = transport(&server);
    let mut watches = Vec::new();
    for _ in 0..40 {
        watches.push(get(&transport, "/flood?watch=true").await.expect("a watch"));
    }

    let error = 'end: loop {
        for watch in &mut watches {
            let frame = timeout(PROMPT, watch.frame()).await;
            if let Err(error) = frame.expect("a frame in time").expect("no end") {
                break 'end error;
            }
        }
    };

    assert_eq!(error.downcast_ref(), Some(&LimitError::Sum));
    drop(watches);
    let response = get(&transport, POD).await.expect("a response");
    response.into_body().collect().await.expect("a body");
}
