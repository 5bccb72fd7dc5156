//! An uplink with a process that drops, delays and duplicates frames.

use super::{Faults, split};
use crate::cluster::Cluster;
use crate::host::{self, ip};
use crate::place;
use crate::underlay::NETNS;
use ::tests::fault::relay::Relay;
use ::tests::lab::netns::Netns;
use ::tests::packet::PacketSocket;
use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The offloads that are disabled on the devices of the relay. With offloads, devices deliver
/// packets larger than the MTU, and packets without checksums.
const OFFLOADS: [&str; 6] = ["tx", "rx", "sg", "tso", "gso", "gro"];

/// Inserts a relay into the uplink of a cluster.
pub(super) fn start(cluster: &Cluster, faults: Faults, towards: &[u8]) -> Result<()> {
    let number = cluster.number;
    let (commands, [near, far]) = split(number, NETNS);
    ip(Some(NETNS), &commands)?;
    ip(
        Some(NETNS),
        &[near.clone(), far.clone()].map(|device| format!("link set {device} up")),
    )?;
    for device in [&format!("up{number}"), &format!("dn{number}"), &near, &far] {
        let mut args = vec!["netns", "exec", NETNS, "ethtool", "-K", device];
        for feature in OFFLOADS {
            args.extend([feature, "off"]);
        }
        host::run("ip", &args)?;
    }

    let towards: Vec<_> = towards.iter().map(ToString::to_string).collect();
    let path = Path::new("/run/netns").join(NETNS);
    let netns = File::open(&path).with_context(|| format!("failed to open {}", path.display()))?;
    let mut relay = Command::new(place::program());
    relay
        .args(["relay", "--near", &near, "--far", &far])
        .arg(format!("--loss={}", faults.loss))
        .arg(format!("--duplicate={}", faults.duplicate))
        .arg(format!("--reorder={}", faults.reorder))
        .arg(format!("--delay-ms={}", faults.delay.as_millis()))
        .arg(format!("--towards={}", towards.join(",")))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = Netns::adopt(NETNS, netns)
        .start(&mut relay)
        .context("failed to start a relay")?;
    fs::write(pid_file(number), child.id().to_string())
        .context("failed to save the process id of a relay")
}

/// Ends the relay of the cluster with this number, if it exists.
pub(super) fn stop(number: u8) {
    let path = pid_file(number);
    let Ok(text) = fs::read_to_string(&path) else {
        return;
    };
    // The relay may have ended, and another process may have its process id.
    if let Ok(pid) = text.parse::<i32>()
        && fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|it| it.contains("relay"))
    {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let _ = fs::remove_file(path);
}

/// Runs the relay in the network namespace of the bridges, until the relay is killed.
///
/// # Errors
///
/// Returns an error if a device does not exist.
pub fn run(near: &str, far: &str, faults: Faults, towards: &[u8]) -> Result<()> {
    let open = PacketSocket::open_here;
    let lanes = [[open(near)?, open(far)?], [open(far)?, open(near)?]];
    let towards = towards.to_vec();
    let relay = Relay::join(lanes, move |frame| {
        towards.is_empty() || towards.iter().any(|number| is_of(frame, *number))
    });
    relay.set(faults);
    loop {
        std::thread::park();
    }
}

/// Returns whether the source or the destination of a frame is a node of the cluster with this
/// number. A node's MAC address consists of 02:42 and the node's IP address. The third octet of the
/// IP address is the number of the cluster.
fn is_of(frame: &[u8], number: u8) -> bool {
    [0, 6].iter().any(|at| {
        frame
            .get(*at..at + 6)
            .is_some_and(|mac| mac.starts_with(&[0x02, 0x42]) && mac[4] == number)
    })
}

fn pid_file(number: u8) -> PathBuf {
    place::state().join(format!("relay-{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_cluster_are_known_by_either_address() {
        let node = |number| [0x02, 0x42, 172, 18, number, 2];
        let frame = |to: [u8; 6], from: [u8; 6]| [to, from].concat();
        let broadcast = [0xff; 6];

        assert!(is_of(&frame(node(2), node(1)), 2));
        assert!(is_of(&frame(broadcast, node(2)), 2));
        assert!(!is_of(&frame(node(3), node(1)), 2));
        assert!(!is_of(&[0x02, 0x42], 2));
    }
}
