//! The packet loop's place: near the packets while they come one by one.

use crate::fixture::{MILAN, Pair, ROME, SAME, SOON, eventually};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::fs;
use std::time::Duration;
use tests::lab::wait;
use tests::traffic::{tcp, udp};

/// Between two datagrams.
const INTERVAL: Duration = Duration::from_millis(2);

#[test]
fn single_packets_keep_the_loop_on_a_core_and_a_bulk_transfer_sets_it_free() {
    let mut pair = Pair::small();
    let gateways = [ROME, MILAN].map(|cluster| pair.lab.gateway(cluster, 1).pid().unwrap());
    let everywhere = cores(gateways[0]);
    assert!(everywhere.len() > 1, "one core is no choice: {everywhere}");
    let _echo = udp::Echo::start(&pair.milan.netns, SAME, 7000).unwrap();
    let _server = tcp::Server::start(&pair.milan.netns, SAME, 7001).unwrap();

    let flow = udp::Flow::start(&pair.rome.netns, pair.to_milan(7000), INTERVAL).unwrap();
    // Where others want the core, it is tried again only after a while.
    wait::until(SOON * 5, "the loops to stay on a core", || {
        Ok(gateways.iter().all(|gateway| is_one(&cores(*gateway))))
    })
    .unwrap();
    let outcome = flow.finish();
    assert_eq!(outcome.lost(), 0, "{outcome:?}");

    tcp::transfer(&pair.rome.netns, pair.to_milan(7001), 32 << 20).unwrap();
    eventually("the loops to be free", || {
        Ok(gateways.iter().all(|it| cores(*it) == everywhere))
    });
}

#[test]
fn the_loop_stays_where_the_peers_datagrams_come_up() {
    let mut pair = Pair::small();
    let rome = pair.lab.gateway(ROME, 1).pid().unwrap();
    let _echo = udp::Echo::start(&pair.milan.netns, SAME, 7000).unwrap();
    let everywhere = sched_getaffinity(Pid::from_raw(0)).unwrap();

    for core in (0..CpuSet::count()).filter(|it| everywhere.is_set(*it).unwrap()) {
        // What milan's gateway sends comes up on the only core that it has.
        pair.lab.gateway(MILAN, 1).kill().unwrap();
        let mut one = CpuSet::new();
        one.set(core).unwrap();
        sched_setaffinity(Pid::from_raw(0), &one).unwrap();
        let started = pair.lab.gateway(MILAN, 1).start();
        sched_setaffinity(Pid::from_raw(0), &everywhere).unwrap();
        started.unwrap();
        pair.lab.wait_until_connected(SOON * 4).unwrap();

        let _flow = udp::Flow::start(&pair.rome.netns, pair.to_milan(7000), INTERVAL).unwrap();
        let what = format!("rome's loop to stay on core {core}");
        wait::until(SOON * 5, &what, || Ok(cores(rome) == core.to_string())).unwrap();
    }
}

/// Where the packet loop of a gateway may run.
fn cores(gateway: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{gateway}/task")).unwrap();
    let read = |path: std::path::PathBuf| fs::read_to_string(path).unwrap_or_default();
    let mut tasks = tasks.map(|task| task.unwrap().path());
    let lane = tasks
        .find(|task| read(task.join("comm")).trim() == "lane-0")
        .expect("a packet loop");
    let status = read(lane.join("status"));
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));

    list.expect("cores").trim().to_owned()
}

fn is_one(cores: &str) -> bool {
    cores.parse::<u32>().is_ok()
}
