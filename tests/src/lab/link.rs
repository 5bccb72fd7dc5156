//! Configures links, addresses and routes with batches of `ip` commands.

pub mod settings;

use super::netns::Netns;
use anyhow::Result;

/// Runs several `ip` commands in a namespace, with one process. Each command is given without the
/// leading word `ip`.
///
/// # Errors
///
/// Returns an error with the message of `ip` if a command fails. Later commands are not run.
pub fn ip<S: AsRef<str>>(netns: &Netns, commands: &[S]) -> Result<()> {
    if commands.is_empty() {
        return Ok(());
    }

    let batch: String = commands
        .iter()
        .map(|command| format!("{}\n", command.as_ref()))
        .collect();
    netns.exec("ip", &["-batch", "-"], &batch)?;

    Ok(())
}

/// One end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The namespace in which this end is.
    pub netns: &'a Netns,
    /// Name of the device, with at most 15 characters.
    pub device: &'a str,
}

/// Returns the `ip` command that creates a veth pair with the MTU `mtu` in bytes. The command must
/// run in the namespace of `near`.
pub fn veth(near: End<'_>, far: End<'_>, mtu: u32) -> String {
    format!(
        "link add name {} mtu {mtu} type veth peer name {} mtu {mtu} netns {}",
        near.device,
        far.device,
        far.netns.name(),
    )
}

/// Connects two namespaces by a veth pair. The devices are down, and have the MTU `mtu` in bytes.
///
/// # Errors
///
/// Returns an error if a device with one of the names exists.
pub fn connect(near: End<'_>, far: End<'_>, mtu: u32) -> Result<()> {
    ip(near.netns, &[veth(near, far, mtu)])
}

/// Sets a device up or down.
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn set_up(end: End<'_>, up: bool) -> Result<()> {
    let state = if up { "up" } else { "down" };
    ip(end.netns, &[format!("link set dev {} {state}", end.device)])
}

/// Turns off the segmentation and checksum offloads of a device.
///
/// Captures and relays then read packets with the size and checksums that they have on a wire.
///
/// # Errors
///
/// Returns an error if there is no such device.
pub fn without_offloads(end: End<'_>) -> Result<()> {
    let features = ["tx", "rx", "sg", "tso", "gso", "gro", "tx-udp-segmentation"];
    let mut args = vec!["-K", end.device];
    for feature in features {
        args.extend([feature, "off"]);
    }
    end.netns.exec("ethtool", &args, "")?;

    Ok(())
}

/// Disables segmentation offload and enables GRO on a veth device. So the kernel segments
/// super-packets when it sends them, and coalesces datagrams when it receives them.
///
/// A veth device does GRO only if its peer device does not offload TCP segmentation
/// (`veth_skb_is_eligible_for_gro` in the kernel), so TSO is disabled, too.
///
/// # Errors
///
/// Returns an error if the device refuses a feature.
pub fn without_segmentation(end: End<'_>) -> Result<()> {
    let features = [
        ("tx-udp-segmentation", "off"),
        ("tso", "off"),
        ("gro", "on"),
    ];
    let mut arguments = vec!["-K", end.device];
    arguments.extend(features.iter().flat_map(|(name, value)| [*name, *value]));
    end.netns.exec("ethtool", &arguments, "")?;

    Ok(())
}
