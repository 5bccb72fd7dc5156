//! Tests of the chart: dashboard and alerts against the exported metrics, and who may scrape those.

#![forbid(unsafe_code)]

#[cfg(test)]
mod promql;
#[cfg(test)]
mod scraping;
#[cfg(test)]
mod tests;
