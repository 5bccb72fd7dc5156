//! The workers of a lane: each near the packets that come up on its cores.

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

/// Between two datagrams.
const INTERVAL: Duration = Duration::from_millis(2);

/// After that, another worker may be given what comes.
const PAUSE: Duration = Duration::from_micros(700);

/// Wake-ups of a worker in a second in which it has much to do.
const MANY: u64 = 200;

/// Datagrams from one core and then the other.
const DATAGRAMS: u32 = 2_000;

const PORT: u16 = 7000;

#[test]
fn a_worker_stays_on_its_core_until_there_is_much_to_move() {
    let mut pair = Pair::small();
    let rome = pair.lab.gateway(ROME, 1).pid().unwrap();
    let everywhere = cores();
    assert!(everywhere.len() > 1, "one core is no choice");
    let at_home: BTreeMap<_, _> = everywhere.iter().map(|it| (it.to_string(), 1)).collect();
    let _server = tcp::Server::start(&pair.milan.netns, SAME, PORT).unwrap();

    eventually("each worker on a core of its own", || {
        Ok(allowed(rome) == at_home)
    });
    thread::scope(|scope| {
        let (netns, to) = (&pair.rome.netns, pair.to_milan(PORT));
        let much = scope.spawn(move || tcp::transfer(netns, to, 32 << 20));
        eventually("who moves much to run anywhere", || {
            Ok(allowed(rome) != at_home)
        });
        much.join().unwrap().unwrap();
    });
    // Where others want the core, it is tried again only after a while.
    wait::until(SOON * 2, "the workers to be back", || {
        Ok(allowed(rome) == at_home)
    })
    .unwrap();
}

#[test]
fn what_comes_up_on_a_core_is_served_there() {
    let mut pair = Pair::small();
    let rome = pair.lab.gateway(ROME, 1).pid().unwrap();
    let _echo = udp::Echo::start(&pair.milan.netns, SAME, PORT).unwrap();

    for core in cores() {
        let flow = on(core, || {
            udp::Flow::start(&pair.rome.netns, pair.to_milan(PORT), INTERVAL).unwrap()
        });

        let what = format!("the worker of core {core} to do most");
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
fn a_flow_whose_sender_moves_stays_in_order() {
    let mut pair = Pair::small();
    let rome = pair.lab.gateway(ROME, 1).pid().unwrap();
    let before = workers(rome);
    // What goes out are complaints that nobody listens, which quote what came.
    let is_ours = |frame: &Frame| frame.direction == Direction::In && !numbers(frame).is_empty();
    let capture = Capture::start(&pair.milan.netns, "eth0", is_ours).unwrap();

    let to = pair.to_milan(PORT);
    let everywhere = cores();
    pair.rome.netns.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let mut cores = everywhere.iter().cycle();
        for number in 0..DATAGRAMS {
            if number % 3 == 0 {
                thread::sleep(PAUSE);
            }
            on(*cores.next().unwrap(), || {
                socket.send_to(&payload(number), to).unwrap()
            });
        }
    });
    let all = |frames: Vec<Frame>| frames.iter().flat_map(numbers).collect::<Vec<u32>>();
    eventually("all to arrive", || {
        Ok(all(capture.frames()).len() == DATAGRAMS as usize)
    });

    let numbers = all(capture.finish().unwrap());
    assert!(numbers.iter().copied().eq(0..DATAGRAMS), "{numbers:?}");
    for (id, worker) in workers(rome) {
        let woken = worker.wake_ups - before[&id].wake_ups;
        assert!(woken > 50, "one of the workers woke {woken} times");
    }
}

/// The cores that this process may run on.
fn cores() -> Vec<usize> {
    let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cores = (0..CpuSet::count()).filter(|core| all.is_set(*core).unwrap());
    cores.collect()
}

/// Does something on one core, as do the threads that it starts.
fn on<T>(core: usize, act: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let mut one = CpuSet::new();
    one.set(core).unwrap();
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
    let done = act();
    sched_setaffinity(Pid::from_raw(0), &before).unwrap();

    done
}

/// A worker, as the kernel sees it.
struct Worker {
    /// Where it may run.
    cores: String,
    /// How often it has slept.
    wake_ups: u64,
}

/// The workers of a gateway's only lane, by thread.
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

/// Where the workers may run, and how many of them.
fn allowed(gateway: u32) -> BTreeMap<String, u32> {
    let mut allowed = BTreeMap::new();
    for worker in workers(gateway).into_values() {
        *allowed.entry(worker.cores).or_default() += 1;
    }
    allowed
}

/// Starts with what no other packet does.
const MARK: &[u8] = b"a flow whose sender moves";

fn payload(number: u32) -> Vec<u8> {
    [MARK, &number.to_be_bytes()].concat()
}

/// The numbers in a frame, which may be several datagrams.
fn numbers(frame: &Frame) -> Vec<u32> {
    let is_marked = |at: &usize| frame.bytes[*at..].starts_with(MARK);
    (0..frame.bytes.len())
        .filter(is_marked)
        .filter_map(|at| frame.bytes.get(at + MARK.len()..)?.first_chunk())
        .map(|number| u32::from_be_bytes(*number))
        .collect()
}
