//! A peer's API server that is hostile or fails: the process goes on with the other peer, reports the
//! failure, and follows the peer again when its API server recovers.

use crate::peers::{Peers, copied, kubeconfig, put_counter, put_peer, watch};
use crate::process::{Process, wait_for};
use control_runtime::Cluster;
use fake_apiserver::{ApiServer, Front, Head, Reply};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The peers `milan`, whose API server is behind a front, and `naples`.
struct Fixture {
    local: ApiServer,
    milan: ApiServer,
    front: Front,
    naples: ApiServer,
    process: Process,
}

impl Fixture {
    async fn start(rule: impl Fn(&Head) -> Reply + Send + Sync + 'static) -> Self {
        let [local, milan, naples] = [(); 3].map(|()| ApiServer::start());
        let front = Front::start(&milan, rule);
        put_counter(&milan, 1);
        put_counter(&naples, 1);
        put_peer(&local, "milan", &kubeconfig(&front.url(), "token"));
        put_peer(&local, "naples", &kubeconfig(&naples.url(), "token"));
        let process = Process::host(&local.url(), "a", None, Peers::default());

        Self {
            local,
            milan,
            front,
            naples,
            process,
        }
    }

    /// Waits until the watch of `milan` fails for a reason that contains `text`.
    async fn fails_with(&self, text: &str) {
        let id = watch(&Cluster::remote("milan"));
        let failing = || self.process.status.failing().remove(&id);
        wait_for(text, || failing().is_some_and(|it| it.contains(text))).await;
        let labels = r#"cluster="milan",resource="configmaps""#;
        assert!(self.process.metric("watch_errors_total", labels) > 0.0);
    }

    /// Checks that the other peer is served.
    async fn others_go_on(&self) {
        put_counter(&self.naples, 2);
        wait_for("the other peer", || copied(&self.naples) == Some(2)).await;
        assert_eq!(self.process.status.healthy(), Ok(()));
        assert_eq!(self.process.status.ready(), Ok(()));
    }

    /// Checks that the other peer is served, and that `milan` is after its API server has recovered.
    async fn recovers(self) {
        self.others_go_on().await;

        self.front.set(|_| Reply::Forward);
        put_counter(&self.milan, 3);
        wait_for("the recovery", || copied(&self.milan) == Some(3)).await;
        self.process.stop().await;
    }
}

fn is_page(head: &Head) -> bool {
    head.is_page() && head.target.contains("/configmaps")
}

fn is_streaming_list(head: &Head) -> bool {
    head.is_streaming_list() && head.target.contains("/configmaps")
}

/// Replies to pages of lists as `reply` returns, as a server without streaming lists, and forwards other requests.
fn paged(
    reply: impl Fn(&Head) -> Reply + Send + Sync + 'static,
) -> impl Fn(&Head) -> Reply + Send + Sync + 'static {
    move |head| match (is_streaming_list(head), is_page(head)) {
        (true, _) => Reply::no_streaming_list(),
        (false, true) => reply(head),
        (false, false) => Reply::Forward,
    }
}

/// Replies to pages of lists with `reply`, as a server without streaming lists, and forwards other requests.
fn pages(reply: Reply) -> impl Fn(&Head) -> Reply + Send + Sync + 'static {
    paged(move |_| reply.clone())
}

fn flood(begin: &str) -> Reply {
    Reply::endless(begin, vec![b' '; 64 << 10], Duration::ZERO)
}

#[tokio::test]
async fn a_page_without_end_is_refused_at_32_mib() {
    let fixture = Fixture::start(pages(flood("{\"items\": ["))).await;

    fixture.fails_with("more than 33554432 bytes").await;

    fixture.recovers().await;
}

#[tokio::test]
async fn objects_too_large_for_a_page_are_listed_in_smaller_pages() {
    let fixture = Fixture::start(paged(|head| {
        if head.target.contains("limit=500") {
            flood("{\"items\": [")
        } else {
            Reply::Forward
        }
    }))
    .await;

    wait_for("the copy", || copied(&fixture.milan) == Some(1)).await;

    fixture.recovers().await;
}

