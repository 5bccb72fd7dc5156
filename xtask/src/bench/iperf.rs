//! Parses the output of `iperf3 --json`.

use super::stats;
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// The result of a TCP measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tcp {
    /// Payload received, in bytes.
    pub(super) bytes: f64,
    /// Payload received, in bits per second.
    pub(super) bits_per_second: f64,
    /// Jain's fairness index of the streams: 1 if all n streams have equal throughput, 1 / n if
    /// one stream has all throughput.
    pub(super) fairness: f64,
}

/// Parses the result of a TCP measurement, and sums both directions.
///
/// # Errors
///
/// Returns the error message of iperf3 if iperf3 failed.
pub(super) fn tcp(json: &str) -> Result<Tcp> {
    let end = end(json)?;
    let forth = end
        .sum_received
        .context("iperf3 did not report the received bytes")?;
    let back = end.sum_received_bidir_reverse.unwrap_or_default();
    let bytes = forth.bytes + back.bytes;
    if bytes == 0.0 {
        bail!("no byte arrived");
    }
    let shares: Vec<f64> = end
        .streams
        .iter()
        .filter_map(|stream| Some(stream.receiver?.bits_per_second))
        .collect();

    Ok(Tcp {
        bytes,
        bits_per_second: forth.bits_per_second + back.bits_per_second,
        fairness: stats::fairness(&shares).unwrap_or(1.0),
    })
}

fn end(json: &str) -> Result<End> {
    let output: Output = serde_json::from_str(json).context("iperf3 printed no result")?;
    if let Some(error) = output.error {
        bail!("iperf3: {error}");
    }

    Ok(output.end)
}

#[derive(Deserialize)]
struct Output {
    error: Option<String>,
    #[serde(default)]
    end: End,
}

#[derive(Default, Deserialize)]
struct End {
    #[serde(default)]
    streams: Vec<Stream>,
    sum_received: Option<Sum>,
    sum_received_bidir_reverse: Option<Sum>,
}

#[derive(Deserialize)]
struct Stream {
    receiver: Option<Sum>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Sum {
    bytes: f64,
    bits_per_second: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bytes_are_counted() {
        let json = r#"{"end": {
            "sum_sent": {"seconds": 1.0, "bytes": 61079552, "bits_per_second": 488582671.9, "retransmits": 7015, "sender": true},
            "sum_received": {"seconds": 1.0, "bytes": 58729608, "bits_per_second": 468470803.1, "sender": true}}}"#;

        assert_eq!(
            tcp(json).unwrap(),
            Tcp {
                bytes: 58_729_608.0,
                bits_per_second: 468_470_803.1,
                fairness: 1.0,
            }
        );
    }

    #[test]
    fn both_directions_are_summed() {
        let json = r#"{"end": {
            "sum_received": {"bytes": 1000, "bits_per_second": 8000},
            "sum_received_bidir_reverse": {"bytes": 500, "bits_per_second": 4000}}}"#;

        let tcp = tcp(json).unwrap();

        assert_eq!((tcp.bytes, tcp.bits_per_second), (1500.0, 12_000.0));
    }

    #[test]
    fn streams_without_bytes_lower_the_fairness() {
        let json = r#"{"end": {
            "streams": [{"sender": {"bytes": 9, "bits_per_second": 9}, "receiver": {"bytes": 8, "bits_per_second": 8}},
                        {"receiver": {"bytes": 0, "bits_per_second": 0}}],
            "sum_received": {"bytes": 8, "bits_per_second": 8}}}"#;

        assert_eq!(tcp(json).unwrap().fairness, 0.5);
    }

    #[test]
    fn an_error_of_iperf3_is_passed_on() {
        let json = r#"{"start": {}, "intervals": [], "end": {},
            "error": "unable to connect to server: Connection refused"}"#;

        assert_eq!(
            tcp(json).unwrap_err().to_string(),
            "iperf3: unable to connect to server: Connection refused"
        );
    }

    #[test]
    fn empty_output_is_an_error() {
        assert!(tcp("").is_err());
        assert!(tcp(r#"{"end": {}}"#).is_err());
    }
}
