//! What the laboratory's clusters can do, and what goes wrong in them on purpose.
//!
//! All tests share two clusters with the same networks, [`ROME`] and [`MILAN`], that
//! this program makes first and removes last; run it with `cargo xtask test
//! --kubernetes`. Each test has a namespace of its own, of the test's name.

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

/// One of the two clusters; not the name of one that people have.
const ROME: &str = "it-rome";

/// The other.
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
