//! exec, attach and port-forward.

use super::fake::{Reply, json, reply, switching};
use super::fixture::{Running, get, nothing};
use serde_json::json as object;

const SPDY: [(&str, &str); 3] = [
    ("connection", "Upgrade"),
    ("upgrade", "SPDY/3.1"),
    ("x-stream-protocol-version", "v4.channel.k8s.io"),
];

const SPDY_HEADERS: &str = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\
    X-Stream-Protocol-Version: channel.k8s.io\r\nAuthorization: Bearer of-a-user\r\nCookie: a=b\r\n";

const WEBSOCKET_HEADERS: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v4.channel.k8s.io, channel.k8s.io\r\n";

fn request(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: milan\r\n{headers}\r\n")
}

fn forbidden() -> Reply {
    let message = "pods \"web\" is forbidden: User \"rome\" cannot get resource \"pods/exec\"";
    let status = object!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": message});
    json(403, &status)
}

#[tokio::test]
async fn an_exec_by_spdy_passes_its_bytes_in_both_directions_unchanged() {
    let server = Running::start(|_| switching(&SPDY)).await;
    let mut stream = server.connect().await;
    let path =
        "/exec/shop/web/uid-web/web?command=sh&command=-c&command=ls+-l&input=1&output=1&tty=1";

    stream.send(&request("POST", path, SPDY_HEADERS)).await;

    let head = stream.head().await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.contains("upgrade: SPDY/3.1"), "{head}");
    assert!(
        head.contains("x-stream-protocol-version: v4.channel.k8s.io"),
        "{head}"
    );
    stream.until("greeting").await;
    stream.send("first syn_stream.").await;
    assert_eq!(stream.until(".").await, "FIRST SYN_STREAM");
    assert_eq!(server.metrics.open(), (1, 1));
    let received = server.provider.received();
    assert_eq!(
        server.forwarded(),
        [
            "POST /api/v1/namespaces/shop-rome/pods/web/exec?container=web&stdin=true&stdout=true&tty=true&\
          command=sh&command=-c&command=ls%20-l"
        ]
    );
    let headers = &received[0].headers;
    assert_eq!(headers["authorization"], "Bearer of-provider");
    assert!(!headers.contains_key("cookie"));
    let protocols: Vec<_> = headers
        .get_all("x-stream-protocol-version")
        .iter()
        .collect();
    assert_eq!(protocols, ["v4.channel.k8s.io", "channel.k8s.io"]);
    assert_eq!(server.reviews(), ["apiserver: create proxy"]);
}

#[tokio::test]
async fn a_client_that_goes_away_closes_the_stream_of_the_provider() {
    let server = Running::start(|_| switching(&SPDY)).await;
    let mut stream = server.connect().await;
    stream
        .send(&request("POST", "/portForward/shop/web", SPDY_HEADERS))
        .await;
    stream.until("greeting").await;
    assert_eq!(server.metrics.open(), (1, 1));

    drop(stream);

    let ends = server.provider.ends(1);
    tokio::time::timeout(super::fixture::DEADLINE, ends)
        .await
        .unwrap();
    super::fixture::eventually(|| server.metrics.open() == (0, 0)).await;
}

#[tokio::test]
async fn an_attach_by_websocket_keeps_key_and_subprotocol() {
    let server = Running::start(|_| {
        switching(&[
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            ("sec-websocket-protocol", "v4.channel.k8s.io"),
            ("set-cookie", "a=b"),
        ])
    })
    .await;
    let mut stream = server.connect().await;

    let path = "/attach/shop/web/web?output=1";
    stream.send(&request("GET", path, WEBSOCKET_HEADERS)).await;

    let head = stream.head().await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(
        head.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        "{head}"
    );
    assert!(
        head.contains("sec-websocket-protocol: v4.channel.k8s.io"),
        "{head}"
    );
    assert!(!head.contains("set-cookie"), "{head}");
    stream.until("greeting").await;
    let received = server.provider.received();
    assert_eq!(
        server.forwarded(),
        ["GET /api/v1/namespaces/shop-rome/pods/web/attach?container=web&stdout=true"]
    );
    assert_eq!(
        received[0].headers["sec-websocket-key"],
        "dGhlIHNhbXBsZSBub25jZQ=="
    );
    assert_eq!(
        received[0].headers["sec-websocket-protocol"],
        "v4.channel.k8s.io, channel.k8s.io"
    );
    assert_eq!(server.reviews(), ["apiserver: create proxy"]);
}

#[tokio::test]
async fn a_port_forward_names_its_ports() {
    let server = Running::start(|_| switching(&SPDY)).await;
    let mut stream = server.connect().await;

    let path = "/portForward/shop/web/uid-web?port=80,443";
    stream.send(&request("POST", path, SPDY_HEADERS)).await;

    stream.until("greeting").await;
    assert_eq!(
        server.forwarded(),
        ["POST /api/v1/namespaces/shop-rome/pods/web/portforward?ports=80&ports=443"]
    );
}

