//! What `iperf3 --json` says.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// A TCP measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tcp {
    /// Payload received, in bytes.
    pub(super) bytes: f64,
    /// Payload received, in bits per second.
    pub(super) bits_per_second: f64,
    /// Segments sent again.
    pub(super) retransmits: f64,
}

/// A UDP measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Udp {
    /// Datagrams received per second.
    pub(super) packets_per_second: f64,
    /// Share of the datagrams sent that did not arrive, 0 to 100.
    pub(super) loss_percent: f64,
}

/// Reads the result of a TCP measurement.
///
/// # Errors
///
/// Returns an error with iperf3's own words if it failed.
pub(super) fn tcp(json: &str) -> Result<Tcp> {
    let end = end(json)?;
    let sent = end.sum_sent.context("iperf3 does not say what it sent")?;
    let received = end
        .sum_received
        .context("iperf3 does not say what arrived")?;
    if received.bytes == 0.0 {
        bail!("no byte arrived");
    }

    Ok(Tcp {
        bytes: received.bytes,
        bits_per_second: received.bits_per_second,
        retransmits: sent.retransmits,
    })
}

/// Reads the result of a UDP measurement with datagrams of `size` bytes.
///
/// # Errors
///
/// Returns an error with iperf3's own words if it failed.
pub(super) fn udp(json: &str, size: u32) -> Result<Udp> {
    let end = end(json)?;
    let sent = end.sum_sent.context("iperf3 does not say what it sent")?;
    let received = end
        .sum_received
        .context("iperf3 does not say what arrived")?;
    if sent.packets == 0.0 || received.seconds == 0.0 {
        bail!("no datagram was sent");
    }

    // `packets` of the receiver counts lost ones too; its bytes do not.
    let arrived = received.bytes / f64::from(size);
    Ok(Udp {
        packets_per_second: arrived / received.seconds,
        loss_percent: 100.0 * (1.0 - arrived / sent.packets).max(0.0),
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
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    seconds: f64,
    bytes: f64,
    bits_per_second: f64,
    #[serde(default)]
    retransmits: f64,
    #[serde(default)]
    packets: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_counts_what_arrived() {
        let json = r#"{"end": {
            "sum_sent": {"seconds": 1.0, "bytes": 61079552, "bits_per_second": 488582671.9, "retransmits": 7015, "sender": true},
            "sum_received": {"seconds": 1.0, "bytes": 58729608, "bits_per_second": 468470803.1, "sender": true}}}"#;

        assert_eq!(
            tcp(json).unwrap(),
            Tcp {
                bytes: 58_729_608.0,
                bits_per_second: 468_470_803.1,
                retransmits: 7015.0
            }
        );
    }

    #[test]
    fn udp_counts_what_arrived_of_all_that_was_sent() {
        let json = r#"{"end": {
            "sum": {"seconds": 2.0, "bytes": 64000, "bits_per_second": 1.0, "packets": 1000, "lost_packets": 740},
            "sum_sent": {"seconds": 1.9, "bytes": 64000, "bits_per_second": 1.0, "packets": 1000},
            "sum_received": {"seconds": 2.0, "bytes": 16000, "bits_per_second": 1.0, "packets": 990, "lost_packets": 740}}}"#;

        assert_eq!(
            udp(json, 64).unwrap(),
            Udp {
                packets_per_second: 125.0,
                loss_percent: 75.0
            }
        );
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
    fn silence_is_no_result() {
        assert!(tcp("").is_err());
        assert!(tcp(r#"{"end": {}}"#).is_err());
        assert!(udp(r#"{"end": {}}"#, 64).is_err());
    }
}
