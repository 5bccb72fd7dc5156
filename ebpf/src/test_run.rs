//! Runs the eBPF programs on single packets in the kernel, without attaching them to a device
//! (`BPF_PROG_TEST_RUN`).

use crate::error::Error;
use crate::image::Image;
use crate::maps::Maps;
use crate::object::{self, Constants};
use crate::tables::{TableChanges, Tables};
use aya::Ebpf;
use aya::programs::{TestRun as _, TestRunOptions};
use ebpf_common::counter::Counter;
use ebpf_common::settings::Settings;
use std::cell::RefCell;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Verdict for a dropped frame: the kernel's `TC_ACT_SHOT`.
pub const DROP: i32 = 2;

/// Verdict for a frame that goes to another device: the kernel's `TC_ACT_REDIRECT`.
pub const REDIRECT: i32 = 7;

/// Offset of the field `mark` in the kernel's `struct __sk_buff`.
///
/// In test runs, the programs write the outer destination address into this field.
const MARK: usize = 8;

/// Length of the kernel's `struct __sk_buff`.
const CONTEXT_LEN: usize = 192;

/// The contents of the maps without maps, for benchmarks.
#[derive(Debug, Default)]
pub struct Contents(Image);

impl Contents {
    /// Computes the system calls of [`crate::Datapath::update`], and makes none of them. Returns
    /// their number.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`crate::Datapath::update`].
    pub fn update(&mut self, changes: &TableChanges) -> Result<usize, Error> {
        let TableChanges { removed, added } = changes;
        let changes = self.0.changes(removed, added, &Settings::default())?;
        let calls = changes.len();
        self.0.apply(changes);

        Ok(calls)
    }
}

/// The loaded eBPF programs, which are not attached to a device.
pub struct Programs {
    pub(crate) ebpf: RefCell<Ebpf>,
    pub(crate) maps: RefCell<Maps>,
}

/// The result of running one program on one frame.
#[derive(Debug)]
pub struct Run {
    /// The program's verdict, [`DROP`] or [`REDIRECT`].
    pub verdict: i32,
    /// The bytes of the frame after the program has run.
    pub frame: Vec<u8>,
    /// The outer destination address, or `0.0.0.0` if the program set no tunnel key.
    pub node: Ipv4Addr,
    /// Mean time of one run.
    pub duration: Duration,
}

impl Programs {
    /// Loads the programs. All frames from the overlay get the outer source address `outer`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`crate::Datapath::attach`] and [`crate::Datapath::apply`].
    pub fn load(tables: &Tables, outer: Ipv4Addr, log: bool) -> Result<Self, Error> {
        let mut ebpf = load(1, outer, log)?;
        let mut maps = Maps::take(&mut ebpf)?;
        maps.apply(Image::new(tables, &Settings::default())?)?;

        Ok(Self {
            ebpf: RefCell::new(ebpf),
            maps: RefCell::new(maps),
        })
    }

    /// Runs the program of the overlay device once.
    ///
    /// # Panics
    ///
    /// Panics if the kernel rejects the frame. A frame needs a complete Ethernet header, followed
    /// by a complete IP header if its EtherType is IPv4 or IPv6.
    pub fn overlay(&self, frame: &[u8]) -> Run {
        self.run(object::OVERLAY_PROGRAM, frame, 1)
    }

    /// Runs the program of the TAP once.
    ///
    /// # Panics
    ///
    /// Panics if the kernel rejects the frame, for the reasons given in [`Programs::overlay`].
    pub fn tap(&self, frame: &[u8]) -> Run {
        self.run(object::TAP_PROGRAM, frame, 1)
    }

    /// Returns the number of packets that `counter` has counted.
    ///
    /// # Panics
    ///
    /// Panics if the kernel does not return the counters.
    pub fn count(&self, counter: Counter) -> u64 {
        let counters = self.maps.borrow().counters();
        counters.expect("the counters are loaded")[counter.name()]
    }

    pub(crate) fn run(&self, program: &'static str, frame: &[u8], repeat: u32) -> Run {
        let mut out = vec![0; frame.len() + 64];
        let mut context = [0; CONTEXT_LEN];
        let result = object::program(&mut self.ebpf.borrow_mut(), program)
            .expect("the program is loaded")
            .test_run(TestRunOptions {
                data_in: Some(frame),
                data_out: Some(&mut out),
                ctx_out: Some(&mut context),
                repeat,
                ..TestRunOptions::default()
            })
            .expect("the kernel accepts the frame");
        out.truncate(result.data_size_out as usize);
        let mark = context[MARK..].first_chunk().copied().unwrap_or_default();

        Run {
            verdict: result.return_value.cast_signed(),
            frame: out,
            node: Ipv4Addr::from_bits(u32::from_ne_bytes(mark)),
            duration: result.duration,
        }
    }
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Programs")
    }
}

/// Loads the programs for an engine with `lanes` lanes.
pub(crate) fn load(lanes: u32, outer: Ipv4Addr, log: bool) -> Result<Ebpf, Error> {
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

    object::load(&constants, None)
}

/// Returns the number of the mechanism that the mutation test switches off; zero for none.
#[cfg(feature = "mutants")]
fn mutant() -> u32 {
    use ebpf_common::mutant::Mechanism;

    let name = std::env::var("LIQO_MUTANT").unwrap_or_default();
    Mechanism::named(&name).map_or(0, |mechanism| mechanism as u32)
}
