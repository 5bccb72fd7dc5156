//! Cleanups of a test, like Go's `testing.T.Cleanup`.
//!
//! A cleanup is registered before the change that it reverts, so that it also reverts a partial
//! change. The runner runs the cleanups of a test in reverse order, after the test's body has
//! returned, failed, panicked or timed out. After an error of a cleanup, the runner runs the
//! remaining cleanups.

use anyhow::{Context as _, Error, Result, anyhow};
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{self, AssertUnwindSafe};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// The time limit of a cleanup. The slowest cleanup removes a node, which takes seconds. A loaded
/// machine may need ten times as long.
const CLEANUP_LIMIT: Duration = Duration::from_secs(180);

tokio::task_local! {
    static CURRENT: Cleanups;
}

/// Registers a cleanup for the current test. Errors contain `what`, which describes the object to
/// remove or restore. The cleanup must succeed if there is nothing to revert.
///
/// # Panics
///
/// Panics outside of a test's body, because no runner would run the cleanup.
pub fn defer(
    what: impl Into<String>,
    action: impl AsyncFnOnce() -> Result<()> + 'static,
) -> Deferred {
    let what = what.into();
    let action: Action = Box::new(|| Box::pin(async move { action().await }));
    let register = |cleanups: &Cleanups| {
        let mut entries = cleanups.0.borrow_mut();
        entries.push(Some(Entry { what, action }));
        Deferred {
            cleanups: cleanups.clone(),
            index: entries.len() - 1,
        }
    };

    CURRENT
        .try_with(register)
        .expect("cleanups are registered by tests that a suite runs")
}

/// A registered cleanup. The cleanup remains registered if this value is dropped.
pub struct Deferred {
    cleanups: Cleanups,
    index: usize,
}

