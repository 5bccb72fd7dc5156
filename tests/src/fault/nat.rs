//! A router that translates addresses and forgets quickly.

use crate::lab::netns::Netns;
use anyhow::Result;
use std::time::Duration;

/// Hides what is behind the router `netns` from what is beyond its device
/// `outside`, with a new port for every flow, and forgets a UDP flow after
/// `timeout` of silence (whole seconds).
///
/// # Errors
///
/// Returns an error if the kernel refuses rule or setting.
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
