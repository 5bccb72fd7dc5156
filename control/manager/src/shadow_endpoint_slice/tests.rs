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

use side::{Side, endpoint};
