//! The demo's report, as text and as JSON.

use crate::console::{BAD, FAINT, GOOD, TITLE};
use serde::Serialize;
use std::collections::BTreeMap;

/// A claim and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Claim {
    /// The identifier of the claim in the JSON output, which must not change.
    pub(crate) name: &'static str,
    pub(crate) pass: bool,
    /// The measured value as a sentence.
    pub(crate) measured: String,
}

/// The JSON document of a demo.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) pass: bool,
    /// All claims, in the order in which the demo checked them.
    pub(crate) claims: Vec<Claim>,
    /// The measured throughput; `None` if no check has measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) throughput: Option<Throughput>,
    /// The commit, and the versions of kernel, gateway and route agent or `liqoctl`.
    pub(crate) versions: BTreeMap<String, String>,
    /// The duration from the creation of the clusters to the end of their removal.
    pub(crate) seconds: f64,
}

/// Throughput of one TCP connection between two pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Throughput {
    /// Payload bits per second.
    pub(crate) tcp_bits_per_second: f64,
    /// Payload bytes that the server received and compared with the sent bytes.
    pub(crate) tcp_bytes: u64,
}

impl Report {
    /// Prints the verdicts to standard output.
    pub(crate) fn print(&self) {
        anstream::println!("\n{TITLE}Claims{TITLE:#}");
        let width = self
            .claims
            .iter()
            .map(|claim| claim.name.len())
            .max()
            .unwrap_or_default();
        for claim in &self.claims {
            let (style, word) = verdict(claim.pass);
            anstream::println!(
                "{style}{word}{style:#}  {:<width$}  {FAINT}{}{FAINT:#}",
                claim.name,
                claim.measured,
            );
        }

        let passed = self.claims.iter().filter(|claim| claim.pass).count();
        let (style, word) = verdict(self.pass);
        anstream::println!(
            "\n{style}{word}{style:#}: {passed} of {} claims hold, in {:.0} s",
            self.claims.len(),
            self.seconds,
        );
    }
}

/// Returns the style and the word for a passed or failed claim.
pub(crate) fn verdict(pass: bool) -> (anstyle::Style, &'static str) {
    if pass { (GOOD, "PASS") } else { (BAD, "FAIL") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_json_document_has_its_documented_names() {
        let report = Report {
            pass: true,
            claims: vec![Claim {
                name: "udp",
                pass: true,
                measured: "3 of 3 replies".into(),
            }],
            throughput: Some(Throughput {
                tcp_bits_per_second: 1.5,
                tcp_bytes: 2,
            }),
            versions: BTreeMap::from([("kernel".into(), "6.18".into())]),
            seconds: 30.0,
        };

        let value = serde_json::to_value(&report).unwrap();

        assert_eq!(
            value,
            json!({
                "pass": true,
                "claims": [{"name": "udp", "pass": true, "measured": "3 of 3 replies"}],
                "throughput": {"tcpBitsPerSecond": 1.5, "tcpBytes": 2},
                "versions": {"kernel": "6.18"},
                "seconds": 30.0,
            })
        );
    }
}
