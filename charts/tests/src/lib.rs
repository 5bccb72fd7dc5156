//! The chart's dashboard and alerts, checked against what the processes export. All is in the tests.

#![forbid(unsafe_code)]

#[cfg(test)]
mod promql;
#[cfg(test)]
mod tests;
