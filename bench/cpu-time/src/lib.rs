//! Lets Criterion measure the CPU time of the benchmark's thread instead of elapsed time.
//!
//! On a busy machine, other processes increase the elapsed time several times over, but the CPU
//! time only a little.

#![forbid(unsafe_code)]

use criterion::Criterion;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the Criterion settings of all benchmarks: 0.3 s of warm-up, 1 s of measurement, 20
/// samples.
///
/// Command-line arguments override these settings.
pub fn criterion() -> Criterion<CpuTime> {
    Criterion::default()
        .with_measurement(CpuTime)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .configure_from_args()
}

/// Returns the CPU time that the calling thread has used since it started.
///
/// # Panics
///
/// Panics if the kernel lacks `CLOCK_THREAD_CPUTIME_ID`; Linux has it since 2.6.12.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);

    time.expect("Linux has this clock").into()
}

/// The Criterion measurement of the CPU time that the benchmark's thread uses.
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
