//! Tests of pins, which outlive the process, and of their use by the next process.

use super::lab::{DEADLINE, Lab, command, mount_bpffs, options, tables, wait_for};
use super::mirror::with_mirror;
use ebpf::{Datapath, Options, Tables};
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};

/// Runs `work` in the gateway's namespace with a new BPF file system.
fn with_bpffs<T: Send>(lab: &Lab, name: &str, work: impl FnOnce(&Path) -> T + Send) -> T {
    let at = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&at).unwrap();
    lab.gateway.run(|| {
        mount_bpffs(&at);
        work(&at.join("liqo/gateway"))
    })
}

fn pinned(dir: &Path) -> Options {
    Options {
        pin_dir: Some(dir.to_owned()),
        ..options()
    }
}

/// Sockets of two pods of the node. The client sends datagrams to the server through the programs.
struct Pods {
    client: UdpSocket,
    server: UdpSocket,
}

impl Pods {
    fn new(lab: &Lab) -> Self {
        let bind = |address: &str| {
            let socket = lab.node.run(|| UdpSocket::bind(address).unwrap());
            socket.set_read_timeout(Some(DEADLINE)).unwrap();
            socket
        };
        Self {
            client: bind("10.244.1.10:7000"),
            server: bind("10.244.1.20:7000"),
        }
    }

    /// Sends a datagram, and returns whether it arrives.
    fn is_connected(&self) -> bool {
        self.client.send_to(b"x", "10.245.1.20:7000").unwrap();
        self.server.recv(&mut [0; 8]).is_ok()
    }
}

fn tcx_programs(device: &str) -> usize {
    use aya::programs::{SchedClassifier, TcAttachType};

    let (_, programs) = SchedClassifier::query_tcx(device, TcAttachType::Ingress).unwrap();
    programs.len()
}

/// Waits until the kernel has detached the programs.
///
/// The kernel frees a link some time after the last close or unlink. In addition, child processes
/// of other tests hold the link's file descriptor in the time between `fork` and `exec`.
fn wait_until_gone() {
    wait_for("the programs are gone", || {
        tcx_programs("liqo-overlay") + tcx_programs("liqo-tap") == 0
    });
}

#[test]
fn traffic_continues_when_the_process_dies_and_the_next_one_adopts_all() {
    let lab = Lab::new();
    let pods = Pods::new(&lab);

    with_mirror(&lab.tap, |_| {
        with_bpffs(&lab, "adopt", |dir| {
            let mut first = Datapath::attach(pinned(dir)).unwrap();
            first.apply(&tables()).unwrap();
            assert!(pods.is_connected());
            drop(first);
            assert!(pods.is_connected(), "traffic stopped with the process");

            let mut second = Datapath::attach(pinned(dir)).unwrap();
            assert!(pods.is_connected(), "the adopted maps are empty");
            assert_eq!(second.counters().unwrap()["overlay_forwarded"], 3);
            let changes = second.apply(&tables()).unwrap();
            assert_eq!(changes, ebpf::Changes::default());
            assert_eq!(
                (tcx_programs("liqo-overlay"), tcx_programs("liqo-tap")),
                (1, 1)
            );

            second.detach().unwrap();
            wait_until_gone();
            assert!(!dir.exists());
        });
    });
}

#[test]
fn replacing_the_programs_loses_no_packet() {
    let lab = Lab::new();
    let pods = Pods::new(&lab);

    with_mirror(&lab.tap, |seen| {
        with_bpffs(&lab, "replace", |dir| {
            let mut datapath = Datapath::attach(pinned(dir)).unwrap();
            datapath.apply(&tables()).unwrap();
            std::thread::scope(|scope| {
                let replacing = scope.spawn(|| {
                    for _ in 0..5 {
                        let mut next = Datapath::attach(pinned(dir)).unwrap();
                        next.apply(&tables()).unwrap();
                    }
                });
                let mut count = 0;
                while !replacing.is_finished() || count == 0 {
                    assert!(pods.is_connected(), "lost packet {count}");
                    count += 1;
                }
                replacing.join().unwrap();
            });
            assert!(seen.frames.load(std::sync::atomic::Ordering::Relaxed) > 0);
        });
    });
}

#[test]
fn programs_with_another_layout_stay_until_the_new_maps_are_filled() {
    let lab = Lab::new();
    let pods = Pods::new(&lab);

    with_mirror(&lab.tap, |_| {
        with_bpffs(&lab, "layout", |dir| {
            let mut old = Datapath::attach(pinned(dir)).unwrap();
            old.apply(&tables()).unwrap();
            drop(old);
            let mut ours = fs::read_dir(dir)
                .unwrap()
                .map(|entry| entry.unwrap().path());
            let maps = ours.find(|path| path.is_dir()).unwrap();
            fs::rename(&maps, dir.join("maps-0")).unwrap();

            let mut new = Datapath::attach(pinned(dir)).unwrap();
            assert!(pods.is_connected(), "the new programs run with empty maps");
            assert_eq!(new.counters().unwrap()["overlay_forwarded"], 0);
            new.apply(&tables()).unwrap();
            assert!(pods.is_connected());

            assert_eq!(new.counters().unwrap()["overlay_forwarded"], 1);
            assert!(!dir.join("maps-0").exists(), "the old maps are still there");
            new.detach().unwrap();
        });
    });
}

#[test]
fn programs_are_attached_to_recreated_devices() {
    let lab = Lab::new();

    with_bpffs(&lab, "devices", |dir| {
        let mut first = Datapath::attach(pinned(dir)).unwrap();
        first.apply(&tables()).unwrap();
        drop(first);
        command("ip link del liqo-overlay");
        command(
            "ip link add liqo-overlay address 02:6c:71:00:00:02 type vxlan external dstport 6091",
        );
        command("ip link set liqo-overlay mtu 1450 arp off up");

        let second = Datapath::attach(pinned(dir)).unwrap();

        assert_eq!(
            (tcx_programs("liqo-overlay"), tcx_programs("liqo-tap")),
            (1, 1)
        );
        second.detach().unwrap();
    });
}

#[test]
fn without_pins_everything_is_removed() {
    let lab = Lab::new();

    lab.gateway.run(|| {
        let mut datapath = Datapath::attach(options()).unwrap();
        datapath.apply(&Tables::default()).unwrap();
        assert_eq!(tcx_programs("liqo-overlay"), 1);
        drop(datapath);
        wait_until_gone();
    });
}

#[test]
fn foreign_programs_and_pins_survive() {
    let lab = Lab::new();

    with_bpffs(&lab, "foreign", |dir| {
        command("tc qdisc add dev liqo-overlay clsact");
        command(
            "tc filter add dev liqo-overlay ingress prio 5 protocol ip u32 match u32 0 0 classid 1:1",
        );
        let foreign = dir.parent().unwrap().join("foreign");
        fs::create_dir_all(&foreign).unwrap();

        let mut datapath = Datapath::attach(pinned(dir)).unwrap();
        datapath.apply(&tables()).unwrap();
        datapath.detach().unwrap();
        Datapath::cleanup(dir).unwrap();

        let filters = command("tc filter show dev liqo-overlay ingress");
        assert!(filters.contains("pref 5 u32"), "{filters}");
        assert!(foreign.exists());
        assert!(!dir.exists());
    });
}
