//! Each program by `BPF_PROG_TEST_RUN`, in the real kernel, as root.
//!
//! A packet is a value that encodes itself with all checksums made from scratch;
//! what a program must make of it is another such value. So comparing bytes
//! checks every checksum that the kernel has mended step by step.

mod generate;
mod packet;
mod world;

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
mod turn;

use crate::image::Image;
use crate::maps::Maps;
use crate::object::{self, Constants};
use crate::tables::Tables;
use aya::Ebpf;
use aya::programs::{TestRun, TestRunOptions};
use ebpf_common::counter::Counter;
use ebpf_common::probe::Heartbeat;
use ebpf_common::settings::Settings;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The outer source that test runs pretend, unless told another.
const OUTER: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 2);

/// Verdicts of a program.
const DROP: i32 = 2;
const REDIRECT: i32 = 7;

/// Offset of the mark in the kernel's `struct __sk_buff`, and that structure's length.
const MARK: usize = 8;
const CONTEXT_LEN: usize = 192;

/// The programs, loaded but attached to nothing.
struct Programs {
    ebpf: RefCell<Ebpf>,
    maps: RefCell<Maps>,
}

/// What a program made of a frame.
#[derive(Debug)]
struct Run {
    verdict: i32,
    frame: Vec<u8>,
    /// The outer destination, where a node was chosen.
    node: Ipv4Addr,
    duration: Duration,
}

impl Programs {
    fn load(tables: &Tables) -> Self {
        Self::load_with(tables, OUTER, false)
    }

    fn load_with(tables: &Tables, outer: Ipv4Addr, log: bool) -> Self {
        let settings = Settings::default();
        let mut ebpf = load(1, outer, log);
        let mut maps = Maps::take(&mut ebpf).unwrap();
        maps.apply(Image::new(tables, &settings).unwrap()).unwrap();

        Self {
            ebpf: RefCell::new(ebpf),
            maps: RefCell::new(maps),
        }
    }

    fn overlay(&self, frame: &[u8]) -> Run {
        self.run(object::OVERLAY_PROGRAM, frame, 1)
    }

    fn tap(&self, frame: &[u8]) -> Run {
        self.run(object::TAP_PROGRAM, frame, 1)
    }

    fn run(&self, program: &'static str, frame: &[u8], repeat: u32) -> Run {
        let mut out = vec![0; frame.len() + 64];
        let mut context = [0; CONTEXT_LEN];
        let result = object::program(&mut self.ebpf.borrow_mut(), program)
            .unwrap()
            .test_run(TestRunOptions {
                data_in: Some(frame),
                data_out: Some(&mut out),
                ctx_out: Some(&mut context),
                repeat,
                ..TestRunOptions::default()
            })
            .unwrap();
        out.truncate(result.data_size_out as usize);
        let mark = u32::from_ne_bytes(context[MARK..MARK + 4].try_into().unwrap());

        Run {
            verdict: result.return_value.cast_signed(),
            frame: out,
            node: Ipv4Addr::from_bits(mark),
            duration: result.duration,
        }
    }

    fn count(&self, counter: Counter) -> u64 {
        self.maps.borrow().counters().unwrap()[counter.name()]
    }

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

/// Loads the programs for an engine of so many lanes.
fn load(lanes: u32, outer: Ipv4Addr, log: bool) -> Ebpf {
    let constants = Constants {
        overlay_ifindex: 1,
        tap_ifindex: 1,
        lanes,
        settings: Settings::default(),
        log,
        skip_kernel_types: false,
        test_outer: Some(outer),
        #[cfg(feature = "mutants")]
        mutant: mutant(),
    };

    object::load(&constants, None).expect("tests need root")
}

/// Runs `check` for generated values; a load of the programs serves all of them.
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

/// The number of the mechanism that the mutation test has switched off.
#[cfg(feature = "mutants")]
fn mutant() -> u32 {
    use ebpf_common::mutant::Mechanism;

    let name = std::env::var("LIQO_MUTANT").unwrap_or_default();
    Mechanism::named(&name).map_or(0, |mechanism| mechanism as u32)
}