#[tokio::test]
async fn a_watch_event_without_end_is_refused_at_4_mib() {
    let fixture = Fixture::start(|head| match head.is_watch() {
        true => flood("{\"type\": \"ADDED\", \"object\": {"),
        false => Reply::Forward,
    })
    .await;

    fixture.fails_with("more than 4194304 bytes").await;

    fixture.recovers().await;
}

#[tokio::test]
async fn a_response_to_a_write_without_end_is_a_failed_write() {
    let fixture = Fixture::start(|head| match head.method.as_str() {
        "PATCH" => flood("{"),
        _ => Reply::Forward,
    })
    .await;

    let labels = r#"cluster="milan",resource="configmaps",verb="apply",outcome="failed""#;
    wait_for("a failed write", || {
        fixture.process.metric("requests_total", labels) > 0.0
    })
    .await;

    fixture.recovers().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = ApiServer::start();
    let target = Front::start(&other, |_| Reply::Forward);
    let location = format!("location: {}/\r\n", target.url());
    let redirect = Reply::response("307 Temporary Redirect", &location, "{\"items\": []}");
    let fixture = Fixture::start(move |_| redirect.clone()).await;

    fixture.fails_with("status 307").await;

    assert_eq!(target.requests(), []);
    fixture.recovers().await;
}

#[tokio::test]
async fn refusals_and_garbage_are_reported() {
    let object = "{\"kind\": \"Status\", \"items\": 7}";
    for (reply, text) in [
        (
            Reply::status(429, "TooManyRequests", "slow down"),
            "slow down",
        ),
        (
            Reply::status(500, "InternalError", "etcd is gone"),
            "etcd is gone",
        ),
        (Reply::response("503 Unavailable", "", "no JSON"), "503"),
        (Reply::response("200 OK", "", "<html>"), "deserializing"),
        (Reply::response("200 OK", "", object), "deserializing"),
        (Reply::response("200 OK", "", [0xff, 0xfe]), "UTF-8"),
        (Reply::Bytes(b"SSH-2.0-OpenSSH_9.7\r\n".to_vec()), "HTTP"),
        (Reply::Bytes(Vec::new()), "connection"),
    ] {
        eprintln!("a response that is reported with {text:?}");
        let fixture = Fixture::start(pages(reply)).await;

        fixture.fails_with(text).await;

        fixture.recovers().await;
    }
}

#[tokio::test]
async fn a_server_that_fails_to_stream_lists_is_listed_in_pages() {
    let object = "{\"kind\": \"Status\", \"items\": 7}";
    for reply in [
        Reply::no_streaming_list(),
        Reply::status(400, "BadRequest", "resourceVersionMatch is forbidden"),
        Reply::status(500, "InternalError", "the cache is broken"),
        Reply::response("503 Unavailable", "", "no JSON"),
        Reply::response("200 OK", "", ""),
        Reply::response("200 OK", "", "<html>"),
        Reply::response("200 OK", "", object),
        Reply::response("200 OK", "", [0xff, 0xfe]),
        Reply::Bytes(b"SSH-2.0-OpenSSH_9.7\r\n".to_vec()),
        Reply::Bytes(Vec::new()),
        flood("{\"type\": \"ADDED\", \"object\": {"),
    ] {
        let text: String = format!("{reply:?}").chars().take(200).collect();
        eprintln!("{text}");
        let fixture = Fixture::start(move |head| match is_streaming_list(head) {
            true => reply.clone(),
            false => Reply::Forward,
        })
        .await;

        wait_for("the copy", || copied(&fixture.milan) == Some(1)).await;

        assert_eq!(fixture.front.count(is_streaming_list), 1, "{text}");
        fixture.recovers().await;
    }
}

#[tokio::test]
async fn a_message_of_a_server_is_kept_up_to_a_limit() {
    let message = "x".repeat(1 << 20);
    let fixture = Fixture::start(pages(Reply::status(500, "InternalError", &message))).await;

    fixture.fails_with("xxx").await;

    for reason in fixture.process.status.failing().values() {
        assert!(reason.len() <= 1024, "{} bytes", reason.len());
    }
    fixture.recovers().await;
}

