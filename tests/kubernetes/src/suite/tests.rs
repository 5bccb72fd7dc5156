//! Tests of the runner, without clusters.

use super::*;
use anyhow::bail;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn a_failed_serial_test_is_cleaned_up_and_the_shared_state_is_restored() {
    static LEFT: AtomicU32 = AtomicU32::new(0);
    let run = Run::<Fixture>::start().unwrap();
    let test = test(Mode::Serial, |_| {
        Box::pin(async {
            cleanup::defer("a peer", async || {
                LEFT.fetch_sub(1, Ordering::Relaxed);
                Ok(())
            });
            LEFT.fetch_add(1, Ordering::Relaxed);
            bail!("no traffic")
        })
    });

    let outcome = run.test(&test);

    assert_eq!(outcome.unwrap_err().to_string(), "no traffic");
    assert_eq!(LEFT.load(Ordering::Relaxed), 0);
    assert_eq!(run.shared.restored.load(Ordering::Relaxed), 1);
}

#[test]
fn a_failed_parallel_test_does_not_disturb_tests_beside_it() {
    let run = Run::<Fixture>::start().unwrap();
    let test = test(Mode::Parallel, |_| Box::pin(async { bail!("no traffic") }));

    let outcome = run.test(&test);

    assert_eq!(outcome.unwrap_err().to_string(), "no traffic");
    assert_eq!(run.shared.restored.load(Ordering::Relaxed), 0);
}

#[test]
fn a_failed_cleanup_fails_a_test_that_passed() {
    let run = Run::<Fixture>::start().unwrap();
    let test = test(Mode::Serial, |_| {
        Box::pin(async {
            cleanup::defer("a peer", async || bail!("a finalizer is left"));
            Ok(())
        })
    });

    let error = run.test(&test).unwrap_err().to_string();

    assert!(error.contains("a peer: a finalizer is left"), "{error}");
    assert_eq!(run.shared.restored.load(Ordering::Relaxed), 1);
}

#[derive(Default)]
struct Fixture {
    restored: AtomicU32,
}

impl Shared for Fixture {
    const NAMES: &'static [&'static str] = &[];

    fn make() -> Result<Self> {
        Ok(Self::default())
    }

    fn restore(&self) -> Result<()> {
        self.restored.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn test(mode: Mode, body: Body<Fixture>) -> Test<Fixture> {
    Test {
        name: "module::test".to_owned(),
        mode,
        body,
    }
}
