//! Why the kernel programs cannot do what they shall.

use std::io;
use std::path::PathBuf;

/// Why the programs cannot be loaded, attached or told what they shall know.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process lacks a capability.
    #[error(
        "failed to {action}: not permitted; the process needs the capabilities NET_ADMIN, BPF and PERFMON"
    )]
    NotPermitted {
        /// What was refused.
        action: &'static str,
    },

    /// The kernel lacks something without which there is no data path.
    #[error("the kernel does not support {feature}, which needs Linux {since} or later")]
    Unsupported {
        /// What is missing.
        feature: &'static str,
        /// The first version of Linux that has it.
        since: &'static str,
    },

    /// A device is not in the network namespace of the calling thread.
    #[error("failed to find the device {device}")]
    NoDevice {
        /// Its name.
        device: String,
        /// The kernel's answer.
        source: io::Error,
    },

    /// Pins only live in a BPF file system.
    #[error("{} is on no BPF file system: run `mount -t bpf bpf /sys/fs/bpf`", .path.display())]
    NotBpffs {
        /// Where the pins shall be.
        path: PathBuf,
    },

    /// A file or directory of the pins resists.
    #[error("failed to {action} {}", .path.display())]
    Pin {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },

    /// The kernel refuses the programs; the verifier's words are in the source.
    #[error("failed to load the program {program}")]
    Program {
        /// Its name.
        program: &'static str,
        /// The kernel's answer.
        source: Box<aya::programs::ProgramError>,
    },

    /// The kernel refuses to run a program at a device.
    #[error("failed to attach to the device {device}")]
    Attach {
        /// Its name.
        device: String,
        /// The kernel's answer.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The embedded object is not what this loader expects.
    #[error("failed to load the object of the kernel programs")]
    Object {
        /// What aya says.
        source: Box<aya::EbpfError>,
    },

    /// Object and loader are of different revisions.
    #[error("the object of the kernel programs has no {name}")]
    Missing {
        /// The map or program.
        name: &'static str,
    },

    /// A map cannot be read or written.
    #[error("failed to access the map {map}")]
    Map {
        /// Its name.
        map: &'static str,
        /// The kernel's answer.
        source: Box<aya::maps::MapError>,
    },

    /// The tables hold more than the maps.
    #[error("the table {table} has {entries} entries, the limit is {limit}")]
    TooMany {
        /// The table's name.
        table: &'static str,
        /// How many entries it shall have.
        entries: usize,
        /// How many it can have.
        limit: usize,
    },

    /// A swap keeps the host part, so both prefixes must be of one length.
    #[error("cannot swap {from} for {to}: the prefix lengths differ")]
    PrefixLengths {
        /// The prefix to replace.
        from: ipnet::Ipv4Net,
        /// Its replacement.
        to: ipnet::Ipv4Net,
    },

    /// A destination without a node.
    #[error("the local destination {destination} has no node")]
    NoNode {
        /// The destination.
        destination: ipnet::Ipv4Net,
    },

    /// One destination is both ours and another peer's.
    #[error("{address} is both a local destination and in transit")]
    AmbiguousDestination {
        /// The address.
        address: std::net::Ipv4Addr,
    },

    /// The sign of life cannot be given.
    #[error(
        "failed to open the UDP port {port} of the overlay's namespace: is the gateway's probe port another program's there?"
    )]
    Life {
        /// The probe's port.
        port: u16,
        /// The kernel's answer.
        source: io::Error,
    },

    /// The clock that heartbeats are measured by cannot be read.
    #[error("failed to read the monotonic clock")]
    Clock {
        /// The kernel's answer.
        source: io::Error,
    },

    /// A mechanism that tests shall switch off does not exist.
    #[cfg(feature = "mutants")]
    #[error("there is no mechanism {name} to switch off")]
    UnknownMutant {
        /// The name.
        name: String,
    },

    /// Several steps of a removal failed; the others were done.
    #[error("failed to remove {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Self>),
}
