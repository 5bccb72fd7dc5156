//! Measured numbers and their upper limits, in tables. All functions are pure.

use super::stats::Summary;
use serde::Serialize;
use std::fmt::Write as _;

/// A measured number and its limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Limited {
    pub(super) what: &'static str,
    limit: f64,
    measured: f64,
    pub(super) pass: bool,
}

impl Limited {
    /// Compares a number with the largest one that passes.
    pub(super) fn at_most(what: &'static str, limit: f64, measured: f64) -> Self {
        Self {
            what,
            limit,
            measured,
            pass: measured <= limit,
        }
    }
}

/// Returns a table of numbers with their limits.
pub(super) fn table(limited: &[Limited]) -> String {
    let mut text = String::from("| target | limit | measured | |\n|---|---|---|---|\n");
    for Limited {
        what,
        limit,
        measured,
        pass,
    } in limited
    {
        let pass = if *pass { "pass" } else { "**miss**" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {what} | {limit:.1} | {measured:.2} | {pass} |");
    }

    text
}

/// Returns the median with the range.
pub(super) fn shown(summary: &Summary, digits: usize) -> String {
    let Summary { median, min, max } = summary;
    format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
}
