//! Configures links, addresses and routes in batches of `ip` commands.

pub mod settings;

use super::netns::Netns;
use anyhow::Result;

/// Runs `ip` commands (without the word `ip`) in a namespace, in one process.
///
/// # Errors
///
/// Returns an error with the message of `ip` at the first command that fails; later
/// commands are not run.
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
    /// The namespace of this end.
    pub netns: &'a Netns,
    /// The name of the device, at most 15 characters.
    pub device: &'a str,
}

/// Returns the `ip` command that creates a veth pair when it runs in the namespace of
/// `near`.
pub fn veth(near: End<'_>, far: End<'_>, mtu: u32) -> String {
    format!(
        "link add name {} mtu {mtu} type veth peer name {} mtu {mtu} netns {}",
        near.device,
        far.device,
        far.netns.name(),
    )
}

/// Connects two namespaces by a veth pair, whose devices are down.
///
/// # Errors
///
/// Returns an error if a device of that name exists.
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

/// Turns off segmentation and checksum offloads of a device.
///
/// A capture or a relay then sees packets as they would be on a wire.
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
