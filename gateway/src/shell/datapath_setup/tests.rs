//! Tests of the set-up in a pod. Each test runs in a new network namespace and needs root.

use super::*;
use crate::shell::privilege;
use nix::sched::{CloneFlags, unshare};
use std::fs;
use std::thread;

const INSTANCE: &str = "unit-test";

#[test]
fn a_pods_set_up_pins_and_mounts_nothing_and_ends_with_its_descriptors() {
    in_new_namespace(|| {
        let before = mounts();

        for _ in 0..2 {
            let parts = plan().set_up(&Tables::default()).unwrap();

            let devices = parts.namespace.inside(links::names).unwrap().unwrap();
            for device in [OVERLAY_DEVICE, TAP_DEVICE] {
                assert!(devices.iter().any(|name| name == device), "{devices:?}");
            }
            assert_eq!(mounts(), before);
            assert!(!pin_directory(INSTANCE).exists());
            let name = namespace_name(INSTANCE);
            assert!(Namespace::open(&name).unwrap().is_none());
            assert!(Path::new(&parts.namespace.name()).exists());
            // Dropping the parts must release the overlay's port for the next iteration.
        }
    });
}

#[test]
fn tables_are_applied_with_net_admin_only() {
    in_new_namespace(|| {
        let mut parts = plan().set_up(&Tables::default()).unwrap();

        privilege::drop_set_up().unwrap();

        let tables = Tables {
            nodes: [[10, 0, 0, 1].into()].into(),
            ..Tables::default()
        };
        let changes = parts.datapath.apply(&tables).unwrap();
        assert_ne!(changes, ebpf::Changes::default());
        assert!(parts.namespace.inside(|| ()).is_err(), "SYS_ADMIN is kept");
        assert!(Datapath::attach(ebpf::Options::new("lo", "lo")).is_err());
    });
}

/// Runs `test` on a new thread, because `test` changes namespace and capabilities of its thread.
pub(in crate::shell) fn in_new_namespace(test: impl FnOnce() + Send + 'static) {
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("the test needs root");
        test();
    };
    if let Err(panic) = thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

pub(in crate::shell) fn plan() -> Plan {
    Plan {
        instance: INSTANCE.to_owned(),
        persistent: false,
        overlay_mtu: None,
        settings: Settings::default(),
        lanes: 1,
        workers: 2,
        log_drops: false,
    }
}

fn mounts() -> String {
    fs::read_to_string("/proc/thread-self/mountinfo").expect("/proc is mounted")
}
