//! Benchmarks that count a thread's processor time.
//!
//! What others do on the machine meanwhile lengthens the time on the clock many times over, but
//! hardly the time that a thread has the processor.

#![forbid(unsafe_code)]

use criterion::Criterion;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the settings of all benchmarks, with what the command line says.
pub fn criterion() -> Criterion<CpuTime> {
    Criterion::default()
        .with_measurement(CpuTime)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .configure_from_args()
}

/// Returns how long this thread has had the processor.
///
/// # Panics
///
/// Panics if the kernel has no such clock, which Linux has.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);

    time.expect("Linux has that clock").into()
}

/// Processor time of the thread that runs the benchmark.
pub struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        now()
    }

    fn end(&self, start: Duration) -> Duration {
        now().saturating_sub(start)
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}
