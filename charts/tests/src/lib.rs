//! Tests of the chart: dashboard and alerts against the exported metrics, roles against the rights that programs
//! use, and who may scrape metrics.

#![forbid(unsafe_code)]

#[cfg(test)]
mod promql;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod scraping;
#[cfg(test)]
mod tests;
