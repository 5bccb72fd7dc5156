//! Tests of clsact filters, which the loader uses on kernels without tcx.

use super::fixture::tables;
use super::{Programs, load};
use crate::hook::{Hook, Mechanism};
use crate::object::{TAP_PROGRAM, program};
use nix::sched::{CloneFlags, unshare};
use std::path::PathBuf;
use std::process::Command;
use std::thread;

/// Runs `work` on a thread in a new network namespace that has the device `d0`.
fn in_namespace(work: impl FnOnce() + Send + 'static) {
    let work = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("tests need root");
        command("ip link add d0 type veth peer name d1");
        work();
    });
    work.join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn command(line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).output().unwrap();
    assert!(output.status.success(), "{line}");
    String::from_utf8(output.stdout).unwrap()
}

fn attach(programs: &Programs, is_kept: bool) -> Hook {
    let mut ebpf = programs.ebpf.borrow_mut();
    let program = program(&mut ebpf, TAP_PROGRAM).unwrap();
    let pin = is_kept.then(|| PathBuf::from("/nowhere"));
    Hook::attach(program, "d0", pin, Mechanism::Clsact).unwrap()
}

/// Returns the ids of the programs that are attached to the ingress of `d0`.
fn programs_of_device() -> Vec<String> {
    let filters = command("tc filter show dev d0 ingress");
    let words: Vec<_> = filters.split_whitespace().collect();
    (words.windows(2))
        .filter(|pair| pair[0] == "id")
        .map(|pair| pair[1].to_owned())
        .collect()
}

#[test]
fn a_kept_filter_outlives_the_process_and_is_replaced_by_the_next() {
    in_namespace(|| {
        drop(attach(&load(&tables()), true));
        let first = programs_of_device();
        assert_eq!(first.len(), 1);

        let second = attach(&load(&tables()), true);
        let replaced = programs_of_device();
        assert_eq!(replaced.len(), 1);
        assert_ne!(replaced, first);

        second.detach().unwrap();
        assert!(programs_of_device().is_empty());
    });
}

#[test]
fn an_unkept_filter_is_removed_with_the_process() {
    in_namespace(|| {
        let hook = attach(&load(&tables()), false);
        assert_eq!(programs_of_device().len(), 1);

        drop(hook);

        assert!(programs_of_device().is_empty());
    });
}
