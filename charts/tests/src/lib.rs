//! Tests of the Helm chart.
//!
//! The tests check the metrics in the dashboard and the alerts, the rights of the roles, and the
//! sources that may scrape metrics.

#![forbid(unsafe_code)]

#[cfg(test)]
mod promql;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod scraping;
#[cfg(test)]
mod tests;
