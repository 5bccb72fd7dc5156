//! Links, addresses and routes, set in batches of `ip` commands.

use super::netns::Netns;
use anyhow::Result;

/// Runs `ip` commands (without the word `ip`) in a namespace, in one process.
///
/// # Errors
///
/// Returns an error with what `ip` said if one of them fails; those after it
/// are not run.
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

/// One end of a pair of virtual Ethernet devices.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The namespace of this end.
    pub netns: &'a Netns,
    /// The name of the device, at most 15 characters.
    pub device: &'a str,
}

/// The `ip` command, to be run in the namespace of `near`, that makes a pair of
/// devices.
pub fn veth(near: End<'_>, far: End<'_>, mtu: u32) -> String {
    format!(
        "link add name {} mtu {mtu} type veth peer name {} mtu {mtu} netns {}",
        near.device,
        far.device,
        far.netns.name(),
    )
}

/// Connects two namespaces by a pair of devices, which are left down.
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

/// Turns off what lets the kernel send unfinished packets over a device:
/// segmentation and checksums left to the hardware.
///
/// What a capture or a relay behind it sees is then what a wire would carry.
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
