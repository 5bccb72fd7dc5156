use super::*;
use crate::cause::cause;
use crate::kubeconfig::RemoteConfig;
use http::header::AUTHORIZATION;
use http_body_util::BodyExt as _;
use kube::config::AuthInfo;
use std::error::Error as _;
use std::time::Duration;

mod connections;
mod leader;
mod proxy;
mod relay;
mod server;

use proxy::Proxy;
use relay::Relay;
use server::{Protocols, Server};

/// The longest wait for anything that should happen at once.
const PROMPT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn three_hundred_watches_leave_room_for_other_requests() {
    let server = Server::start(Protocols::Http2, 100).await;
    let transport = transport(&server);
    let mut watches = Vec::new();

    for _ in 0..300 {
        watches.push(
            get(&transport, "/api/v1/pods?watch=true")
                .await
                .expect("a watch"),
        );
    }
    let read = get(&transport, "/api/v1/pods/a").await.expect("a response");

    assert_eq!(read.version(), http::Version::HTTP_2);
    assert_eq!(server.accepted(), 4);
    assert_eq!(transport.connections(), 4);
}

#[tokio::test]
async fn the_servers_own_limit_of_streams_holds() {
    let server = Server::start(Protocols::Http2, 10).await;
    let transport = transport(&server);
    // The SETTINGS frame arrives with the first response.
    get(&transport, "/api/v1/pods/a").await.expect("a response");
    let mut watches = Vec::new();

    for _ in 0..18 {
        watches.push(
            get(&transport, "/api/v1/pods?watch=true")
                .await
                .expect("a watch"),
        );
    }
    get(&transport, "/api/v1/pods/a").await.expect("a response");

    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn a_server_without_http2_is_used_with_http1() {
    let server = Server::start(Protocols::Http1, 100).await;
    let transport = transport(&server);

    let watch = get(&transport, "/api/v1/pods?watch=true")
        .await
        .expect("a watch");
    let read = get(&transport, "/api/v1/pods/a").await.expect("a response");

    assert_eq!(watch.version(), http::Version::HTTP_11);
    assert_eq!(read.version(), http::Version::HTTP_11);
}

#[tokio::test]
async fn an_upgrade_uses_http1_beside_http2() {
    let server = Server::start(Protocols::Http2, 100).await;
    let transport = transport(&server);
    get(&transport, "/api/v1/pods/a").await.expect("a response");

    let response = transport.oneshot(upgrade()).await.expect("a response");

    assert_eq!(response.version(), http::Version::HTTP_11);
}

#[tokio::test]
async fn requests_cross_a_proxy_with_its_credentials() {
    for protocols in [Protocols::Http2, Protocols::Http1] {
        let server = Server::start(protocols, 100).await;
        let proxy = Proxy::start().await;
        let mut config = server.config();
        config.proxy_url = Some(proxy.url("user:p%40ss"));
        let transport = Transport::new(&config, Destinations::Any).expect("a valid configuration");

        let response = get(&transport, "/api/v1/pods/a").await.expect("a response");

        assert_eq!(response.version(), protocols.version());
        let requests = proxy.requests();
        assert!(!requests.is_empty());
        for request in requests {
            assert!(request.starts_with("CONNECT 127.0.0.1:"), "{request}");
            assert!(request.contains("Basic dXNlcjpwQHNz"), "{request}");
        }
    }
}

#[tokio::test]
async fn a_server_of_another_authority_differs_from_one_that_does_not_respond() {
    for protocols in [Protocols::Http2, Protocols::Http1] {
        let (server, other) = (
            Server::start(protocols, 100).await,
            Server::start(protocols, 100).await,
        );
        let proxy = Proxy::start().await;
        let mut config = server.config();
        config.cluster_url = other.config().cluster_url;
        let mut behind_proxy = config.clone();
        behind_proxy.proxy_url = Some(proxy.url("user:pass"));
        for config in [&config, &behind_proxy] {
            let error = refusal(config).await;
            assert!(is_untrusted(&*error), "{error:?}");
            let through_kube = kube::Error::Service(error);
            assert!(is_untrusted(&through_kube), "{through_kube:?}");
        }
        assert!(other.requests().is_empty());

        let mut renamed = server.config();
        renamed.tls_server_name = Some("example.com".to_owned());
        let mut nowhere = server.config();
        nowhere.cluster_url = http::Uri::from_static("https://127.0.0.1:1");
        for config in [&renamed, &nowhere] {
            let error = refusal(config).await;
            assert!(!is_untrusted(&*error), "{error:?}");
        }
    }
}

/// Returns the error of a request that must fail.
async fn refusal(config: &Config) -> BoxError {
    let transport = Transport::new(config, Destinations::Any).expect("a valid configuration");
    let response = get(&transport, "/api/v1/pods/a").await;
    response.expect_err("a failure")
}

#[tokio::test]
async fn an_upgrade_crosses_a_proxy_with_http1() {
    let server = Server::start(Protocols::Http2, 100).await;
    let proxy = Proxy::start().await;
    let mut config = server.config();
    config.proxy_url = Some(proxy.url("user:p%40ss"));
    let transport = Transport::new(&config, Destinations::Any).expect("a valid configuration");

    let response = transport.oneshot(upgrade()).await.expect("a response");

    assert_eq!(response.version(), http::Version::HTTP_11);
    assert_eq!(proxy.requests().len(), 1);
}

/// A peer may name this machine in forms that the check of its kubeconfig takes for names.
#[tokio::test]
async fn an_address_of_this_machine_is_not_dialed_for_a_peer() {
    for (destinations, is_dialed) in [(Destinations::Remote, false), (Destinations::Any, true)] {
        let proxy = Proxy::start().await;
        let url = format!("http://127.1:{}", proxy.port());
        let direct = Config::new(url.parse().expect("a URI"));
        let mut proxied = Config::new(http::Uri::from_static("https://192.0.2.1:6443"));
        proxied.proxy_url = Some(url.parse().expect("a URI"));
        for config in [direct, proxied] {
            let transport = Transport::new(&config, destinations).expect("a valid configuration");
            // Requests that switch protocols have connections of their own.
            for request in [request("/livez"), upgrade()] {
                let before = proxy.connections();
                let sent = transport.clone().oneshot(request).await;
                let error = sent.expect_err("a failure");
                assert_eq!(proxy.connections() > before, is_dialed, "{error:?}");
            }
        }
    }
}

#[tokio::test]
async fn the_proxy_of_a_kubeconfig_is_used() {
    let server = Server::start(Protocols::Http2, 100).await;
    let proxy = Proxy::start().await;
    let url = proxy.url("user:p%40ss").to_string();
    let kubeconfig = server.kubeconfig(serde_json::json!({"proxy-url": url}));
    let config = RemoteConfig::parse(&kubeconfig, Destinations::Any).expect("a kubeconfig");
    let transport =
        Transport::new(config.as_ref(), Destinations::Any).expect("a valid configuration");

    let response = get(&transport, "/api/v1/pods/a").await.expect("a response");

    assert_eq!(response.version(), http::Version::HTTP_2);
    assert_eq!(response.headers()[AUTHORIZATION], "Bearer secret");
    assert_eq!(proxy.requests().len(), 1);
}

/// The environment of a process cannot be changed safely, so another process makes the request.
#[tokio::test]
async fn the_proxy_of_the_environment_is_used_unless_no_proxy_names_the_server() {
    for (no_proxy, expected) in [("", 1), ("127.0.0.1", 0)] {
        let server = Server::start(Protocols::Http2, 100).await;
        let proxy = Proxy::start().await;
        let mut child = std::process::Command::new(std::env::current_exe().expect("a program"));
        child
            .args(["--exact", "transport::tests::child", "--ignored"])
            .env("HTTPS_PROXY", proxy.url("user:p%40ss").to_string())
            .env("NO_PROXY", no_proxy)
            .env(CHILD, server.kubeconfig(serde_json::json!({})));

        let output = tokio::task::spawn_blocking(move || child.output());
        let output = output.await.expect("no panic").expect("a process");

        assert!(output.status.success(), "{output:?}");
        assert_eq!(server.accepted(), 1);
        assert_eq!(proxy.requests().len(), expected, "NO_PROXY={no_proxy}");
    }
}

/// Kubeconfig of the process that sends one request.
const CHILD: &str = "CONTROL_RUNTIME_TEST_KUBECONFIG";

#[tokio::test]
#[ignore = "another test starts it in a process of its own"]
async fn child() {
    let kubeconfig = std::env::var(CHILD).expect("a kubeconfig");
    let config = RemoteConfig::parse(&kubeconfig, Destinations::Any).expect("a kubeconfig");
    let transport =
        Transport::new(config.as_ref(), Destinations::Any).expect("a valid configuration");

    let response = get(&transport, "/api/v1/pods/a").await.expect("a response");

    assert_eq!(response.version(), http::Version::HTTP_2);
}

#[tokio::test]
async fn replaced_credentials_end_streams_and_serve_new_requests() {
    let server = Server::start(Protocols::Http2, 100).await;
    let transport = Transport::new(&with_token(&server, "old"), Destinations::Any)
        .expect("a valid configuration");
    let mut watch = get(&transport, "/api/v1/pods?watch=true")
        .await
        .expect("a watch");
    watch
        .frame()
        .await
        .expect("a first event")
        .expect("no error");

    transport
        .replace(&with_token(&server, "new"))
        .expect("a valid configuration");

    let end = tokio::time::timeout(PROMPT, watch.frame())
        .await
        .expect("the end of the watch");
    let error = end.expect("an error").expect_err("an error").to_string();
    assert!(error.contains("replaced"), "{error}");
    let response = get(&transport, "/api/v1/pods/a").await.expect("a response");
    assert_eq!(response.headers()[AUTHORIZATION], "Bearer new");
}

#[tokio::test]
async fn invalid_credentials_leave_the_previous_configuration() {
    let server = Server::start(Protocols::Http2, 100).await;
    let transport = Transport::new(&with_token(&server, "old"), Destinations::Any)
        .expect("a valid configuration");
    let mut invalid = server.config();
    invalid.root_cert = Some(vec![b"no certificate".to_vec()]);

    transport.replace(&invalid).expect_err("a refusal");

    let response = get(&transport, "/api/v1/pods/a").await.expect("a response");
    assert_eq!(response.headers()[AUTHORIZATION], "Bearer old");
}

#[tokio::test]
async fn watches_that_nothing_reads_block_no_other_request() {
    let server = Server::start(Protocols::Http2, 100).await;
    let transport = transport(&server);
    let mut unread = Vec::new();
    for _ in 0..90 {
        unread.push(get(&transport, "/flood?watch=true").await.expect("a watch"));
    }
    let flooded = tokio::time::timeout(PROMPT, server.flooded(unread.len())).await;
    flooded.expect("every stream has a window of its own");

    let response = get(&transport, "/api/v1/pods/a").await.expect("a response");

    let body = response.into_body().collect();
    let body = tokio::time::timeout(PROMPT, body)
        .await
        .expect("a body in time");
    assert_eq!(body.expect("a body").to_bytes(), "{}");
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_server_that_drains_its_connections_loses_no_request() {
    let server = Server::start(Protocols::Http2, 100).await;
    let transport = transport(&server);
    get(&transport, "/api/v1/pods/a").await.expect("a response");

    for _ in 0..20 {
        server.drain();
        get(&transport, "/api/v1/pods/a").await.expect("a response");
    }

    assert!(server.accepted() > 1, "no connection was drained");
}

#[tokio::test]
async fn a_watch_event_without_end_is_refused() {
    let server = Server::start(Protocols::Http2, 100).await;
    let transport = transport(&server);
    let mut watch = get(&transport, "/flood?watch=true").await.expect("a watch");

    let error = loop {
        let frame = tokio::time::timeout(PROMPT, watch.frame())
            .await
            .expect("a frame in time");
        if let Err(error) = frame.expect("no end") {
            break error;
        }
    };

    assert_eq!(error.downcast_ref::<LimitError>(), Some(&LimitError::Line));
}

#[tokio::test]
async fn a_lease_request_without_response_ends_after_three_seconds() {
    let server = Server::start(Protocols::Http2, 100).await;
    let transport = transport(&server);

    let request = get(
        &transport,
        "/apis/coordination.k8s.io/v1/namespaces/a/leases/hang",
    );
    let result = tokio::time::timeout(PROMPT, request)
        .await
        .expect("an end in time");

    let error = result.expect_err("a time-out");
    let error = error
        .downcast_ref::<DeadlineError>()
        .expect("a DeadlineError");
    assert_eq!(error.kind, Kind::Lease);
    assert!(error.source().is_none());
}

#[tokio::test]
async fn a_response_byte_by_byte_ends_at_the_deadline_of_its_kind() {
    for protocols in [Protocols::Http2, Protocols::Http1] {
        for (path, kind) in [("/slow?limit=500", Kind::List), ("/slow", Kind::Read)] {
            let server = Server::start(protocols, 100).await;
            let client = Client::new(transport(&server), "default");
            // A connection takes real time.
            client
                .request_text(Request::get("/api").body(Vec::new()).expect("a request"))
                .await
                .expect("a response");
            tokio::time::pause();
            let began = tokio::time::Instant::now();
            let request = Request::get(path).body(Vec::new()).expect("a request");

            let error = client.request_text(request).await.expect_err("a time-out");

            let deadline = cause::<DeadlineError>(&error).expect("a DeadlineError");
            assert_eq!(
                (deadline.kind, began.elapsed().as_secs()),
                (kind, kind.deadline().as_secs())
            );
            tokio::time::resume();
        }
    }
}

fn transport(server: &Server) -> Transport {
    Transport::new(&server.config(), Destinations::Any).expect("a valid configuration")
}

fn with_token(server: &Server, token: &str) -> Config {
    let mut config = server.config();
    config.auth_info = AuthInfo {
        token: Some(token.to_owned().into()),
        ..AuthInfo::default()
    };
    config
}

fn request(path: &str) -> Request<Body> {
    let request = Request::get(path).body(Body::empty());
    request.expect("a valid request")
}

fn upgrade() -> Request<Body> {
    let mut request = request("/api/v1/pods/a/exec");
    let websocket = http::HeaderValue::from_static("websocket");
    request
        .headers_mut()
        .insert(http::header::UPGRADE, websocket);
    request
}

async fn get(transport: &Transport, path: &str) -> Result<Response<ResponseBody>, BoxError> {
    transport.clone().oneshot(request(path)).await
}