#[tokio::test]
async fn a_refusal_of_the_provider_goes_back_with_its_status() {
    let server = Running::start(|_| forbidden()).await;
    let path = "/exec/shop/web/web?command=ls&output=1";

    let by_spdy = request("POST", path, SPDY_HEADERS).replace("Cookie: a=b", "X-A: b");
    let mut stream = server.connect().await;
    stream.send(&by_spdy).await;
    let head = stream.head().await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    assert!(head.contains("application/json"), "{head}");
    let message = stream.until("\"reason\"").await;
    assert!(message.contains("cannot get resource"), "{message}");
    assert!(!message.contains("the verb"), "{message}");

    stream = server.connect().await;
    stream.send(&request("GET", path, WEBSOCKET_HEADERS)).await;
    let head = stream.head().await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    let message = stream.until("\"reason\"").await;
    assert!(message.contains("cannot get resource"), "{message}");
    assert!(
        message.contains("no verb `get` on `pods/exec`"),
        "{message}"
    );
    assert_eq!(server.metrics.count("exec", 403), 2);
    assert_eq!(server.metrics.open().1, 0);
}

#[tokio::test]
async fn a_provider_that_sends_too_much_or_another_protocol_is_a_bad_gateway() {
    let server = Running::start(|request| match request.target.contains("exec") {
        true => switching(&[("connection", "Upgrade"), ("upgrade", "h2c")]),
        false => reply(500, vec![b'x'; 1 << 20]),
    })
    .await;
    let exec = "/exec/shop/web/web?command=ls&output=1";
    let response = server.send(&once("POST", exec, SPDY_HEADERS)).await;
    assert_eq!(response.0, 502, "{}", response.2);
    assert!(response.2.contains("another protocol"), "{}", response.2);

    let attach = "/attach/shop/web/web?output=1";
    let response = server.send(&once("POST", attach, SPDY_HEADERS)).await;
    assert_eq!(response.0, 500);
    assert!(
        response.2.contains("too long") && response.2.len() < 200,
        "{}",
        response.2
    );
}

#[tokio::test]
async fn a_redirect_of_the_provider_is_not_followed() {
    let server = Running::start(|_| {
        let mut response = reply(302, "");
        let location = "http://169.254.169.254/".parse().unwrap();
        response.headers_mut().insert("location", location);
        response
    })
    .await;

    let exec = "/exec/shop/web/web?command=ls&output=1";
    let response = server.send(&once("POST", exec, SPDY_HEADERS)).await;

    assert_eq!(response.0, 502, "{}", response.2);
    assert!(!response.1.contains("169.254"), "{}", response.1);
    assert_eq!(server.forwarded().len(), 1);
}

#[tokio::test]
async fn an_invalid_request_is_refused_before_anything_is_sent() {
    let server = Running::start(nothing).await;
    for (method, path, headers, expected) in [
        (
            "POST",
            "/exec/shop/web/web?command=ls",
            SPDY_HEADERS,
            "input, output and error",
        ),
        (
            "POST",
            "/exec/shop/web/web?output=1",
            SPDY_HEADERS,
            "command",
        ),
        (
            "POST",
            "/exec/shop/web/web?command=ls&output=1",
            "",
            "Upgrade",
        ),
        (
            "POST",
            "/attach/shop/web/web?output=1",
            "Content-Length: 3\r\n",
            "Upgrade",
        ),
        (
            "POST",
            "/portForward/shop/web?port=0",
            SPDY_HEADERS,
            "1 to 65535",
        ),
        (
            "POST",
            "/exec/shop/web/web?command=ls&output=1",
            WEBSOCKET_HEADERS,
            "GET",
        ),
    ] {
        let (status, _, body) = server.send(&once(method, path, headers)).await;
        assert_eq!(status, 400, "{path}: {body}");
        assert!(body.contains(expected), "{path}: {body}");
    }
    assert_eq!(server.forwarded(), Vec::<String>::new());
}

/// Returns a request that is the last one of its connection unless it switches protocols.
fn once(method: &str, path: &str, headers: &str) -> String {
    let get = get(path, headers);
    let request = get.strip_prefix("GET").unwrap();
    let connection = match headers.contains("Connection") {
        true => "X-Close: true",
        false => "Connection: close",
    };
    format!(
        "{method}{}",
        request.replacen("Connection: close", connection, 1)
    )
}

#[tokio::test]
async fn a_stopping_server_gives_streams_a_short_time() {
    let mut server = Running::limited(
        |_| switching(&SPDY),
        |limits| limits.timeouts.drain = std::time::Duration::from_millis(300),
    )
    .await;
    let mut stream = server.connect().await;
    stream
        .send(&request("POST", "/portForward/shop/web", SPDY_HEADERS))
        .await;
    stream.until("greeting").await;

    server.stop();
    stream.send("still.").await;
    assert_eq!(stream.until(".").await, "STILL");

    let task = &mut server.task;
    tokio::time::timeout(super::fixture::DEADLINE, task)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stream.end().await, "");
    assert!(
        tokio::net::TcpStream::connect(server.address)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn streams_of_one_user_are_limited_and_free_again_when_they_end() {
    let server =
        Running::limited(|_| switching(&SPDY), |limits| limits.streams.per_source = 1).await;
    let open = request("POST", "/portForward/shop/web", SPDY_HEADERS);
    let mut first = server.connect().await;
    first.send(&open).await;
    first.until("greeting").await;

    let mut second = server.connect().await;
    second.send(&open).await;
    let head = second.head().await;
    assert!(head.starts_with("HTTP/1.1 429"), "{head}");

    drop(first);
    super::fixture::eventually(|| server.metrics.open().1 == 0).await;
    let mut third = server.connect().await;
    third.send(&open).await;
    third.until("greeting").await;
}
