//! A test network with a node and a gateway, each in its own network namespace, on one underlay.
//!
//! ```text
//!   node                                gateway
//!   10.244.1.10, 10.244.1.20
//!   liqo-overlay (routes with encap)    liqo-overlay, liqo-tap
//!   u1 172.18.0.2 ───────────────────── u0 172.18.0.10
//! ```

use super::tap::Tap;
use ebpf::{Local, Options, Outbound, Tables};
use ipnet::Ipv4Net;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::gettid;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(super) const NODE: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 2);

/// An underlay address of the node that is missing in [`Tables::nodes`].
pub(super) const STRANGER: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 3);

/// Timeout of waits. On an idle machine, the waits take milliseconds.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

pub(super) const PEER: u16 = 7;
pub(super) const MSS: u16 = 1300;

/// A network namespace that lives as long as the thread that created it.
pub(super) struct Namespace {
    net: File,
    tid: i32,
    /// The thread ends when this channel is closed.
    release: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    fn new() -> Self {
        let (ready, is_ready) = mpsc::channel();
        let (release, is_released) = mpsc::channel();
        let thread = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("tests need root");
            ready.send(gettid().as_raw()).unwrap();
            let _ = is_released.recv();
        });
        let tid = is_ready.recv().expect("tests need root");

        Self {
            net: File::open(format!("/proc/self/task/{tid}/ns/net")).unwrap(),
            tid,
            release: Some(release),
            thread: Some(thread),
        }
    }

    /// Runs `work` in the namespace, on a new thread.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let work = scope.spawn(|| {
                setns(&self.net, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            work.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs a command in the namespace, and returns its standard output.
    pub(super) fn command(&self, line: &str) -> String {
        self.run(|| command(line))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.release.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The two network namespaces with all devices, but without the programs, which each test attaches.
pub(super) struct Lab {
    pub(super) node: Namespace,
    pub(super) gateway: Namespace,
    pub(super) tap: Tap,
}

impl Lab {
    pub(super) fn new() -> Self {
        let node = Namespace::new();
        let gateway = Namespace::new();

        gateway.run(|| {
            prepare();
            let tid = node.tid;
            command(&format!(
                "ip link add u0 type veth peer name u1 netns {tid}"
            ));
            command("ip addr add 172.18.0.10/24 dev u0");
            command("ip link set u0 up");
            overlay("02:6c:71:00:00:02");
        });
        let tap = gateway.run(|| {
            let tap = Tap::open("liqo-tap");
            command("ip link set liqo-tap mtu 1500 arp off up");
            tap
        });
        node.run(|| {
            prepare();
            command(&format!("ip addr add {NODE}/24 dev u1"));
            command(&format!("ip addr add {STRANGER}/24 dev u1"));
            command("ip link set u1 up");
            overlay("02:6c:71:00:00:01");
            command("ip addr add 10.244.1.10/32 dev liqo-overlay");
            command("ip addr add 10.244.1.20/32 dev liqo-overlay");
            let encap = format!("encap ip id 27761 src {NODE} dst 172.18.0.10 ttl 64");
            for net in ["10.245.0.0/16", "169.254.19.0/24"] {
                command(&format!(
                    "ip route add {net} {encap} dev liqo-overlay src 10.244.1.10 mtu 1420"
                ));
            }
        });

        Self { node, gateway, tap }
    }

    /// Returns a counter of the node's IP stack, from `/proc/net/snmp`.
    pub(super) fn node_counter(&self, protocol: &str, name: &str) -> u64 {
        let snmp = (self.node)
            .run(|| fs::read_to_string("/proc/thread-self/net/snmp"))
            .unwrap();
        let lines: Vec<_> = (snmp.lines())
            .filter_map(|line| line.strip_prefix(&format!("{protocol}: ")))
            .collect();
        let at = lines[0].split(' ').position(|field| field == name).unwrap();
        lines[1].split(' ').nth(at).unwrap().parse().unwrap()
    }
}

/// Returns the gateway's tables, with one peer whose pod CIDR equals that of this cluster.
pub(super) fn tables() -> Tables {
    let (here, there) = (net("10.244.0.0/16"), net("10.245.0.0/16"));
    let route = Outbound {
        peer: PEER,
        to: here,
    };

    Tables {
        outbound: [(there, route)].into(),
        inbound: [((PEER, here), there)].into(),
        local: [(here, Local::Node(NODE))].into(),
        sources: [here].into(),
        mss: [(PEER, MSS)].into(),
        nodes: [NODE].into(),
        ..Tables::default()
    }
}

pub(super) fn options() -> Options {
    Options::new("liqo-overlay", "liqo-tap")
}

pub(super) fn net(net: &str) -> Ipv4Net {
    net.parse().unwrap()
}

/// Runs a command in the namespace of this thread, and returns its standard output.
pub(super) fn command(line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");

    String::from_utf8(output.stdout).unwrap()
}

/// Waits until `is_true` returns true; panics after [`DEADLINE`].
pub(super) fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_true() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        thread::yield_now();
    }
}

/// Mounts a BPF file system at `at`, in a new mount namespace for this thread.
pub(super) fn mount_bpffs(at: &Path) {
    use nix::mount::{MsFlags, mount};

    const NONE: Option<&str> = None;

    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    mount(NONE, "/", NONE, MsFlags::MS_PRIVATE | MsFlags::MS_REC, NONE).unwrap();
    mount(Some("bpf"), at, Some("bpf"), MsFlags::empty(), NONE).unwrap();
}

fn prepare() {
    // With IPv6, the kernel itself would send frames such as router solicitations.
    for setting in [
        "ipv6/conf/default/disable_ipv6",
        "ipv6/conf/all/disable_ipv6",
    ] {
        fs::write(format!("/proc/sys/net/{setting}"), "1").unwrap();
    }
    for setting in ["all", "default"] {
        fs::write(format!("/proc/sys/net/ipv4/conf/{setting}/rp_filter"), "0").unwrap();
    }
    command("ip link set lo up");
}

fn overlay(mac: &str) {
    command(&format!(
        "ip link add liqo-overlay address {mac} type vxlan external dstport 6091"
    ));
    command("ip link set liqo-overlay mtu 1450 arp off up");
}
