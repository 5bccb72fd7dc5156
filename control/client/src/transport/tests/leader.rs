//! Writes that only a leader may send.

use super::*;
use crate::election::Leadership;

/// Time until the renew deadline in tests where it passes.
const LEFT: Duration = Duration::from_millis(200);

fn write(path: &str, leadership: &Leadership) -> Request<Body> {
    let request = Request::patch(path).extension(leadership.clone());
    let request = request.body(Body::from(b"{}".to_vec()));
    request.expect("a valid request")
}

fn is_not_leader(error: &BoxError) -> bool {
    cause::<NotLeaderError>(error.as_ref()).is_some()
}

async fn send(
    transport: &Transport,
    request: Request<Body>,
) -> Result<Response<ResponseBody>, BoxError> {
    let response = transport.clone().oneshot(request);
    tokio::time::timeout(PROMPT, response)
        .await
        .expect("an end in time")
}

#[tokio::test]
async fn a_write_whose_connection_opens_after_the_renew_deadline_is_not_sent() {
    for protocols in [Protocols::Http2, Protocols::Http1] {
        let server = Server::start(protocols, 100).await;
        let relay = Relay::start(&server).await;
        let transport = Transport::new(&relay.config(&server), Destinations::Any)
            .expect("a valid configuration");
        relay.hold(0..usize::MAX);

        let sent = write("/api/v1/pods/a", &Leadership::lasting(LEFT));
        let error = send(&transport, sent).await.expect_err("not sent");

        assert!(is_not_leader(&error), "{error:?}");
        relay.hold(0..0);
        send(&transport, request("/api/v1/pods/b"))
            .await
            .expect("a response");
        assert_eq!(server.requests(), ["GET /api/v1/pods/b"]);
    }
}

#[tokio::test]
async fn a_write_whose_connection_opens_after_a_renewal_is_sent() {
    for protocols in [Protocols::Http2, Protocols::Http1] {
        let server = Server::start(protocols, 100).await;
        let relay = Relay::start(&server).await;
        let transport = Transport::new(&relay.config(&server), Destinations::Any)
            .expect("a valid configuration");
        relay.hold(0..usize::MAX);
        let leadership = Leadership::lasting(LEFT);
        let sent = write("/api/v1/pods/a", &leadership);
        let response = tokio::spawn(transport.clone().oneshot(sent));

        leadership.extend(PROMPT);
        let refused = write("/api/v1/pods/b", &Leadership::lasting(LEFT * 2));
        let error = send(&transport, refused).await.expect_err("not sent");
        assert!(is_not_leader(&error), "{error:?}");
        relay.hold(0..0);

        let response = tokio::time::timeout(PROMPT, response).await;
        let response = response.expect("an end in time").expect("no panic");
        response.expect("a response");
        assert_eq!(server.requests(), ["PATCH /api/v1/pods/a"]);
    }
}

#[tokio::test]
async fn a_standby_sends_nothing_on_an_open_connection() {
    for protocols in [Protocols::Http2, Protocols::Http1] {
        let server = Server::start(protocols, 100).await;
        let transport = transport(&server);
        get(&transport, "/api/v1/pods/a").await.expect("a response");

        let request = write("/api/v1/pods/a", &Leadership::default());
        let error = send(&transport, request).await.expect_err("not sent");

        assert!(is_not_leader(&error), "{error:?}");
        assert_eq!(server.requests(), ["GET /api/v1/pods/a"]);
    }
}

/// The write is in progress at the server, so its outcome is that of the server.
#[tokio::test]
async fn a_write_that_was_sent_ends_as_the_server_replies() {
    for protocols in [Protocols::Http2, Protocols::Http1] {
        let server = Server::start(protocols, 100).await;
        let transport = transport(&server);
        get(&transport, "/api/v1/pods/a").await.expect("a response");
        let leadership = Leadership::lasting(PROMPT);
        let response = transport.oneshot(write("/delayed", &leadership));
        let response = tokio::spawn(response);
        let received = tokio::time::timeout(PROMPT, server.received(2)).await;
        received.expect("the write in time");

        leadership.extend(Duration::ZERO);
        server.reply_to_delayed();

        let response = tokio::time::timeout(PROMPT, response).await;
        let response = response.expect("an end in time").expect("no panic");
        assert_eq!(response.expect("a response").status(), 200);
    }
}
