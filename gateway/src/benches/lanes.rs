//! Measures the speedup by a second lane: two independent engines decrypt recorded datagrams, first
//! in one thread and then in two threads.
//!
//! This benchmark does not use Criterion, because [`cpu_time`] measures the CPU time of one thread
//! and not the elapsed time.

use super::simulation::{Simulation, address};
use crate::engine::{Engine, PortId, Received};
use mock_instant::MockClock;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Length of each packet in bytes, equal to the tunnel's MTU.
const PACKET: usize = 1_340;

/// Number of datagrams per lane and round. Their decryption takes about 30 ms.
const DATAGRAMS: usize = 20_000;

/// Number of rounds; each round measures one thread and two threads.
const ROUNDS: usize = 15;

/// Prints the median, the minimum and the maximum of the speedup.
pub(crate) fn print() {
    let mut lanes = [Simulation::connected(1), Simulation::connected(1)];
    let mut gains: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let mut took = |threads| measure(&mut lanes, threads);
            // The order alternates, since the speed of the machine changes over time.
            let [one, two] = if round % 2 == 0 {
                let one = took(1);
                [one, took(2)]
            } else {
                let two = took(2);
                [took(1), two]
            };
            one.as_secs_f64() / two.as_secs_f64()
        })
        .collect();
    gains.sort_by(f64::total_cmp);

    println!(
        "two lanes open {DATAGRAMS} datagrams of {PACKET} B each: two threads are {:.2} times as fast as one ({:.2}-{:.2})",
        gains[ROUNDS / 2],
        gains[0],
        gains[ROUNDS - 1],
    );
}

/// Records datagrams for each lane and decrypts them in `threads` threads; returns the elapsed time
/// of the decryption.
fn measure(lanes: &mut [Simulation; 2], threads: usize) -> Duration {
    let packet = super::packets::udp(PACKET);
    let work = lanes.each_mut().map(|simulation| {
        let datagrams: Vec<_> = (0..DATAGRAMS)
            .map(|_| simulation.datagram_from(0, &packet))
            .collect();
        (&mut simulation.gateway, datagrams, simulation.now)
    });
    let mut work: Vec<_> = work.into();
    let per_thread = work.len() / threads;
    let start = Barrier::new(threads);
    let clock = MockClock::time();

    let times: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = work
            .chunks_mut(per_thread)
            .map(|share| {
                let start = &start;
                scope.spawn(move || {
                    MockClock::set_time(clock); // The mock clock is thread-local.
                    start.wait();
                    let began = Instant::now();
                    for (gateway, datagrams, now) in share {
                        open(gateway, datagrams, *now);
                    }
                    (began, Instant::now())
                })
            })
            .collect();
        let done = running.into_iter().map(|thread| thread.join());
        done.map(|times| times.expect("no thread panics")).collect()
    });
    let began = times.iter().map(|it| it.0).min();
    let ended = times.iter().map(|it| it.1).max();

    began
        .zip(ended)
        .map(|(began, ended)| ended - began)
        .expect("there is a thread")
}

/// Decrypts `datagrams` from the only peer.
fn open(gateway: &mut Engine, datagrams: &mut [Vec<u8>], now: Instant) {
    let mut out = vec![0; 2_048];
    let mut received = 0;
    for datagram in &mut *datagrams {
        let outcome = gateway.handle_datagram(PortId::LISTEN, address(0), datagram, &mut out, now);
        received += usize::from(matches!(outcome, Received::Packet { .. }));
    }

    assert_eq!(
        received,
        datagrams.len(),
        "{:?}",
        gateway.snapshot(now).drops
    );
}
