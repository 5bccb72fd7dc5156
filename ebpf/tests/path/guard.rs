//! Tests of frames that the programs must drop, and of the loader's errors.

use super::lab::{Lab, options, tables, wait_for};
use super::tap::VNET_HEADER;
use caps::{CapSet, Capability};
use ebpf::{Datapath, Error, Local, Options, Settings, Tables};
use std::path::PathBuf;

#[test]
fn truncated_frames_from_the_engine_are_counted() {
    let lab = Lab::new();
    let mut datapath = lab.gateway.run(|| Datapath::attach(options())).unwrap();
    datapath.apply(&tables()).unwrap();
    let settings = Settings::default();
    let mut frame = vec![0; VNET_HEADER];
    frame.extend(settings.node_mac);
    frame.extend(settings.peer_mac(super::lab::PEER));
    frame.extend([0x08, 0x00, 0x45, 0, 0, 40]);

    // The lengths range from an Ethernet header alone to one byte less than a complete IPv4 header.
    for len in VNET_HEADER + 14..VNET_HEADER + 34 {
        frame.resize(len, 0);
        assert!(lab.tap.write(&frame));
    }

    wait_for("each is counted", || {
        datapath.counters().unwrap()["tap_malformed"] == 20
    });
}

#[test]
fn a_frame_without_a_tunnel_key_is_counted() {
    let lab = Lab::new();
    // This device replaces the overlay device. Its frames have no tunnel key.
    lab.gateway
        .command("ip link add plain type veth peer name other");
    lab.gateway.command("ip link set plain up");
    lab.gateway.command("ip link set other arp off up");
    lab.gateway.command("ip route add 10.245.0.0/16 dev other");
    let options = Options::new("plain", "liqo-tap");
    let datapath = lab.gateway.run(|| Datapath::attach(options)).unwrap();

    lab.gateway.run(|| {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(b"x", "10.245.1.10:1").unwrap();
    });

    wait_for("it is counted", || {
        datapath.counters().unwrap()["overlay_no_tunnel_key"] == 1
    });
}

#[test]
fn a_missing_device_is_named() {
    let lab = Lab::new();
    let options = Options::new("liqo-overlay", "liqo-tun");

    let error = lab.gateway.run(|| Datapath::attach(options).err()).unwrap();

    assert_eq!(error.to_string(), "failed to find the device liqo-tun");
}

#[test]
fn pins_need_a_bpf_file_system() {
    let lab = Lab::new();
    let mut options = options();
    options.pin_dir = Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-bpffs"));

    let error = lab.gateway.run(|| Datapath::attach(options).err()).unwrap();

    assert!(matches!(error, Error::NotBpffs { .. }), "{error}");
    assert!(error.to_string().contains("mount -t bpf"));
}

#[test]
fn a_missing_capability_is_named() {
    let lab = Lab::new();

    let error = lab.gateway.run(|| {
        // aya detects the kernel's features once per process, and the detection needs capabilities.
        drop(Datapath::attach(options()).unwrap());
        // Linux manages capabilities per thread, so this call does not affect other tests.
        caps::clear(None, CapSet::Effective).unwrap();
        Datapath::attach(options()).err()
    });

    let error = error.unwrap().to_string();
    assert!(error.contains("NET_ADMIN, BPF and PERFMON"), "{error}");
}

#[test]
fn the_capabilities_that_errors_name_are_sufficient() {
    let lab = Lab::new();

    lab.gateway.run(|| {
        let enough = [
            Capability::CAP_NET_ADMIN,
            Capability::CAP_BPF,
            Capability::CAP_PERFMON,
        ];
        caps::set(None, CapSet::Effective, &enough.into()).unwrap();
        let mut datapath = Datapath::attach(options()).unwrap();
        datapath.apply(&tables()).unwrap();
        datapath.detach().unwrap();
    });
}

#[test]
fn attached_programs_are_updated_and_read_without_cap_bpf() {
    let lab = Lab::new();

    lab.gateway.run(|| {
        let mut datapath = Datapath::attach(options()).unwrap();
        let kept = [Capability::CAP_NET_ADMIN].into();
        caps::set(None, CapSet::Effective, &kept).unwrap();
        caps::set(None, CapSet::Permitted, &kept).unwrap();

        for tables in [tables(), ebpf::Tables::default()] {
            assert_ne!(datapath.apply(&tables).unwrap(), ebpf::Changes::default());
        }
        datapath.beat(&ebpf::Heartbeat::new(false, 0, [])).unwrap();
        datapath.counters().unwrap();
        datapath.last_requests().unwrap();
    });
}

#[test]
fn inconsistent_tables_change_nothing() {
    let lab = Lab::new();
    let mut datapath = lab.gateway.run(|| Datapath::attach(options())).unwrap();
    datapath.apply(&tables()).unwrap();
    let mut unequal = tables();
    for route in unequal.outbound.values_mut() {
        route.to = "10.244.0.0/17".parse().unwrap();
    }
    let mut without_node = tables();
    for local in without_node.local.values_mut() {
        *local = Local::Spread;
    }

    for wrong in [unequal, without_node] {
        assert!(datapath.apply(&wrong).is_err());
    }

    assert_eq!(datapath.apply(&tables()).unwrap(), ebpf::Changes::default());
}

#[test]
fn an_update_writes_only_changed_entries() {
    let lab = Lab::new();
    let mut datapath = lab.gateway.run(|| Datapath::attach(options())).unwrap();
    let mut tables = tables();
    let first = datapath.apply(&tables).unwrap();
    tables.nodes.insert("172.18.0.9".parse().unwrap());
    for mss in tables.mss.values_mut() {
        *mss += 1;
    }
    tables.unknown_sources.clear();

    let second = datapath.apply(&tables).unwrap();
    let third = datapath.apply(&Tables::default()).unwrap();

    assert_eq!((first.inserted, first.replaced, first.removed), (5, 0, 0));
    // The MSS limit is part of both the outbound and the inbound entry.
    assert_eq!(
        (second.inserted, second.replaced, second.removed),
        (1, 2, 0)
    );
    assert_eq!((third.inserted, third.replaced, third.removed), (0, 0, 6));
}
