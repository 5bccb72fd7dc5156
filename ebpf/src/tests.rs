//! Tests each eBPF program in the running kernel by `BPF_PROG_TEST_RUN`. The tests need root.
//!
//! A test describes a packet and the packet that it expects from the program. The encoder computes
//! all checksums of both packets from scratch. The programs update checksums incrementally, so a
//! comparison of the bytes checks these updates.

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
mod service;
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

/// The outer source address of frames from the overlay, unless a test sets another address.
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

    /// Checks that a program drops the frame and counts it under `reason`.
    fn assert_refused(&self, run: impl Fn(&Self) -> Run, reason: Counter) {
        let before = self.count(reason);

        let verdict = run(self).verdict;

        assert_eq!(verdict, DROP, "{}", reason.name());
        assert_eq!(self.count(reason), before + 1, "{}", reason.name());
    }
}

/// Runs `check` for 512 generated values. Callers load the programs once, outside of `check`.
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
