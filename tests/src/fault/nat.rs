//! A NAT router with short timeouts.

use crate::lab::netns::Netns;
use anyhow::Result;
use std::time::Duration;

/// Masquerades packets that leave the router `netns` through its device `outside`,
/// with a random port for every flow. A UDP flow expires after `timeout` without
/// packets (whole seconds).
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
