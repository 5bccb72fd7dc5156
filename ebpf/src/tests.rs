//! Each program by `BPF_PROG_TEST_RUN`, in the real kernel, as root.
//!
//! A packet is a value that encodes itself with all checksums computed from scratch;
//! the expected output is another such value. So comparing bytes checks every
//! checksum that the kernel has updated incrementally.

mod fixture;
mod generate;
mod packet;

mod active_worker;
mod garbage;
mod hook;
mod icmp;
mod image;
mod mss;
mod oracle;
mod overlay;
mod probe;
mod speed;
mod tap;
mod trace;
mod transit;

use crate::image::Image;
use crate::tables::Tables;
use crate::test_run::{DROP, Programs, REDIRECT, Run};
use ebpf_common::counter::Counter;
use ebpf_common::probe::Heartbeat;
use ebpf_common::settings::Settings;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestRunner};
use std::net::Ipv4Addr;

/// The outer source of each frame from the overlay, unless a test names another.
const OUTER: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 2);

fn load(tables: &Tables) -> Programs {
    load_with(tables, OUTER, false)
}

fn load_with(tables: &Tables, outer: Ipv4Addr, log: bool) -> Programs {
    Programs::load(tables, outer, log).expect("tests need root")
}

impl Programs {
    fn beat(&self, heartbeat: &Heartbeat) {
        self.maps.borrow_mut().beat(heartbeat).unwrap();
    }

    /// Runs `program` and checks that the frame was dropped, for this reason.
    fn assert_refused(&self, run: impl Fn(&Self) -> Run, reason: Counter) {
        let before = self.count(reason);

        let verdict = run(self).verdict;

        assert_eq!(verdict, DROP, "{}", reason.name());
        assert_eq!(self.count(reason), before + 1, "{}", reason.name());
    }
}

/// Runs `check` for generated values; the programs are loaded once for all of them.
fn for_all<S: Strategy>(strategy: S, check: impl Fn(S::Value)) {
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(512)
    };
    TestRunner::new(config)
        .run(&strategy, |value| {
            check(value);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}
