//! Tests of the laboratory's clusters, and of the faults that it can cause.
//!
//! All tests share two clusters with the same CIDRs, [`ROME`] and [`MILAN`]. Each test has a
//! namespace of its own. `cargo xtask test --kubernetes` runs the tests.

mod fixture;

mod access;
mod extensions;
mod faults;
mod flavours;
mod helm;
mod life;
mod nodes;
mod privileged;
mod services;
mod storage;
mod workloads;

use fixture::Suite;
use libtest_mimic::Arguments;
use std::process::ExitCode;

/// The cluster that most tests use.
const ROME: &str = "it-rome";

/// The second cluster, which is remote in the tests.
const MILAN: &str = "it-milan";

fn main() -> ExitCode {
    let mut suite = Suite::default();
    access::add(&mut suite);
    extensions::add(&mut suite);
    faults::add(&mut suite);
    flavours::add(&mut suite);
    helm::add(&mut suite);
    life::add(&mut suite);
    nodes::add(&mut suite);
    privileged::add(&mut suite);
    services::add(&mut suite);
    storage::add(&mut suite);
    workloads::add(&mut suite);

    suite.run(env!("CARGO_BIN_EXE_cluster"), Arguments::from_args())
}
