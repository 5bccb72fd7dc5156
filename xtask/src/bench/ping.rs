//! Parses the output of `ping`.

use super::stats;
use anyhow::{Context as _, Result};

/// Round-trip times of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rtt {
    /// Median, in microseconds.
    pub(super) p50_us: f64,
    /// 99th percentile, in microseconds.
    pub(super) p99_us: f64,
    /// Percentage of the echo requests without reply, 0 to 100.
    pub(super) loss_percent: f64,
}

/// Parses the output of `ping`.
///
/// # Errors
///
/// Returns an error if there was no echo reply.
pub(super) fn rtt(output: &str) -> Result<Rtt> {
    let times: Vec<f64> = output.lines().filter_map(microseconds).collect();
    let sent = output
        .lines()
        .find_map(transmitted)
        .context("ping did not report the number of packets")?;
    let p50_us = stats::percentile(&times, 50).context("there was no reply to ping")?;
    let p99_us = stats::percentile(&times, 99).context("there was no reply to ping")?;

    Ok(Rtt {
        p50_us,
        p99_us,
        // Duplicate replies would make the loss negative.
        loss_percent: 100.0 * (1.0 - times.len() as f64 / sent).max(0.0),
    })
}

/// Parses the time of a line such as `64 bytes from 10.202.0.2: icmp_seq=1 ttl=64 time=1.75 ms`.
fn microseconds(line: &str) -> Option<f64> {
    let (_, time) = line.split_once(" time=")?;
    let milliseconds: f64 = time.strip_suffix(" ms")?.parse().ok()?;

    Some(milliseconds * 1e3)
}

/// Parses the first number of a line such as `3 packets transmitted, 3 received, 0% packet loss`.
fn transmitted(line: &str) -> Option<f64> {
    let (count, _) = line.split_once(" packets transmitted")?;

    count.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
PING 10.202.0.2 (10.202.0.2) 56(84) bytes of data.
64 bytes from 10.202.0.2: icmp_seq=1 ttl=64 time=1.75 ms
64 bytes from 10.202.0.2: icmp_seq=2 ttl=64 time=0.328 ms
64 bytes from 10.202.0.2: icmp_seq=3 ttl=64 time=0.545 ms

--- 10.202.0.2 ping statistics ---
4 packets transmitted, 3 received, 25% packet loss, time 26ms
rtt min/avg/max/mdev = 0.328/0.875/1.754/0.627 ms
";

    #[test]
    fn each_reply_counts() {
        let rtt = rtt(OUTPUT).unwrap();

        assert_eq!(rtt.p50_us, 545.0);
        assert_eq!(rtt.p99_us, 1750.0);
        assert_eq!(rtt.loss_percent, 25.0);
    }

    #[test]
    fn no_reply_is_an_error() {
        let output = "\n3 packets transmitted, 0 received, 100% packet loss, time 26ms\n";

        assert_eq!(
            rtt(output).unwrap_err().to_string(),
            "there was no reply to ping"
        );
    }
}
