use super::*;
use crate::backoff::Backoff;
use crate::object::{Cluster, Resource};
use crate::watch::Selector;
use futures_util::future::join_all;
use http_body_util::channel::Channel;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ObjectList;
use std::io;
use std::sync::Mutex;

mod initial;

type Signal = super::Signal<Secret>;

impl Watched for Secret {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Chunks of a response, each with the delay before it.
type Chunks = Vec<(Duration, String)>;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// How a server lists objects at the beginning of a watch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lists {
    /// In pages, because the feature gate `WatchList` is off.
    Paged,
    Streamed,
}

const LISTS: [Lists; 2] = [Lists::Paged, Lists::Streamed];

/// Returns a client whose requests `reply` answers, by the URL. The response to a streaming list consists of those to
/// the list and to the watch.
fn client(lists: Lists, reply: impl Fn(&str) -> Chunks + Send + Sync + 'static) -> Client {
    serve(move |url| {
        if !is_streaming_list(url) {
            return Some((200, reply(url)));
        }
        if lists == Lists::Paged {
            return Some((422, now(INVALID)));
        }
        let (path, _) = url.split_once('?')?;
        let list = reply(&format!("{path}?limit=500"));
        let list = list.into_iter().map(|(delay, text)| {
            let list: ObjectList<Secret> = serde_json::from_str(&text).expect("a list");
            assert!(list.items.is_empty());
            let version = list.metadata.resource_version.expect("a version");
            (delay, end(&version))
        });
        Some((200, list.chain(reply(url)).collect()))
    })
}

/// Returns a client of a server that replies with these codes and bodies, or is unreachable.
fn serve(reply: impl Fn(&str) -> Option<(u16, Chunks)> + Send + Sync + 'static) -> Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let reply = reply(&request.uri().to_string());
        async {
            let (code, chunks) = reply.ok_or(io::ErrorKind::ConnectionRefused)?;
            let (mut sender, body) = Channel::new(8);
            tokio::spawn(async move {
                for (delay, chunk) in chunks {
                    tokio::time::sleep(delay).await;
                    // An error means that the client waits no longer.
                    sender.send_data(chunk.into_bytes().into()).await.ok();
                }
            });
            let mut response = http::Response::<Channel<_>>::new(body);
            *response.status_mut() = code.try_into().expect("a code");
            Ok::<_, io::Error>(response)
        }
    });
    Client::new(service, "default")
}

/// Returns a watch of Secrets.
fn watch(client: Client, siblings: &Arc<Siblings>) -> BoxStream<'static, Signal> {
    let id = WatchId {
        cluster: Cluster::Local,
        resource: Resource::of::<Secret>(),
        namespace: None,
        selector: Selector::default(),
    };
    let target = Target {
        client,
        id,
        refused_delay: None,
        siblings: Arc::clone(siblings),
    };
    stream(target, |secret| secret)
}

fn page(version: &str) -> Chunks {
    let list = format!(r#"{{"metadata": {{"resourceVersion": "{version}"}}, "items": []}}"#);
    now(&list)
}

/// Returns a response that is sent at once.
fn now(text: &str) -> Chunks {
    vec![(Duration::ZERO, text.to_owned())]
}

/// Returns the line of a watch event.
fn event(kind: &str, version: &str) -> String {
    format!(
        r#"{{"type": "{kind}", "object": {{"apiVersion": "v1", "kind": "Secret",
        "metadata": {{"name": "a", "namespace": "a", "uid": "u", "resourceVersion": "{version}"}}}}}}"#
    )
    .replace('\n', "")
        + "\n"
}

/// Returns the line of the bookmark after the initial events.
fn end(version: &str) -> String {
    let annotations = r#""annotations": {"k8s.io/initial-events-end": "true"}, "name""#;
    event("BOOKMARK", version).replace(r#""name""#, annotations)
}

/// The reason for which kube-apiserver refuses a streaming list.
const INVALID: &str = r#"{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 422,
    "reason": "Invalid", "message": "sendInitialEvents is forbidden"}"#;

const GONE: &str = r#"{"type": "ERROR", "object": {"apiVersion": "v1", "kind": "Status",
    "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}}"#;

fn gone() -> String {
    GONE.replace('\n', "") + "\n"
}

fn is_watch(url: &str) -> bool {
    url.contains("watch=true")
}

