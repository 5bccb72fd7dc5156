//! Tests of the programs that select the lane and the worker for a datagram.

use super::OUTER;
use crate::object::{self, LISTEN_PROGRAM, REPLY_PROGRAM};
use crate::test_run::load;
use aya::Ebpf;
use aya::maps::{Array, MapData};
use aya::programs::{SocketFilter, TestRun as _, TestRunOptions};
use ebpf_common::maps::{ACTIVE_WORKERS, ActiveWorker, CPUS_MAX, NO_WORKER, WORKERS};

const LANES: u32 = 3;

/// Length of the Ethernet header, which the kernel removes before a test run of a socket filter.
const ETHERNET: usize = 14;

struct Programs {
    ebpf: Ebpf,
    active_workers: Array<MapData, ActiveWorker>,
    workers: Array<MapData, u32>,
}

impl Programs {
    fn load() -> Self {
        let mut ebpf = load(LANES, OUTER, false).expect("tests need root");
        for name in [LISTEN_PROGRAM, REPLY_PROGRAM] {
            object::socket_filter(&mut ebpf, name).unwrap();
        }
        let active_workers = Array::try_from(ebpf.take_map(ACTIVE_WORKERS).unwrap()).unwrap();
        let workers = Array::try_from(ebpf.take_map(WORKERS).unwrap()).unwrap();

        Self {
            ebpf,
            active_workers,
            workers,
        }
    }

    fn run(&mut self, program: &str, message: &[u8]) -> u32 {
        let frame = [&[0; ETHERNET], message].concat();
        let program = self.ebpf.program_mut(program).unwrap();
        let program: &mut SocketFilter = program.try_into().unwrap();
        let run = program.test_run(TestRunOptions {
            data_in: Some(&frame),
            repeat: 1,
            ..TestRunOptions::default()
        });

        run.unwrap().return_value
    }

    /// Assigns all CPUs to one worker, because a test cannot choose the CPU of a test run.
    fn serve(&mut self, worker: u32) {
        for cpu in 0..CPUS_MAX {
            self.workers.set(cpu, worker, 0).unwrap();
        }
    }

    /// Sets the fields [`ActiveWorker::last`] and [`ActiveWorker::taken`] of the first lane.
    fn set_times(&mut self, last: u64, taken: u64) {
        let active = self.active_workers.get(&0, 0).unwrap();
        let active = ActiveWorker {
            last,
            taken,
            ..active
        };
        self.active_workers.set(0, active, 0).unwrap();
    }

    fn last(&self) -> u64 {
        self.active_workers.get(&0, 0).unwrap().last
    }
}

/// A time in the past by the kernel's clock, in nanoseconds since boot.
const LONG_AGO: u64 = 1_000_000;

/// One hour in nanoseconds.
const LATER: u64 = 3_600_000_000_000;

fn message(kind: u8, index_offset: usize, slot: u32) -> Vec<u8> {
    let mut message = vec![0; 148];
    message[0] = kind;
    let index = (slot << 8 | 0x7f).to_le_bytes();
    message[index_offset..index_offset + 4].copy_from_slice(&index);
    message
}

#[test]
fn each_message_goes_to_the_lane_of_its_slot() {
    let mut programs = Programs::load();
    programs.serve(0);

    for (kind, offset) in [(1, 4), (2, 8), (3, 4), (4, 4)] {
        for slot in [0, 1, 2, 0x00ff_fffe, 0x00ab_cd07] {
            let lane = (slot & 0xff) % LANES;
            let message = message(kind, offset, slot);
            let socket = programs.run(LISTEN_PROGRAM, &message);
            assert_eq!(socket, lane, "{kind} {slot:#x}");
        }
    }
    // A message that is too short to contain an index belongs to the first lane.
    assert_eq!(programs.run(LISTEN_PROGRAM, &[2, 1, 1, 1, 1, 1]), 0);
}

#[test]
fn the_sockets_of_a_worker_are_consecutive() {
    let mut programs = Programs::load();
    programs.serve(2);

    let of_lane_1 = message(4, 4, 1);
    assert_eq!(programs.run(LISTEN_PROGRAM, &of_lane_1), 2 * LANES + 1);
    assert_eq!(programs.run(REPLY_PROGRAM, &of_lane_1), 2);
}

#[test]
fn another_worker_becomes_active_after_a_pause_if_all_packets_were_read() {
    let mut programs = Programs::load();
    let message = message(4, 4, 0);
    programs.serve(1);
    assert_eq!(programs.run(REPLY_PROGRAM, &message), 1);

    programs.serve(2);
    let later = programs.last() + LATER;
    programs.set_times(later, later);
    assert_eq!(programs.run(REPLY_PROGRAM, &message), 1, "no pause");
    programs.set_times(LONG_AGO, LONG_AGO - 1);
    assert_eq!(programs.run(REPLY_PROGRAM, &message), 1, "unread packets");
    programs.set_times(LONG_AGO, LONG_AGO);
    assert_eq!(programs.run(REPLY_PROGRAM, &message), 2);

    programs.serve(NO_WORKER);
    programs.set_times(LONG_AGO, LONG_AGO);
    assert_eq!(programs.run(REPLY_PROGRAM, &message), 2, "no other worker");
}
