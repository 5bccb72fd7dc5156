//! ICMP echo requests, sent by the program `ping`.

use crate::lab::netns::Netns;
use anyhow::{Context as _, Result};
use std::net::Ipv4Addr;
use std::time::Duration;

/// The options of a ping.
#[derive(Clone, Copy, Debug)]
pub struct Ping {
    /// Number of echo requests.
    pub count: u32,
    /// Bytes of data in each.
    pub size: u32,
    /// Whether to set the flag DF.
    pub dont_fragment: bool,
    /// Interval between requests; zero sends all at once. After the last request, and if any
    /// reply has arrived, `ping` waits at most this long or two round trips.
    pub interval: Option<Duration>,
    /// Time to wait for replies to requests that were sent at once, or for the first
    /// reply (whole seconds).
    pub timeout: Duration,
}

impl Default for Ping {
    fn default() -> Self {
        Self {
            count: 3,
            size: 56,
            dont_fragment: false,
            interval: None,
            timeout: Duration::from_secs(2),
        }
    }
}

/// The result of a ping.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Requests sent.
    pub sent: u32,
    /// Replies received.
    pub received: u32,
    /// The mean round-trip time.
    pub rtt: Option<Duration>,
    /// The output of `ping`, including ICMP errors that it received.
    pub text: String,
}

impl Report {
    /// Whether every request got a reply.
    pub fn is_complete(&self) -> bool {
        self.sent > 0 && self.received == self.sent
    }
}

impl Ping {
    /// Pings `to` from a namespace.
    ///
    /// # Errors
    ///
    /// Returns an error if `ping` cannot be run or its output cannot be parsed.
    pub fn run(&self, netns: &Netns, to: Ipv4Addr) -> Result<Report> {
        let timeout = self.timeout.as_secs().max(1).to_string();
        let count = self.count.to_string();
        // A reply ends every other wait early, so only the interval can take long.
        let (at_once, interval) = match self.interval {
            Some(interval) => ("1", interval.as_secs_f64().to_string()),
            None => (count.as_str(), timeout.clone()),
        };
        let discover = if self.dont_fragment { "do" } else { "dont" };
        let args = [
            "-n",
            "-c",
            &count,
            "-l",
            at_once,
            "-s",
            &self.size.to_string(),
            "-i",
            &interval,
            "-W",
            &timeout,
            "-M",
            discover,
            &to.to_string(),
        ];
        let output = netns.output("ping", &args, "")?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();

        parse(text)
    }
}

/// Pings `to` three times, and returns whether every request got a reply.
///
/// # Errors
///
/// As [`Ping::run`].
pub fn reaches(netns: &Netns, to: Ipv4Addr) -> Result<bool> {
    Ok(Ping::default().run(netns, to)?.is_complete())
}

fn parse(text: String) -> Result<Report> {
    let unknown = || format!("failed to parse the output of ping: {text}");
    let summary = text
        .lines()
        .find(|line| line.contains("packets transmitted"))
        .with_context(unknown)?;
    let number_before = |words: &str| -> Option<u32> {
        let (before, _) = summary.split_once(words)?;
        before.split_whitespace().last()?.parse().ok()
    };
    let sent = number_before(" packets transmitted").with_context(unknown)?;
    let received = number_before(" received").with_context(unknown)?;
    let rtt = text.lines().find_map(|line| {
        let (_, numbers) = line.strip_prefix("rtt ")?.split_once(" = ")?;
        let mean: f64 = numbers.split('/').nth(1)?.parse().ok()?;
        Some(Duration::from_secs_f64(mean / 1000.0))
    });

    Ok(Report {
        sent,
        received,
        rtt,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_parsed() {
        let text = "--- 10.0.0.1 ping statistics ---\n\
            3 packets transmitted, 2 received, +1 errors, 33% packet loss, time 40ms\n\
            rtt min/avg/max/mdev = 0.040/0.052/0.064/0.012 ms\n";

        let report = parse(text.to_owned()).unwrap();

        assert_eq!((report.sent, report.received), (3, 2));
        assert_eq!(report.rtt, Some(Duration::from_micros(52)));
    }
}