fn is_streaming_list(url: &str) -> bool {
    url.contains("sendInitialEvents=true")
}

#[tokio::test(start_paused = true)]
async fn a_list_without_last_page_fails_after_its_longest_duration() {
    let page = r#"{"metadata": {"resourceVersion": "1", "continue": "more"}, "items": []}"#;
    let client = client(Lists::Paged, |_| vec![(seconds(10), page.to_owned())]);
    let mut signals = watch(client, &Arc::default());
    let began = Instant::now();

    assert!(matches!(signals.next().await, Some(Signal::ListBegins)));
    let Some(Signal::Failed(reason)) = signals.next().await else {
        panic!("the list has no end");
    };

    assert_eq!(began.elapsed(), LIST_MAX);
    assert!(reason.contains("600s"), "{reason}");
    assert!(matches!(signals.next().await, Some(Signal::ListBegins)));
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_watches_fail_at_once_gets_few_requests() {
    const FAILURES: u32 = 50;
    for (body, is_expected) in [
        (
            event("ADDED", "10") + &event("ADDED", "9"),
            (|it| matches!(it, Signal::WentBack)) as fn(&Signal) -> bool,
        ),
        (gone(), |it| matches!(it, Signal::Failed(_))),
        (event("ADDED", ""), |it| matches!(it, Signal::Failed(_))),
        ("no JSON\n".to_owned(), |it| matches!(it, Signal::Failed(_))),
        (String::new(), |it| matches!(it, Signal::Failed(_))),
    ] {
        for lists in LISTS {
            let text = body.clone();
            let body = body.clone();
            let client = client(lists, move |url| match is_watch(url) {
                true => now(&body),
                false => page("5"),
            });
            let mut signals = watch(client, &Arc::default());
            let began = Instant::now();

            let mut failures = 0;
            while failures < FAILURES {
                let signal = signals.next().await.expect("signals");
                failures += u32::from(is_expected(&signal));
            }

            // All delays but the first few are the longest, shortened by at most a quarter.
            let least = Backoff::REQUEST.max.mul_f64(0.75) * (FAILURES - 6);
            assert!(began.elapsed() > least, "{:?}: {text}", began.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn delays_begin_with_the_shortest_again_after_a_stable_watch() {
    for lists in LISTS {
        let watches = Mutex::new(0);
        let client = client(lists, move |url| {
            if !is_watch(url) {
                return page("5");
            }
            let mut watches = watches.lock().unwrap();
            *watches += 1;
            let lives = if *watches == 10 {
                STABLE_MIN
            } else {
                seconds(0)
            };
            vec![(lives, gone())]
        });
        let mut signals = watch(client, &Arc::default());
        let mut failures = 0;
        while failures < 10 {
            failures += u32::from(matches!(signals.next().await, Some(Signal::Failed(_))));
        }
        let failed = Instant::now();

        assert!(matches!(signals.next().await, Some(Signal::ListBegins)));

        assert!(failed.elapsed() < Backoff::REQUEST.min * 2);
    }
}

#[tokio::test(start_paused = true)]
async fn versions_that_are_no_numbers_are_not_compared() {
    for lists in LISTS {
        let client = client(lists, |url| match is_watch(url) {
            true => vec![
                (Duration::ZERO, event("ADDED", "b/2")),
                (Duration::ZERO, event("MODIFIED", "a/1")),
                (seconds(3600), event("DELETED", "1")),
            ],
            false => page("3"),
        });
        let signals = watch(client, &Arc::default());

        let signals: Vec<_> = signals.skip(2).take(2).collect().await;

        let is_object = |signal: &Signal| matches!(signal, Signal::Object { .. });
        assert!(signals.iter().all(is_object), "{signals:?}");
    }
}

/// Returns the first signals of a quiet watch whose list has version 100, whose last bookmark has version
/// 5000, and that is interrupted. The server has version `present` afterwards.
async fn interrupted(
    lists: Lists,
    present: &'static str,
    body: Chunks,
) -> (Vec<Signal>, Vec<String>) {
    let urls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&urls);
    let client = client(lists, move |url| {
        let mut urls = seen.lock().unwrap();
        urls.push(url.to_owned());
        match (is_watch(url), urls.len()) {
            (true, 2) => body.clone(),
            (true, _) => vec![(seconds(3600), String::new())],
            (false, 1) => page("100"),
            (false, _) => page(present),
        }
    });
    let signals = watch(client, &Arc::default()).skip(2);
    let signals = signals.take_until(Box::pin(tokio::time::sleep(seconds(100))));
    let signals = signals.collect().await;
    let urls = urls.lock().unwrap().clone();

    (signals, urls)
}

/// The ends of a watch: by the server, and by an error.
fn ends() -> Vec<(Lists, Chunks)> {
    let bookmark = (seconds(40), event("BOOKMARK", "5000"));
    let error = gone().replace("410", "500");
    let ends = [vec![bookmark.clone()], vec![bookmark, (seconds(1), error)]];
    let ends = LISTS.map(|lists| ends.clone().map(|body| (lists, body)));
    ends.into_iter().flatten().collect()
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_lists_again_if_the_server_has_an_older_version_than_its_bookmark() {
    for (lists, body) in ends() {
        let (signals, urls) = interrupted(lists, "4000", body).await;

        assert!(matches!(signals[0], Signal::Bookmark), "{signals:?}");
        let went_back = signals.iter().position(|it| matches!(it, Signal::WentBack));
        let went_back = went_back.expect("the history went back");
        assert!(matches!(signals[went_back + 1], Signal::ListBegins));
        assert!(urls.iter().all(|url| !url.contains("resourceVersion=5000")));
        match lists {
            Lists::Paged => assert!(urls.last().unwrap().contains("resourceVersion=4000")),
            Lists::Streamed => assert!(is_streaming_list(urls.last().unwrap())),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_watch_resumes_at_its_bookmark_without_a_list() {
    for (lists, body) in ends() {
        let (signals, urls) = interrupted(lists, "5000", body).await;

        let is_list = |it: &&Signal| matches!(it, Signal::ListBegins | Signal::WentBack);
        assert_eq!(signals.iter().filter(is_list).count(), 0, "{signals:?}");
        assert!(urls.last().unwrap().contains("resourceVersion=5000"));
    }
}

#[tokio::test(start_paused = true)]
async fn lists_after_a_common_failure_are_spread_over_a_time_that_grows_with_their_number() {
    const WATCHES: usize = 100;
    for lists in LISTS {
        let siblings = Arc::default();
        let began = Instant::now();
        let watches = (0..WATCHES).map(|_| {
            let client = client(lists, |url| match is_watch(url) {
                true => now(&gone()),
                false => page("5"),
            });
            watch(client, &siblings)
        });
        let watches: Vec<_> = watches.collect();

        let second_lists = join_all(watches.into_iter().map(|mut signals| async move {
            for _ in 0..4 {
                signals.next().await;
            }
            began.elapsed()
        }));

        let times = second_lists.await;
        let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        let mean_interval = (*last - *first) / u32::try_from(WATCHES).unwrap();
        assert!(
            mean_interval > Duration::from_millis(10),
            "{mean_interval:?}"
        );
    }
}

/// Watches that began together would end together, and all processes would send requests at once.
#[tokio::test(start_paused = true)]
async fn watches_that_begin_together_end_at_different_times() {
    for lists in LISTS {
        let lifetimes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lifetimes);
        let client = client(lists, move |url| {
            let Some((_, lifetime)) = url.split_once("timeoutSeconds=") else {
                return page("100");
            };
            let digits = lifetime.split('&').next().unwrap();
            seen.lock().unwrap().push(digits.parse().unwrap());
            vec![(seconds(3600), String::new())]
        });
        let siblings = Arc::default();
        let watches = (0..50).map(|_| watch(client.clone(), &siblings));
        let watches = watches.map(|it| it.take_until(Box::pin(tokio::time::sleep(seconds(100)))));

        join_all(watches.map(|it| it.collect::<Vec<_>>())).await;

        let lifetimes: Vec<u64> = lifetimes.lock().unwrap().clone();
        assert_eq!(lifetimes.len(), 50, "{lifetimes:?}");
        assert!(
            lifetimes.iter().all(|it| (1800..=3600).contains(it)),
            "{lifetimes:?}"
        );
        let minutes: std::collections::BTreeSet<_> = lifetimes.iter().map(|it| it / 60).collect();
        assert!(minutes.len() >= 3, "{lifetimes:?}");
    }
}
