//! Reduces the MTU of a link, with or without ICMP errors to the senders of large packets.

use crate::lab::link::{End, ip};
use crate::lab::netns::Netns;
use anyhow::Result;

/// Sets the MTU in bytes of both ends of a link. The routers at the ends report the MTU to
/// senders of larger packets (ICMP "fragmentation needed").
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn set(ends: [End<'_>; 2], mtu: u32) -> Result<()> {
    for end in ends {
        ip(
            end.netns,
            &[format!("link set dev {} mtu {mtu}", end.device)],
        )?;
    }

    Ok(())
}

/// Makes a router drop ICMP "fragmentation needed" errors, so that path MTU discovery fails.
///
/// # Errors
///
/// Returns an error if nft refuses the rule.
pub fn silence(router: &Netns) -> Result<()> {
    let ruleset = "table inet silence {
            chain output {
                type filter hook output priority 0; policy accept;
                icmp type destination-unreachable icmp code frag-needed counter drop
            }
            chain forward {
                type filter hook forward priority 0; policy accept;
                icmp type destination-unreachable icmp code frag-needed counter drop
            }
        }
        ";
    router.exec("nft", &["-f", "-"], ruleset)?;

    Ok(())
}