#[tokio::test]
async fn an_api_server_without_response_delays_no_other() {
    let fixture = Fixture::start(|_| Reply::Silence).await;
    wait_for("the list", || fixture.front.count(is_streaming_list) > 0).await;

    fixture.others_go_on().await;

    assert_eq!(copied(&fixture.milan), None);
    fixture.process.stop().await;
}

#[tokio::test]
async fn a_write_that_is_refused_with_429_is_repeated_with_backoff() {
    const REFUSED: usize = 3;
    let writes = AtomicUsize::new(0);
    let fixture = Fixture::start(move |head| {
        if head.method == "PATCH" && writes.fetch_add(1, Ordering::Relaxed) < REFUSED {
            return Reply::status(429, "TooManyRequests", "slow down");
        }
        Reply::Forward
    })
    .await;

    wait_for("the copy", || copied(&fixture.milan) == Some(1)).await;

    // Delays of 200, 400 and 800 ms, shortened by at most a quarter.
    let writes = fixture.front.count(|head| head.method == "PATCH");
    assert_eq!(writes, REFUSED + 1);
    let labels = r#"cluster="milan",resource="configmaps",verb="apply",outcome="failed""#;
    assert_eq!(fixture.process.metric("requests_total", labels), 3.0);
    let retries = r#"controller="peers",item="item""#;
    assert_eq!(
        fixture.process.metric("reconcile_errors_total", retries),
        3.0
    );
    fixture.recovers().await;
}

/// Returns a page of a list of `total` small ConfigMaps.
fn page(head: &Head, total: usize) -> Reply {
    const LEN: usize = 20_000;
    let (_, after) = head.target.split_once("continue=").unwrap_or_default();
    let first: usize = after
        .split('&')
        .next()
        .unwrap_or_default()
        .parse()
        .unwrap_or_default();
    let last = (first + LEN).min(total);
    let items: Vec<_> = (first..last)
        .map(|number| format!(r#"{{"metadata":{{"name":"o{number}","namespace":"shared","uid":"u{number}","resourceVersion":"7"}}}}"#))
        .collect();
    let more = if last < total {
        last.to_string()
    } else {
        String::new()
    };
    Reply::response(
        "200 OK",
        "",
        format!(
            r#"{{"metadata":{{"resourceVersion":"9","continue":"{more}"}},"items":[{}]}}"#,
            items.join(",")
        ),
    )
}

#[tokio::test]
async fn a_million_objects_fill_the_cache_up_to_the_limit_of_the_cluster() {
    const TOTAL: usize = 1_000_000;
    let fixture = Fixture::start(paged(|head| page(head, TOTAL))).await;
    let metric = |name: &str| fixture.process.metric(name, r#"cluster="milan""#);

    let rejected = || metric("cache_rejected_objects_total");
    wait_for("rejected objects", || rejected() > 0.0).await;
    fixture.others_go_on().await;
    for hundreds in 1..=9 {
        let most = f64::from(hundreds) * 100_000.0;
        wait_for("more objects", || rejected() >= most).await;
    }

    assert_eq!(rejected(), 900_000.0);
    assert_eq!(metric("cache_objects"), 100_000.0);
    fixture.process.stop().await;
}

#[tokio::test]
async fn a_kubeconfig_that_runs_a_program_is_an_event_and_no_connection() {
    let fixture = Fixture::start(|_| Reply::Forward).await;
    wait_for("the copy", || copied(&fixture.milan) == Some(1)).await;
    let watched = || fixture.front.count(Head::is_watch);
    wait_for("the watch", || watched() == 1).await;

    let exec = kubeconfig(&fixture.front.url(), "other")
        .replace("\"token\":\"other\"", "\"exec\":{\"command\":\"sh\"}");
    put_peer(&fixture.local, "milan", &exec);

    let events = "/apis/events.k8s.io/v1/namespaces/peers/events/";
    let note = || fixture.local.find(events, "users[].user.exec");
    wait_for("the Event", note).await;
    assert_eq!(watched(), 1, "the last valid kubeconfig stays in use");
    fixture.recovers().await;
}
