//! Which lane, and which of its workers, a datagram is given to.

use super::{OUTER, load};
use crate::object::{self, LISTEN_PROGRAM, REPLY_PROGRAM};
use aya::Ebpf;
use aya::maps::{Array, MapData};
use aya::programs::{SocketFilter, TestRun as _, TestRunOptions};
use ebpf_common::maps::{CPUS_MAX, NO_WORKER, TURNS, Turn, WORKERS};

const LANES: u32 = 3;

/// What a test run takes for a frame's header; the program sees what follows.
const ETHERNET: usize = 14;

struct Programs {
    ebpf: Ebpf,
    turns: Array<MapData, Turn>,
    workers: Array<MapData, u32>,
}

impl Programs {
    fn load() -> Self {
        let mut ebpf = load(LANES, OUTER, false);
        for name in [LISTEN_PROGRAM, REPLY_PROGRAM] {
            object::socket_filter(&mut ebpf, name).unwrap();
        }
        let turns = Array::try_from(ebpf.take_map(TURNS).unwrap()).unwrap();
        let workers = Array::try_from(ebpf.take_map(WORKERS).unwrap()).unwrap();

        Self {
            ebpf,
            turns,
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

    /// Has one worker serve every CPU.
    fn serve(&mut self, worker: u32) {
        for cpu in 0..CPUS_MAX {
            self.workers.set(cpu, worker, 0).unwrap();
        }
    }

    /// Says when something came last for the first lane, and until when all is taken.
    fn say(&mut self, last: u64, taken: u64) {
        let turn = self.turns.get(&0, 0).unwrap();
        let turn = Turn {
            last,
            taken,
            ..turn
        };
        self.turns.set(0, turn, 0).unwrap();
    }

    fn last(&self) -> u64 {
        self.turns.get(&0, 0).unwrap().last
    }
}

/// Long before, on the kernel's clock, and so long that it is still to come.
const LONG_AGO: u64 = 1_000_000;
const LATER: u64 = 3_600_000_000_000;

fn message(kind: u8, place_of_index: usize, slot: u32) -> Vec<u8> {
    let mut message = vec![0; 148];
    message[0] = kind;
    let index = (slot << 8 | 0x7f).to_le_bytes();
    message[place_of_index..place_of_index + 4].copy_from_slice(&index);
    message
}

#[test]
fn each_message_is_for_the_lane_of_its_slot() {
    let mut programs = Programs::load();
    programs.serve(0);

    for (kind, place) in [(1, 4), (2, 8), (3, 4), (4, 4)] {
        for slot in [0, 1, 2, 0x00ff_fffe, 0x00ab_cd07] {
            let lane = (slot & 0xff) % LANES;
            let message = message(kind, place, slot);
            let socket = programs.run(LISTEN_PROGRAM, &message);
            assert_eq!(socket, lane, "{kind} {slot:#x}");
        }
    }
    // The kernel's test runs take no less than an Ethernet header.
    assert_eq!(programs.run(LISTEN_PROGRAM, &[2, 1, 1, 1, 1, 1]), 0);
}

#[test]
fn all_lanes_of_a_worker_follow_each_other() {
    let mut programs = Programs::load();
    programs.serve(2);

    let of_lane_1 = message(4, 4, 1);
    assert_eq!(programs.run(LISTEN_PROGRAM, &of_lane_1), 2 * LANES + 1);
    assert_eq!(programs.run(REPLY_PROGRAM, &of_lane_1), 2);
}

#[test]
fn a_turn_ends_with_a_pause_in_which_all_was_taken() {
    let mut programs = Programs::load();
    let message = message(4, 4, 0);
    programs.serve(1);
    assert_eq!(programs.run(REPLY_PROGRAM, &message), 1);

    programs.serve(2);
    let later = programs.last() + LATER;
    programs.say(later, later);
    assert_eq!(programs.run(REPLY_PROGRAM, &message), 1, "no pause");
    programs.say(LONG_AGO, LONG_AGO - 1);
    assert_eq!(programs.run(REPLY_PROGRAM, &message), 1, "not all taken");
    programs.say(LONG_AGO, LONG_AGO);
    assert_eq!(programs.run(REPLY_PROGRAM, &message), 2);

    programs.serve(NO_WORKER);
    programs.say(LONG_AGO, LONG_AGO);
    assert_eq!(programs.run(REPLY_PROGRAM, &message), 2, "nobody else");
}
