//! Tests with a cluster in memory, under virtual time.

mod addresses;
mod contests;
mod direct;
mod golden;
mod hostile;
mod mapping;
mod observe;
mod provider;
mod side;

use control_runtime::Key;
use serde_json::json;
use side::{REMOTE, Side, endpoint};

/// The slice of `rome` that most tests reflect.
fn web() -> Key {
    Key::new(REMOTE, "web")
}

/// Returns `milan` with the slice [`web`] of `rome`.
fn milan(seed: u64) -> Side {
    let mut milan = Side::milan(seed);
    milan.reflect(json!([endpoint("10.244.0.1")]));
    milan
}
