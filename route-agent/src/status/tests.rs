use super::*;
use std::future::{pending, ready};

fn counted(packets: u64) -> Result<BTreeMap<String, u64>, &'static str> {
    Ok(BTreeMap::from([("outer-source".to_owned(), packets)]))
}

fn drops(status: &Shared) -> Option<u64> {
    status.read().drops.get("outer-source").copied()
}

#[tokio::test]
async fn counters_are_read_again_only_after_their_maximum_age() {
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
async fn a_failed_reading_keeps_the_counters_and_a_slow_one_blocks_no_reader() {
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
fn only_a_changed_error_is_new() {
    let mut config = Config::default();

    let is_new = ["bad", "bad", "worse"].map(|error| config.note_rejected(error));

    assert_eq!(is_new, [true, false, true]);
    assert_eq!(config.error.as_deref(), Some("worse"));
}
