//! Streaming lists.

use super::*;
use crate::object::Key;
use crate::transport::ReplacedError;
use crate::watch::stream::initial::INITIAL_IDLE_MAX;

type Urls = Arc<Mutex<Vec<String>>>;

/// Returns a client of a server that replies to streaming lists with `reply`. Otherwise, it has an empty list, and its
/// watches fail after 10 s.
fn streaming(reply: impl Fn() -> Option<(u16, Chunks)> + Send + Sync + 'static) -> (Client, Urls) {
    let urls = Urls::default();
    let seen = Arc::clone(&urls);
    let client = serve(move |url| {
        seen.lock().unwrap().push(url.to_owned());
        match (is_streaming_list(url), is_watch(url)) {
            (true, _) => reply(),
            (false, true) => Some((200, vec![(seconds(10), gone())])),
            (false, false) => Some((200, page("100"))),
        }
    });

    (client, urls)
}

/// Returns a client of a server whose streaming lists consist of these chunks.
fn chunks(chunks: Chunks) -> (Client, Urls) {
    streaming(move || Some((200, chunks.clone())))
}

/// Returns these lines, after which the response lasts for an hour.
fn lasting(lines: &[String]) -> Chunks {
    let last = (seconds(3600), String::new());
    now(&lines.concat()).into_iter().chain([last]).collect()
}

fn count(urls: &Urls, filter: impl Fn(&str) -> bool) -> usize {
    let urls = urls.lock().unwrap();
    urls.iter().filter(|url| filter(url)).count()
}

fn is_page(url: &str) -> bool {
    url.contains("limit=500")
}

fn new(client: &Client) -> BoxStream<'static, Signal> {
    watch(client.clone(), &Arc::default())
}

