//! Reads the TCP counters of network namespaces from `/proc/net/snmp` and `/proc/net/netstat`.

use ::tests::lab::netns::Netns;
use anyhow::{Context as _, Result};
use std::fs;

/// TCP counters of a network namespace. They are zero when the namespace is created.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TcpCounters {
    /// Retransmitted segments (`RetransSegs`).
    pub(super) repeated: f64,
    /// Segments that arrived out of order (`TCPOFOQueue`).
    pub(super) reordered: f64,
}

impl TcpCounters {
    /// Returns the sums of the counters of all `namespaces`.
    ///
    /// # Errors
    ///
    /// Returns an error if a counter cannot be read.
    pub(super) fn read(namespaces: &[&Netns]) -> Result<Self> {
        let mut sum = Self::default();
        for netns in namespaces {
            // `/proc/net` shows the network namespace of the main thread, but only the current
            // thread enters `netns`.
            let read = |name: &str| {
                let path = format!("/proc/thread-self/net/{name}");
                fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))
            };
            let (snmp, netstat) = netns.run(|| (read("snmp"), read("netstat")));
            sum.repeated += value(&snmp?, "Tcp:", "RetransSegs").context("no RetransSegs")?;
            sum.reordered +=
                value(&netstat?, "TcpExt:", "TCPOFOQueue").context("no TCPOFOQueue")?;
        }

        Ok(sum)
    }

    /// Returns the increase of the counters since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            repeated: self.repeated - before.repeated,
            reordered: self.reordered - before.reordered,
        }
    }
}

/// Returns the number in the column `name`. Two lines begin with `table`: first the line of column
/// names, then the line of numbers.
fn value(text: &str, table: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter(|line| line.starts_with(table));
    let names = lines.next()?.split_whitespace();
    let numbers = lines.next()?.split_whitespace();

    let (_, number) = names.zip(numbers).find(|(it, _)| *it == name)?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm MaxConn RetransSegs InErrs
Tcp: 1 -1 7015 0
";

    #[test]
    fn a_number_is_below_its_name() {
        assert_eq!(value(TEXT, "Tcp:", "RetransSegs"), Some(7015.0));
        assert_eq!(value(TEXT, "Tcp:", "MaxConn"), Some(-1.0));
    }

    #[test]
    fn a_missing_name_has_no_number() {
        assert_eq!(value(TEXT, "Tcp:", "TCPOFOQueue"), None);
        assert_eq!(value(TEXT, "TcpExt:", "RetransSegs"), None);
    }
}
