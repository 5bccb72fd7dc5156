//! Benchmarks of each stage of packet processing, and of the costs of many peers.
//!
//! `cargo bench -p gateway` runs the benchmarks. This file is next to `main.rs`, because both files
//! include the same private modules.
//!
//! boringtun is built with its feature `mock-instant`: it reads a mock clock instead of the system
//! clock. The simulation advances the mock clock.

#![deny(unsafe_code)]
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the benchmarks use only a part of the modules, and do not run their tests"
)]

mod cipher;
mod engine;
mod mutant;
mod offload;
mod planned;
mod tables;

mod benches {
    #[path = "../../../control/fabric/benches/changes.rs"]
    pub(super) mod changes;
    pub(super) mod cipher;
    pub(super) mod desired;
    #[path = "../../../control/fabric/benches/file.rs"]
    pub(super) mod file;
    pub(super) mod lanes;
    pub(super) mod packets;
    pub(super) mod peers;
    pub(super) mod queue;
    pub(super) mod simulation;
}

fn main() {
    let mut criterion = cpu_time::criterion();

    benches::cipher::all(&mut criterion);
    benches::packets::all(&mut criterion);
    benches::queue::all(&mut criterion);
    benches::peers::all(&mut criterion);
    benches::desired::all(&mut criterion);
    criterion.final_summary();
    if std::env::args()
        .skip(1)
        .all(|arg| arg.starts_with('-') || arg == "lanes")
    {
        benches::lanes::print();
    }
}
