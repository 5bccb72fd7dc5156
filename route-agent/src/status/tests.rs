use super::*;
use std::future::{pending, ready};

fn counted(packets: u64) -> Result<BTreeMap<String, u64>, &'static str> {
    Ok(BTreeMap::from([("strangers".to_owned(), packets)]))
}

fn drops(status: &Shared) -> Option<u64> {
    status.read().drops.get("strangers").copied()
}

#[tokio::test]
async fn counters_are_read_again_only_when_they_are_old() {
    let status = Shared::default();
    let start = Instant::now();
    let old = start + DROPS_AGE_MAX;
    let fresh = old - Duration::from_nanos(1);

    status.refresh_by(ready(counted(1)), start).await;
    status.refresh_by(ready(counted(2)), fresh).await;
    assert_eq!(drops(&status), Some(1));

    status.refresh_by(ready(counted(3)), old).await;
    assert_eq!(drops(&status), Some(3));
}

#[tokio::test]
async fn counters_that_cannot_be_read_stay_and_nobody_waits_for_a_slow_reading() {
    let status = Shared::default();
    let start = Instant::now();
    let old = start + DROPS_AGE_MAX;
    status.refresh_by(ready(counted(1)), start).await;

    let slow = status.refresh_by(pending::<Result<_, &str>>(), old);
    let waited = tokio::time::timeout(Duration::from_millis(1), async {
        tokio::join!(slow, async {
            status.update(|status| status.converged = true);
            assert_eq!(status.readiness(), Ok(()));
            assert_eq!(drops(&status), Some(1));
        })
    });
    assert!(waited.await.is_err());

    status.refresh_by(ready(Err("no nft")), old).await;
    assert_eq!(drops(&status), Some(1));
}

#[test]
fn an_unchanged_error_of_the_file_is_no_news() {
    let mut config = Config::default();

    let news = ["bad", "bad", "worse"].map(|error| config.note_rejected(error));

    assert_eq!(news, [true, false, true]);
    assert_eq!(config.error.as_deref(), Some("worse"));
}
