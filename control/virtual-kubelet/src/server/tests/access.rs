//! Requests of users with and without rights.

use super::certificates::{Authority, Issued, SERVER};
use super::client::Stream;
use super::fixture::{Running, get, nothing};

async fn sent(server: &Running, client: Option<&Issued>, request: &str) -> (u16, String, String) {
    let mut stream = Stream::connect(server.address, client).await;
    stream.send(request).await;
    stream.response().await
}

fn bearer(path: &str, token: &str) -> String {
    get(path, &format!("Authorization: Bearer {token}\r\n"))
}

#[tokio::test]
async fn a_request_without_credentials_is_unauthorized_whatever_its_path() {
    let server = Running::start(nothing).await;
    for path in [
        "/healthz",
        "/pods",
        "/metrics",
        "/unknown",
        "/containerLogs/shop/web/web",
    ] {
        let (status, head, body) = sent(&server, None, &get(path, "")).await;
        assert_eq!((status, &*body), (401, "Unauthorized\n"), "{path}");
        assert!(head.contains("www-authenticate: Bearer"), "{head}");
    }
    let basic = get("/healthz", "Authorization: Basic YWRtaW46YWRtaW4=\r\n");
    assert_eq!(sent(&server, None, &basic).await.0, 401);
    let stranger = bearer("/healthz", "stranger");
    assert_eq!(sent(&server, None, &stranger).await.0, 401);
    assert_eq!(server.reviews(), Vec::<String>::new());
}

#[tokio::test]
async fn a_certificate_that_the_authority_has_not_issued_for_clients_is_unauthorized() {
    let server = Running::start(nothing).await;
    let other = Authority::new("kubernetes");
    let (forged, of_server) = (
        other.client("apiserver", &["masters"]),
        server.trusted.issue("apiserver", &[], SERVER),
    );
    for client in [&forged, &of_server] {
        let (status, _, body) = sent(&server, Some(client), &get("/pods", "")).await;
        assert_eq!((status, &*body), (401, "Unauthorized\n"));
    }
    // The token counts then, as at a kubelet.
    let (status, _, body) = sent(&server, Some(&forged), &bearer("/healthz", "admin")).await;
    assert_eq!((status, &*body), (200, "ok"));
    assert_eq!(server.reviews(), ["admin: get healthz"]);
}

#[tokio::test]
async fn a_replaced_authority_counts_for_connections_that_are_open() {
    let server = Running::start(nothing).await;
    let mut stream = server.connect().await;
    let keep = "GET /healthz HTTP/1.1\r\nHost: milan\r\n\r\n";
    stream.send(keep).await;
    stream.until("\r\n\r\nok").await;

    server.authority.set(&Authority::new("next").pem()).unwrap();

    stream.send(&get("/healthz", "")).await;
    assert_eq!(stream.response().await.0, 401);
}

#[tokio::test]
async fn a_user_has_the_rights_that_the_api_server_grants() {
    let server = Running::start(nothing).await;

    let (status, _, body) = sent(&server, None, &bearer("/pods", "scraper")).await;
    assert_eq!(status, 403);
    assert!(
        body.contains("Forbidden (user=scraper, verb=get, resource=nodes, subresource=pods or proxy, name=milan)"),
        "{body}"
    );
    let metrics = sent(&server, None, &bearer("/metrics/resource", "scraper")).await;
    assert_eq!(metrics.0, 200, "{}", metrics.2);
    let exec = "/exec/shop/web/web?command=ls&output=1";
    assert_eq!(sent(&server, None, &bearer(exec, "scraper")).await.0, 403);

    assert_eq!(
        server.reviews(),
        [
            "scraper: get pods",
            "scraper: get proxy",
            "scraper: get metrics",
            "scraper: create proxy",
        ]
    );
    assert_eq!(server.forwarded().len(), 1);
    assert_eq!(server.metrics.count("exec", 403), 1);
}

#[tokio::test]
async fn decisions_are_remembered_for_a_short_time() {
    let server = Running::start(nothing).await;

    for _ in 0..3 {
        assert_eq!(
            sent(&server, None, &bearer("/healthz", "admin")).await.0,
            200
        );
        assert_eq!(
            sent(&server, None, &bearer("/healthz", "guest")).await.0,
            403
        );
        assert_eq!(
            sent(&server, None, &bearer("/healthz", "stranger")).await.0,
            401
        );
    }

    let received = server.home.received();
    let tokens = received
        .iter()
        .filter(|it| it.target.contains("tokenreviews"));
    assert_eq!(tokens.count(), 3);
    assert_eq!(
        server.reviews(),
        [
            "admin: get healthz",
            "guest: get healthz",
            "guest: get proxy"
        ]
    );
}

#[tokio::test]
async fn a_review_that_fails_permits_nothing_and_is_not_remembered() {
    let server = Running::start(nothing).await;

    for _ in 0..2 {
        let (status, _, body) = sent(&server, None, &bearer("/healthz", "broken")).await;
        assert_eq!(status, 503);
        assert!(body.contains("retry"), "{body}");
    }

    let received = server.home.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0].headers["authorization"], "Bearer of-home");
}
