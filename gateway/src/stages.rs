//! What each stage of a packet's way through the gateway costs, and what many peers cost: a
//! benchmark, `cargo bench`.
//!
//! It stands beside `main.rs` because it is made of the same modules, which nobody else can name.
//! boringtun's clock is the tests' here, which stands still unless it is moved.

#![forbid(unsafe_code)]
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the modules serve the gateway, of which this is a part; a benchmark has their tests, but does not run them"
)]

mod engine;
mod mutant;
mod offload;
mod tables;

mod stages {
    pub(super) mod desired;
    pub(super) mod lanes;
    pub(super) mod packets;
    pub(super) mod peers;
    pub(super) mod queue;
    pub(super) mod site;
}

fn main() {
    let mut criterion = cpu_time::criterion();

    stages::packets::all(&mut criterion);
    stages::queue::all(&mut criterion);
    stages::peers::all(&mut criterion);
    stages::desired::all(&mut criterion);
    criterion.final_summary();
    if std::env::args()
        .skip(1)
        .all(|arg| arg.starts_with('-') || arg == "lanes")
    {
        stages::lanes::print();
    }
}