impl Deferred {
    /// Runs the cleanup immediately, instead of after the test.
    ///
    /// # Errors
    ///
    /// Returns the error of the cleanup. A failed cleanup is not repeated.
    pub async fn run(self) -> Result<()> {
        let entry = self.cleanups.0.borrow_mut()[self.index].take();
        match entry {
            Some(entry) => entry.run().await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deferred({})", self.index)
    }
}

/// Runs the body of a test for at most `limit`, and then its cleanups. Calls `on_failure` with the
/// error of a failed body before the cleanups, so that evidence can be collected.
///
/// # Errors
///
/// Returns the error of the body, and the errors of all cleanups that failed.
pub(crate) async fn run(
    body: impl Future<Output = Result<()>>,
    limit: Duration,
    on_failure: impl FnOnce(&Error),
) -> Result<()> {
    let cleanups = Cleanups::default();
    let body = CURRENT.scope(cleanups.clone(), bounded(body, limit));
    let outcome = body.await.inspect_err(on_failure);

    let mut failures = Vec::new();
    while let Some(entry) = cleanups.pop() {
        if let Err(error) = entry.run().await {
            failures.push(format!("{error:#}"));
        }
    }

    let failures = failures.join("; ");
    match outcome {
        outcome if failures.is_empty() => outcome,
        Ok(()) => Err(anyhow!(
            "the test passed, but its cleanup failed: {failures}"
        )),
        Err(error) => Err(anyhow!("{error:#}; its cleanup failed, too: {failures}")),
    }
}

type Action = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Result<()>>>>>;

/// The cleanups of a test in the order of registration. An entry is `None` once it has run.
#[derive(Clone, Default)]
struct Cleanups(Rc<RefCell<Vec<Option<Entry>>>>);

impl Cleanups {
    fn pop(&self) -> Option<Entry> {
        let mut entries = self.0.borrow_mut();
        while let Some(entry) = entries.pop() {
            if entry.is_some() {
                return entry;
            }
        }
        None
    }
}

struct Entry {
    what: String,
    action: Action,
}

impl Entry {
    async fn run(self) -> Result<()> {
        let Self { what, action } = self;
        let action = async move { action().await };

        bounded(action, CLEANUP_LIMIT).await.context(what)
    }
}

/// Runs a future for at most `limit`, and returns its panic as an error.
async fn bounded(future: impl Future<Output = Result<()>>, limit: Duration) -> Result<()> {
    let mut future = pin!(future);
    let caught = poll_fn(|context| {
        let poll = AssertUnwindSafe(|| future.as_mut().poll(context));
        panic::catch_unwind(poll).unwrap_or_else(|panic| {
            let message = message(panic.as_ref());
            Poll::Ready(Err(anyhow!("panicked: {message}")))
        })
    });

    match tokio::time::timeout(limit, caught).await {
        Ok(outcome) => outcome,
        Err(_) => Err(anyhow!("timed out after {} s", limit.as_secs())),
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let formatted = panic.downcast_ref::<String>().map(String::as_str);

    text.or(formatted).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::collections::BTreeSet;

    const LIMIT: Duration = Duration::from_secs(30);

    /// The names of the objects in a simulated cluster.
    type Objects = Rc<RefCell<BTreeSet<&'static str>>>;

    fn create(objects: &Objects, name: &'static str) -> Deferred {
        let cluster = Rc::clone(objects);
        let deferred = defer(name, async move || {
            cluster.borrow_mut().remove(name);
            Ok(())
        });
        objects.borrow_mut().insert(name);
        deferred
    }

    fn ignore(_: &Error) {}

    #[tokio::test]
    async fn a_failing_test_leaves_nothing() {
        let objects = Objects::default();

        let body = async {
            create(&objects, "upstream-server");
            create(&objects, "web");
            bail!("no traffic")
        };
        let outcome = run(body, LIMIT, ignore).await;

        assert_eq!(outcome.unwrap_err().to_string(), "no traffic");
        assert_eq!(*objects.borrow(), BTreeSet::new());
    }

    #[tokio::test]
    async fn a_panicking_test_leaves_nothing() {
        let objects = Objects::default();

        let body = async {
            create(&objects, "web");
            panic!("index {} is out of bounds", 7)
        };
        let outcome = run(body, LIMIT, ignore).await;

        let error = outcome.unwrap_err().to_string();
        assert_eq!(error, "panicked: index 7 is out of bounds");
        assert_eq!(*objects.borrow(), BTreeSet::new());
    }

    #[tokio::test]
    async fn a_test_that_times_out_leaves_nothing() {
        let objects = Objects::default();

        let body = async {
            create(&objects, "web");
            std::future::pending().await
        };
        let outcome = run(body, Duration::from_millis(1), ignore).await;

        assert!(outcome.unwrap_err().to_string().contains("timed out"));
        assert_eq!(*objects.borrow(), BTreeSet::new());
    }

    #[tokio::test]
    async fn a_failed_cleanup_is_reported_and_the_others_run() {
        let objects = Objects::default();

        let body = async {
            create(&objects, "first");
            defer("namespace stuck", async || bail!("a finalizer is left"));
            defer("route", async || panic!("no such node"));
            create(&objects, "last");
            Ok(())
        };
        let outcome = run(body, LIMIT, ignore).await;

        let error = outcome.unwrap_err().to_string();
        assert!(
            error.contains("namespace stuck: a finalizer is left"),
            "{error}"
        );
        assert!(error.contains("route: panicked: no such node"), "{error}");
        assert_eq!(*objects.borrow(), BTreeSet::new());
    }

    #[tokio::test]
    async fn cleanups_run_in_reverse_order_and_once() {
        let order = Rc::new(RefCell::new(Vec::new()));
        let register = |name| {
            let order = Rc::clone(&order);
            defer(name, async move || {
                order.borrow_mut().push(name);
                Ok(())
            })
        };

        let body = async {
            register("first");
            let early = register("early");
            register("last");
            early.run().await
        };
        run(body, LIMIT, ignore).await.unwrap();

        assert_eq!(*order.borrow(), ["early", "last", "first"]);
    }

    #[tokio::test]
    async fn evidence_is_gathered_before_the_cleanup() {
        let objects = Objects::default();
        let mut seen = 0;

        let body = async {
            create(&objects, "web");
            bail!("no traffic")
        };
        let outcome = run(body, LIMIT, |_| seen = objects.borrow().len()).await;

        assert!(outcome.is_err());
        assert_eq!(seen, 1);
    }
}
