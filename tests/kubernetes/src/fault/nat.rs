//! An uplink with a router that does source NAT.
//!
//! The nodes need no additional routes, because the router uses proxy ARP: it answers the nodes'
//! ARP requests for all addresses of the underlay that are outside of their cluster.

use super::split;
use crate::cluster::Cluster;
use crate::host::{self, ip};
use crate::spec::underlay_address;
use crate::underlay::{NETNS, Underlay, add_netns, remove_netns};
use anyhow::Result;
use std::process::Command;
use std::time::Duration;

/// Inserts a router into the uplink of a cluster.
pub(super) fn start(underlay: Underlay, cluster: &Cluster, udp_timeout: Duration) -> Result<()> {
    let number = cluster.number;
    let netns = netns(number);
    add_netns(&netns)?;
    let (commands, [outside, inside]) = split(number, &netns);
    ip(Some(NETNS), &commands)?;

    let own = underlay_address(underlay.net(), 254, number);
    let cluster_net = underlay_address(underlay.net(), number, 0);
    ip(
        Some(&netns),
        &[
            format!("address add {own}/16 dev {outside}"),
            format!("link set {outside} up"),
            format!("link set {inside} up"),
            format!("route add {cluster_net}/24 dev {inside} src {own}"),
        ],
    )?;
    let seconds = udp_timeout.as_secs();
    let mut settings = vec![
        "net.ipv4.ip_forward=1".to_owned(),
        format!("net.netfilter.nf_conntrack_udp_timeout={seconds}"),
        format!("net.netfilter.nf_conntrack_udp_timeout_stream={seconds}"),
    ];
    for device in [&outside, &inside] {
        settings.extend([
            format!("net.ipv4.conf.{device}.proxy_arp=1"),
            // Zero disables the random delay of proxy ARP replies, which may be a second.
            format!("net.ipv4.neigh.{device}.proxy_delay=0"),
        ]);
    }
    let machine = underlay.machine();
    let rules = format!(
        "table ip nat {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname {outside} ip daddr != {machine} masquerade random
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname {outside} ip saddr {machine} accept
    iifname {outside} ct state established,related accept
    iifname {outside} counter drop
  }}
}}
"
    );
    // The rules enable connection tracking, which creates two of the settings below.
    let inside = ["netns", "exec", &netns];
    host::checked(
        Command::new("ip").args(inside).args(["nft", "-f", "-"]),
        &rules,
    )?;
    let mut command = Command::new("ip");
    command.args(inside).args(["sysctl", "-qw"]).args(settings);
    host::checked(&mut command, "").map(drop)
}

/// Removes the router of the cluster with this number, if it exists.
pub(super) fn stop(number: u8) {
    // The removal fails if the cluster has no router.
    let _ = remove_netns(&netns(number));
}

fn netns(number: u8) -> String {
    format!("liqo-lab-nat-{number}")
}
