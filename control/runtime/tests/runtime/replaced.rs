//! Address and credentials of a peer are replaced while its objects change.

use crate::peers::{Peers, copied, kubeconfig, put_counter, put_peer};
use crate::process::{Process, wait_for};
use fake_apiserver::{ApiServer, Front, Head, Reply};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Replacements of the credentials. Every tenth also replaces the address.
const REPLACEMENTS: usize = 100;

/// Starts a front that refuses all tokens but the valid ones.
fn guarded(server: &ApiServer, valid: &Arc<Mutex<Vec<String>>>) -> Front {
    let valid = valid.clone();
    Front::start(server, move |head| {
        if valid.lock().expect("no panic").contains(&head.token) {
            Reply::Forward
        } else {
            Reply::status(401, "Unauthorized", "the token was revoked")
        }
    })
}

/// Changes the ConfigMap `counter` every millisecond until `stop`; returns the number of changes.
fn write_until(server: &ApiServer, stop: &AtomicBool) -> u64 {
    let mut value = 0;
    while !stop.load(Ordering::Relaxed) {
        put_counter(server, value);
        value += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    value
}

#[tokio::test]
async fn credentials_replaced_100_times_cause_no_list_and_lose_no_change() {
    let local = ApiServer::start();
    let remote = Arc::new(ApiServer::start());
    let valid = Arc::new(Mutex::new(vec!["token-0".to_owned()]));
    let fronts = [guarded(&remote, &valid), guarded(&remote, &valid)];
    let peers = Peers::default();
    let observed = peers.observed.clone();
    let process = Process::host(&local.url(), "a", None, peers);
    put_peer(&local, "milan", &kubeconfig(&fronts[0].url(), "token-0"));
    let is_list = |head: &Head| head.is_list() && head.target.contains("/configmaps");
    wait_for("the list", || fronts[0].count(is_list) == 1).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (remote, stop) = (remote.clone(), stop.clone());
        move || write_until(&remote, &stop)
    });

    for number in 1..=REPLACEMENTS {
        let front = &fronts[number / 10 % 2];
        let token = format!("token-{number}");
        valid.lock().unwrap().push(token.clone());
        put_peer(&local, "milan", &kubeconfig(&front.url(), &token));
        let resumed = || front.count(|head| head.is_watch() && head.token == token) > 0;
        wait_for("the watch with the new token", resumed).await;
        valid.lock().unwrap().retain(|valid| *valid == token);
    }

    stop.store(true, Ordering::Relaxed);
    let written = writer.join().expect("no panic");
    wait_for("the last change", || {
        observed.lock().unwrap().last() == Some(&(written - 1))
    })
    .await;
    wait_for("the last write", || copied(&remote) == Some(written - 1)).await;
    // Changes before the first list are not observed one by one.
    let observed = observed.lock().unwrap().clone();
    let first = observed[0];
    assert_eq!(observed, Vec::from_iter(first..written));
    let lists: usize = fronts.iter().map(|front| front.count(is_list)).sum();
    assert_eq!(lists, 1, "the watch listed again");
    let labels = r#"cluster="milan",resource="configmaps""#;
    assert_eq!(process.metric("watch_errors_total", labels), 0.0);
    eprintln!("observed {} changes", observed.len());
    process.stop().await;
}

#[tokio::test]
async fn equal_credentials_interrupt_no_watch() {
    let (local, remote) = (ApiServer::start(), ApiServer::start());
    let front = Front::start(&remote, |_| Reply::Forward);
    let process = Process::host(&local.url(), "a", None, Peers::default());
    let text = kubeconfig(&front.url(), "token");
    put_peer(&local, "milan", &text);
    put_counter(&remote, 1);
    wait_for("the first copy", || copied(&remote) == Some(1)).await;

    // The Secret has another version, and the same kubeconfig.
    let plans = || {
        let labels = r#"controller="peers",item="item""#;
        process.metric("reconcile_duration_seconds_count", labels)
    };
    let before = plans();
    put_peer(&local, "milan", &text);
    wait_for("the next plan", || plans() > before).await;
    put_counter(&remote, 2);
    wait_for("the second copy", || copied(&remote) == Some(2)).await;

    assert_eq!(front.count(Head::is_watch), 1);
    assert_eq!(
        front.count(Head::is_page),
        0,
        "the watch began with its list"
    );
    process.stop().await;
}

#[tokio::test]
async fn another_cluster_at_a_new_address_is_listed() {
    let [local, first, second] = [(); 3].map(|()| ApiServer::start());
    // The UIDs and the history of the servers in memory follow from the writes.
    put_counter(&first, 1);
    put_system(&first);
    put_system(&second);
    put_counter(&second, 7);
    for _ in 0..100 {
        put_system(&second);
    }
    let fronts = [&first, &second].map(|server| Front::start(server, |_| Reply::Forward));
    let process = Process::host(&local.url(), "a", None, Peers::default());
    put_peer(&local, "milan", &kubeconfig(&fronts[0].url(), "token"));
    let is_identified = || fronts[0].count(|head| head.target.ends_with(SYSTEM)) > 0;
    wait_for("the request for the identity", is_identified).await;
    wait_for("the copy", || copied(&first) == Some(1)).await;

    put_peer(&local, "milan", &kubeconfig(&fronts[1].url(), "token"));

    // The watch resumes after the change of the counter, so only a list contains it.
    wait_for("the copy in the other cluster", || {
        copied(&second) == Some(7)
    })
    .await;
    process.stop().await;
}

/// The namespace whose UID identifies a cluster.
const SYSTEM: &str = "/api/v1/namespaces/kube-system";

fn put_system(server: &ApiServer) {
    let metadata = serde_json::json!({"name": "kube-system"});
    server.put(
        SYSTEM,
        serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
    );
}
