//! Tests of the Helm chart.
//!
//! The tests check the metrics in the dashboard and the alerts, the rights of the roles, and the
//! sources that may scrape metrics. [`roles`] compares the roles with the rights that a process
//! needs, in the tests of that process.

#![forbid(unsafe_code)]

pub mod roles;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod promql;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod scraping;
#[cfg(test)]
mod tests;
