//! Tests of the CPU affinity of a gateway lane's worker threads.

use crate::fixture::{Pair, ROME, SAME, SOON, eventually};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use tests::lab::wait;
use tests::packet::Direction;
use tests::traffic::capture::{Capture, Frame};
use tests::traffic::{tcp, udp};

/// The interval between two datagrams of a flow.
const INTERVAL: Duration = Duration::from_millis(2);

/// Idle time of the sender after which another worker of the lane may become the active worker.
const PAUSE: Duration = Duration::from_micros(700);

/// Minimum wake-ups per second of the worker that processes the flow.
const MANY: u64 = 200;

/// Number of datagrams that the test sends from alternating CPU cores at a time.
const DATAGRAMS: u32 = 2_000;

/// Most repetitions until each worker has woken often enough. The scheduler decides which one wakes.
const ATTEMPTS: u32 = 10;

/// Wake-ups of a worker from which on it has processed a part of the flow.
const SOME: u64 = 50;

const PORT: u16 = 7000;

#[test]
fn a_worker_stays_on_its_core_until_the_load_is_high() {
    let mut pair = Pair::small();
    let rome = pair.lab.gateway(ROME, 1).pid().unwrap();
    let everywhere = cores();
    assert!(everywhere.len() > 1, "the test needs two cores");
    let pinned: BTreeMap<_, _> = everywhere.iter().map(|it| (it.to_string(), 1)).collect();
    let _server = tcp::Server::start(&pair.milan.netns, SAME, PORT).unwrap();

    eventually("each worker to be pinned to its own core", || {
        Ok(allowed(rome) == pinned)
    });
    thread::scope(|scope| {
        let (netns, to) = (&pair.rome.netns, pair.to_milan(PORT));
        let transfer = scope.spawn(move || tcp::transfer(netns, to, 32 << 20));
        eventually("a busy worker to be unpinned", || {
            Ok(allowed(rome) != pinned)
        });
        transfer.join().unwrap().unwrap();
    });
    // If other threads compete for the core, the gateway pins a worker again only after a delay.
    wait::until(SOON * 2, "the workers to be pinned again", || {
        Ok(allowed(rome) == pinned)
    })
    .unwrap();
}

#[test]
fn packets_are_processed_on_the_core_on_which_they_arrive() {
    let mut pair = Pair::small();
    let rome = pair.lab.gateway(ROME, 1).pid().unwrap();
    let _echo = udp::Echo::start(&pair.milan.netns, SAME, PORT).unwrap();

    for core in cores() {
        let flow = on(core, || {
            udp::Flow::start(&pair.rome.netns, pair.to_milan(PORT), INTERVAL).unwrap()
        });

        let what = format!("the worker of core {core} to process most packets");
        wait::until(SOON * 5, &what, || {
            let before = workers(rome);
            thread::sleep(Duration::from_secs(1));
            let mut here = 0;
            let mut elsewhere = 0;
            for (id, worker) in workers(rome) {
                let woken = worker.wake_ups - before[&id].wake_ups;
                if worker.cores == core.to_string() {
                    here += woken;
                } else {
                    elsewhere += woken;
                }
            }
            Ok(here > MANY && elsewhere < here / 2)
        })
        .unwrap();
        assert_eq!(flow.finish().lost(), 0);
    }
}

#[test]
fn a_flow_stays_in_order_when_its_sender_changes_the_core() {
    let mut pair = Pair::small();
    let rome = pair.lab.gateway(ROME, 1).pid().unwrap();
    let before = workers(rome);
    // The filter omits outgoing frames. They are ICMP errors that quote the datagrams, because the
    // port is closed.
    let is_ours = |frame: &Frame| frame.direction == Direction::In && !numbers(frame).is_empty();
    let capture = Capture::start(&pair.milan.netns, "eth0", is_ours).unwrap();

    let to = pair.to_milan(PORT);
    let everywhere = cores();
    let have_all_woken = || {
        let mut workers = workers(rome).into_iter();
        workers.all(|(id, worker)| worker.wake_ups - before[&id].wake_ups > SOME)
    };
    let mut sent = 0;
    pair.rome.netns.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let mut cores = everywhere.iter().cycle();
        while sent < ATTEMPTS * DATAGRAMS && !have_all_woken() {
            for number in sent..sent + DATAGRAMS {
                if number % 3 == 0 {
                    thread::sleep(PAUSE);
                }
                on(*cores.next().unwrap(), || {
                    socket.send_to(&payload(number), to).unwrap()
                });
            }
            sent += DATAGRAMS;
        }
    });
    let all = |frames: Vec<Frame>| frames.iter().flat_map(numbers).collect::<Vec<u32>>();
    eventually("all datagrams to arrive", || {
        Ok(all(capture.frames()).len() == sent as usize)
    });

    let numbers = all(capture.finish().unwrap());
    assert!(numbers.iter().copied().eq(0..sent), "{numbers:?}");
    assert!(have_all_woken(), "one worker has processed nearly all");
}

/// Returns the CPU cores on which this process may run.
fn cores() -> Vec<usize> {
    let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cores = (0..CpuSet::count()).filter(|core| all.is_set(*core).unwrap());
    cores.collect()
}

/// Runs `act` on a single CPU core. Threads that `act` starts inherit the CPU affinity.
fn on<T>(core: usize, act: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let mut one = CpuSet::new();
    one.set(core).unwrap();
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
    let done = act();
    sched_setaffinity(Pid::from_raw(0), &before).unwrap();

    done
}

/// The scheduling state of a worker thread.
struct Worker {
    /// The list of permitted cores, in the format of `/proc/PID/status`.
    cores: String,
    /// The number of voluntary context switches.
    wake_ups: u64,
}

/// Returns the workers of a gateway's only lane. The keys are the `/proc` paths of the threads.
fn workers(gateway: u32) -> BTreeMap<PathBuf, Worker> {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{gateway}/task")).unwrap();
    let tasks = tasks.map(|task| task.unwrap().path());
    tasks
        .filter(|task| read(task.join("comm")).trim() == "lane-0")
        .map(|task| {
            let status = read(task.join("status"));
            let worker = Worker {
                cores: field(&status, "Cpus_allowed_list").to_owned(),
                wake_ups: field(&status, "voluntary_ctxt_switches").parse().unwrap(),
            };
            (task, worker)
        })
        .collect()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.expect("a field of every status").trim()
}

/// Returns the number of workers for each list of permitted cores.
fn allowed(gateway: u32) -> BTreeMap<String, u32> {
    let mut allowed = BTreeMap::new();
    for worker in workers(gateway).into_values() {
        *allowed.entry(worker.cores).or_default() += 1;
    }
    allowed
}

/// The first bytes of each payload, which identify the test's datagrams.
const MARK: &[u8] = b"a flow whose sender moves";

fn payload(number: u32) -> Vec<u8> {
    [MARK, &number.to_be_bytes()].concat()
}

/// Returns the numbers of the datagrams in a frame. A frame may be a super-packet of several
/// datagrams.
fn numbers(frame: &Frame) -> Vec<u32> {
    let is_marked = |at: &usize| frame.bytes[*at..].starts_with(MARK);
    (0..frame.bytes.len())
        .filter(is_marked)
        .filter_map(|at| frame.bytes.get(at + MARK.len()..)?.first_chunk())
        .map(|number| u32::from_be_bytes(*number))
        .collect()
}