/// Returns short names of the next signals.
async fn next(signals: &mut BoxStream<'static, Signal>, count: usize) -> Vec<&'static str> {
    let signals: Vec<_> = signals.take(count).collect().await;
    let names = signals.iter().map(|signal| match signal {
        Signal::ListBegins => "begins",
        Signal::ListEnds => "ends",
        Signal::Object {
            is_listed: true, ..
        } => "listed",
        Signal::Object {
            is_listed: false, ..
        } => "changed",
        Signal::Deleted { .. } => "deleted",
        Signal::Bookmark => "bookmark",
        Signal::WentBack => "went back",
        Signal::Refused(_) => "refused",
        Signal::Failed(_) => "failed",
    });
    names.collect()
}

/// Returns the reason for which the streaming list fails, after which this and all later lists must be paged.
async fn fails(client: &Client, urls: &Urls) -> String {
    let mut signals = new(client);
    assert_eq!(next(&mut signals, 1).await, ["begins"]);
    let reason = loop {
        let signal = signals.next().await.unwrap();
        if let Signal::Failed(reason) = signal {
            break reason;
        }
        let is_listed = matches!(signal, Signal::Object { is_listed, .. } if is_listed);
        assert!(is_listed, "{signal:?}");
    };

    let pages = ["begins", "ends", "failed"];
    assert_eq!(next(&mut signals, 6).await, [pages, pages].concat());
    assert_eq!(count(urls, is_streaming_list), 1);
    reason
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_with_its_list_in_one_request() {
    let mut body = vec![
        (seconds(0), event("ADDED", "30") + &event("ADDED", "10")),
        (seconds(40), end("20")),
        (
            seconds(50),
            event("BOOKMARK", "21") + &event("MODIFIED", "22"),
        ),
    ];
    // Longer than the requested duration, so the versions are not compared.
    let versions = 23..40;
    let bookmark = |it: u32| (seconds(250), event("BOOKMARK", &it.to_string()));
    body.extend(versions.clone().map(bookmark));
    let (client, urls) = chunks(body);
    let mut signals = new(&client);

    let list = ["begins", "listed", "listed", "ends"];
    assert_eq!(next(&mut signals, 4).await, list);
    assert_eq!(next(&mut signals, 2).await, ["bookmark", "changed"]);
    assert_eq!(urls.lock().unwrap().len(), 1);
    let url = urls.lock().unwrap()[0].clone();
    let (_, query) = url.split_once('?').unwrap();
    for parameter in [
        "watch=true",
        "sendInitialEvents=true",
        "resourceVersionMatch=NotOlderThan",
        "allowWatchBookmarks=true",
    ] {
        assert!(query.split('&').any(|it| it == parameter), "{query}");
    }
    assert!(!query.contains("resourceVersion="), "{query}");

    let rest = next(&mut signals, versions.len() + 1).await;
    assert_eq!(
        rest,
        [vec!["bookmark"; versions.len()], vec!["failed"]].concat()
    );
    assert!(urls.lock().unwrap()[1].ends_with("resourceVersion=39"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_at_the_end_of_its_streaming_list() {
    let (client, urls) = chunks(now(&(event("ADDED", "30") + &end("20"))));
    let signals = new(&client).take_until(Box::pin(tokio::time::sleep(seconds(5))));

    signals.collect::<Vec<_>>().await;

    let urls = urls.lock().unwrap();
    assert!(urls[1].ends_with("limit=1"), "{urls:?}");
    assert!(urls[2].ends_with("resourceVersion=20"), "{urls:?}");
}

#[tokio::test(start_paused = true)]
async fn versions_are_compared_with_that_of_the_end_of_a_streaming_list() {
    let initial = event("ADDED", "30") + &event("ADDED", "10") + &end("20");
    let (client, _) = chunks(lasting(&[
        initial,
        event("ADDED", "20"),
        event("ADDED", "19"),
    ]));
    let mut signals = new(&client);

    let list = ["begins", "listed", "listed", "ends"];
    assert_eq!(next(&mut signals, 4).await, list);
    assert_eq!(next(&mut signals, 2).await, ["changed", "went back"]);
}

#[tokio::test(start_paused = true)]
async fn changes_between_initial_events_are_part_of_the_list() {
    let changes = ["ADDED", "MODIFIED", "DELETED"].map(|kind| event(kind, "7"));
    let (client, _) = chunks(lasting(&[changes.concat(), end("20")]));
    let mut signals = new(&client);

    assert_eq!(next(&mut signals, 3).await, ["begins", "listed", "listed"]);
    let deleted = signals.next().await;
    let Some(Signal::Deleted { key, uid, version }) = deleted else {
        panic!("no deletion: {deleted:?}");
    };
    assert_eq!(
        (key, uid.as_str(), version),
        (Key::new("a", "a"), "u", Some(7))
    );
    assert_eq!(next(&mut signals, 1).await, ["ends"]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_refuses_a_streaming_list_is_sent_no_other() {
    for code in [422, 400] {
        let body = INVALID.replace("422", &code.to_string());
        let (client, urls) = streaming(move || Some((code, now(&body))));
        let siblings = Arc::default();
        let began = Instant::now();

        let mut first = watch(client.clone(), &siblings);
        assert_eq!(next(&mut first, 2).await, ["begins", "ends"]);
        let mut second = watch(client.clone(), &siblings);
        assert_eq!(next(&mut second, 2).await, ["begins", "ends"]);
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(next(&mut first, 3).await, ["failed", "begins", "ends"]);

        assert_eq!(count(&urls, is_streaming_list), 1);
        assert_eq!(count(&urls, is_page), 3);
        assert_eq!(next(&mut new(&client), 2).await, ["begins", "ends"]);
        assert_eq!(count(&urls, is_streaming_list), 2, "another cluster");
    }
}

#[tokio::test(start_paused = true)]
async fn initial_events_without_end_fail_after_the_longest_duration_of_a_list() {
    let (client, urls) = chunks(vec![(seconds(10), event("ADDED", "7")); 100]);
    let began = Instant::now();

    assert!(fails(&client, &urls).await.contains("longer than 600s"));

    assert!(began.elapsed() > LIST_MAX, "{:?}", began.elapsed());
    assert!(
        began.elapsed() < LIST_MAX + seconds(60),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn initial_events_that_are_always_ready_fail_after_the_longest_duration_of_a_list() {
    let (client, _) = chunks(now(&event("ADDED", "7").repeat(1000)));
    let mut signals = new(&client);
    assert_eq!(next(&mut signals, 2).await, ["begins", "listed"]);
    let began = Instant::now();

    while next(&mut signals, 1).await == ["listed"] {
        tokio::time::sleep(seconds(10)).await;
    }

    assert_eq!(began.elapsed(), LIST_MAX);
    assert_eq!(next(&mut signals, 2).await, ["begins", "ends"]);
}

#[tokio::test(start_paused = true)]
async fn initial_events_that_stop_fail_soon() {
    for begin in [String::new(), event("ADDED", "7")] {
        let (client, urls) = chunks(lasting(&[begin]));
        let began = Instant::now();

        assert!(fails(&client, &urls).await.contains("stopped"));

        assert!(began.elapsed() > INITIAL_IDLE_MAX);
        assert!(began.elapsed() < INITIAL_IDLE_MAX + seconds(60));
    }
}

/// Returns the event that kube-apiserver sends if its cache has not the version of etcd after 3 s.
fn too_large() -> String {
    let code = gone().replace("410", "504");
    code.replace("too old", "Too large resource version: 9, current: 7")
}

#[tokio::test(start_paused = true)]
async fn initial_events_with_an_error_are_followed_by_pages() {
    let object = event("ADDED", "7");
    let other_bookmark = event("BOOKMARK", "20");
    let is_false = end("20").replace(r#""true""#, r#""false""#);
    let no_version = end("20").replace("resourceVersion", "version");
    for (end, reason) in [
        (String::new(), "too early"),
        (gone(), "too old"),
        (gone().replace("410", "500"), "too old"),
        // The server lags behind its etcd. Its history did not go back.
        (too_large(), "Too large resource version"),
        ("no JSON\n".to_owned(), "expected"),
        (other_bookmark, "ignored sendInitialEvents"),
        (is_false, "ignored sendInitialEvents"),
        (end(""), "no resourceVersion"),
        (no_version, "status 0"),
    ] {
        let (client, urls) = chunks(now(&(object.clone() + &end)));

        let failure = fails(&client, &urls).await;

        assert!(failure.contains(reason), "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_follows_if_the_version_of_a_watch_is_gone() {
    let (client, urls) = chunks(lasting(&[event("ADDED", "7"), end("20"), gone()]));
    let mut signals = new(&client);

    let cycle = ["begins", "listed", "ends", "failed"];
    assert_eq!(next(&mut signals, 8).await, [cycle, cycle].concat());

    assert_eq!(count(&urls, is_streaming_list), 2);
    assert_eq!(count(&urls, |_| true), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_for_a_streaming_list_is_followed_by_pages() {
    for code in [500, 503, 504] {
        let (client, urls) = streaming(move || Some((code, now("no JSON"))));

        fails(&client, &urls).await;
    }
}

/// These failures do not concern streaming: lists would fail, too.
#[tokio::test(start_paused = true)]
async fn a_streaming_list_follows_if_the_server_was_unreachable_or_refused_the_client() {
    let refused = |code| Some((code, now("no JSON")));
    for (failure, name) in [
        (None, "failed"),
        (refused(401), "failed"),
        (refused(403), "refused"),
        (refused(404), "refused"),
        (refused(429), "failed"),
    ] {
        let is_failing = Mutex::new(true);
        let (client, urls) = streaming(move || {
            let is_failing = std::mem::take(&mut *is_failing.lock().unwrap());
            let list = lasting(&[end("20")]);
            if is_failing {
                failure.clone()
            } else {
                Some((200, list))
            }
        });
        let mut signals = new(&client);

        assert_eq!(next(&mut signals, 2).await, ["begins", name]);
        assert_eq!(next(&mut signals, 2).await, ["begins", "ends"]);

        assert_eq!(count(&urls, is_streaming_list), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_is_requested_again_without_delay_after_a_replacement_of_credentials() {
    let requests = Arc::new(Mutex::new(0));
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let mut requests = requests.lock().unwrap();
        *requests += 1;
        let is_replaced = *requests == 1;
        async move {
            if is_replaced {
                return Err(ReplacedError);
            }
            let body = kube::client::Body::from(end("20").into_bytes());
            Ok(http::Response::new(body))
        }
    });
    let mut signals = new(&Client::new(service, "default"));
    let began = Instant::now();

    assert_eq!(next(&mut signals, 3).await, ["begins", "begins", "ends"]);
    assert_eq!(began.elapsed(), Duration::ZERO);
}
