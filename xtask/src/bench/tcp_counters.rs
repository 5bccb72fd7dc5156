//! What TCP has counted in a namespace: the kernel's tables of names and numbers.

use ::tests::lab::netns::Netns;
use anyhow::{Context as _, Result};
use std::fs;

/// Counters since the namespace was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TcpCounters {
    /// Segments sent again.
    pub(super) repeated: f64,
    /// Segments that arrived before one that was sent earlier.
    pub(super) reordered: f64,
}

impl TcpCounters {
    /// Returns the sums over some namespaces.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not tell.
    pub(super) fn read(namespaces: &[&Netns]) -> Result<Self> {
        let mut sum = Self::default();
        for netns in namespaces {
            // Not `/proc/net`, which is the first thread's.
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

    /// Returns what was counted since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            repeated: self.repeated - before.repeated,
            reordered: self.reordered - before.reordered,
        }
    }
}

/// Two lines with the same first word: names, then numbers.
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
    fn numbers_stand_below_their_names() {
        assert_eq!(value(TEXT, "Tcp:", "RetransSegs"), Some(7015.0));
        assert_eq!(value(TEXT, "Tcp:", "MaxConn"), Some(-1.0));
    }

    #[test]
    fn what_is_not_there_has_no_number() {
        assert_eq!(value(TEXT, "Tcp:", "TCPOFOQueue"), None);
        assert_eq!(value(TEXT, "TcpExt:", "RetransSegs"), None);
    }
}
