//! Turns a router into a NAT router with short time-outs.

use crate::lab::netns::Netns;
use anyhow::Result;
use std::time::Duration;

/// Masquerades packets that leave the router `netns` through the device `outside`.
///
/// Each flow gets a random port. A UDP flow expires after `timeout` without packets. Fractions of a
/// second are ignored.
///
/// # Errors
///
/// Returns an error if the kernel refuses the rule or the setting.
pub fn hide(netns: &Netns, outside: &str, timeout: Duration) -> Result<()> {
    let ruleset = format!(
        "table inet nat {{
            chain postrouting {{
                type nat hook postrouting priority 100; policy accept;
                oifname \"{outside}\" counter masquerade random
            }}
        }}
        "
    );
    netns.exec("nft", &["-f", "-"], &ruleset)?;

    for timer in ["udp_timeout", "udp_timeout_stream"] {
        netns.sysctl(
            &format!("net.netfilter.nf_conntrack_{timer}"),
            timeout.as_secs(),
        )?;
    }

    Ok(())
}
