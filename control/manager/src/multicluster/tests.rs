//! Tests of the merge, and with clusters in memory under virtual time.

mod exports;
mod hostile;
mod imports;
mod merge;
mod side;

use side::{Side, key};
