//! The networking module on real clusters: two clusters with the same networks, connected by
//! `liqoctl`, whose pods reach each other.
//!
//! All tests share the two clusters and their connection; run it with `cargo xtask test
//! --kubernetes`.

mod fixture;
mod flow;

mod addresses;
mod connect;
mod failover;
mod health;
mod objects;
mod removal;

use libtest_mimic::Arguments;
use std::process::ExitCode;

/// The cluster on which `liqoctl network connect` runs: the client.
const ROME: &str = "it-rome";

/// Its remote cluster: the server.
const MILAN: &str = "it-milan";

fn main() -> ExitCode {
    let mut suite = fixture::Suite::default();
    connect::add(&mut suite);
    addresses::add(&mut suite);
    objects::add(&mut suite);
    failover::add(&mut suite);
    health::add(&mut suite);
    removal::add(&mut suite);

    suite.run(env!("CARGO_BIN_EXE_cluster"), Arguments::from_args())
}
