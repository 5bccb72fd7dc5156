//! Sends ICMP echo requests with the program `ping`.

use crate::lab::netns::Netns;
use anyhow::{Context as _, Result};
use std::net::Ipv4Addr;
use std::time::Duration;

/// The options of a `ping` command.
#[derive(Clone, Copy, Debug)]
pub struct Ping {
    /// Number of echo requests to send.
    pub count: u32,
    /// Size of the data in each echo request, in bytes.
    pub size: u32,
    /// Whether to set the flag DF (don't fragment).
    pub dont_fragment: bool,
    /// Interval between requests. With `None`, `ping` sends all requests at once.
    ///
    /// If any reply has arrived before the last request, `ping` waits for the other replies. The
    /// maximum wait is the interval or two round-trip times, whichever is longer.
    pub interval: Option<Duration>,
    /// Time to wait for replies, if all requests were sent at once or no reply has arrived.
    /// Fractions of a second are ignored, and the minimum is one second.
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

/// The result of a `ping` command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Number of requests sent.
    pub sent: u32,
    /// Number of replies received.
    pub received: u32,
    /// Mean round-trip time, `None` without replies.
    pub rtt: Option<Duration>,
    /// The output of `ping`, including received ICMP errors.
    pub text: String,
}

impl Report {
    /// Returns whether every request got a reply.
    pub fn is_complete(&self) -> bool {
        self.sent > 0 && self.received == self.sent
    }
}

impl Ping {
    /// Sends echo requests to `to` from a namespace.
    ///
    /// # Errors
    ///
    /// Returns an error if `ping` cannot be run or its output cannot be parsed.
    pub fn run(&self, netns: &Netns, to: Ipv4Addr) -> Result<Report> {
        let timeout = self.timeout.as_secs().max(1).to_string();
        let count = self.count.to_string();
        // With option -l, `ping` sends all requests at once. The interval then limits the wait for
        // the replies.
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

/// Sends three echo requests to `to`, and returns whether every request got a reply.
///
/// # Errors
///
/// Returns the errors of [`Ping::run`].
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
