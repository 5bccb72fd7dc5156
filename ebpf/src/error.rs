//! Errors of loading, attaching and updating the kernel programs.

use std::io;
use std::path::PathBuf;

/// Why the programs cannot be loaded, attached or updated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process lacks a capability.
    #[error(
        "failed to {action}: not permitted; the process needs the capabilities NET_ADMIN, BPF and PERFMON"
    )]
    NotPermitted {
        /// The refused action, as an infinitive.
        action: &'static str,
    },

    /// The kernel lacks something without which there is no data path.
    #[error("the kernel does not support {feature}, which needs Linux {since} or later")]
    Unsupported {
        /// The feature and its kernel option.
        feature: &'static str,
        /// The first version of Linux that has it.
        since: &'static str,
    },

    /// A device is not in the network namespace of the calling thread.
    #[error("failed to find the device {device}")]
    NoDevice {
        /// Name of the device.
        device: String,
        /// The kernel's error.
        source: io::Error,
    },

    /// Only a BPF file system can hold pins.
    #[error("{} is on no BPF file system: run `mount -t bpf bpf /sys/fs/bpf`", .path.display())]
    NotBpffs {
        /// The directory of the pins.
        path: PathBuf,
    },

    /// A file or directory of the pins cannot be read or changed.
    #[error("failed to {action} {}", .path.display())]
    Pin {
        /// The failed action, as an infinitive.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },

    /// The kernel refuses a program; the source holds the verifier's log.
    #[error("failed to load the program {program}")]
    Program {
        /// Name of the program.
        program: &'static str,
        /// The kernel's error.
        source: Box<aya::programs::ProgramError>,
    },

    /// The kernel refuses to run a program at a device.
    #[error("failed to attach to the device {device}")]
    Attach {
        /// Name of the device.
        device: String,
        /// The kernel's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The embedded object is not what this loader expects.
    #[error("failed to load the object of the kernel programs")]
    Object {
        /// aya's error.
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
        /// Name of the map.
        map: &'static str,
        /// The kernel's error.
        source: Box<aya::maps::MapError>,
    },

    /// A table has more entries than its map can hold.
    #[error("the table {table} has {entries} entries, the limit is {limit}")]
    TooMany {
        /// Name of the table.
        table: &'static str,
        /// Number of entries.
        entries: usize,
        /// Most entries.
        limit: usize,
    },

    /// Remapping keeps the host part, so both prefixes must have one length.
    #[error("cannot remap {from} to {to}: the prefix lengths differ")]
    PrefixLengths {
        /// The prefix to remap.
        from: ipnet::Ipv4Net,
        /// The remapped prefix.
        to: ipnet::Ipv4Net,
    },

    /// A local destination has no node.
    #[error("the local destination {destination} has no node")]
    NoNode {
        /// The destination.
        destination: ipnet::Ipv4Net,
    },

    /// A destination belongs to this cluster and to a peer.
    #[error("{address} is a local destination and also a remote pod's IP object")]
    AmbiguousDestination {
        /// The address.
        address: std::net::Ipv4Addr,
    },

    /// The liveness socket cannot be opened.
    #[error(
        "failed to open UDP port {port} in the overlay's namespace: another program may use the gateway's probe port"
    )]
    LivenessSocket {
        /// The probe's port.
        port: u16,
        /// The kernel's error.
        source: io::Error,
    },

    /// The clock that dates heartbeats cannot be read.
    #[error("failed to read the monotonic clock")]
    Clock {
        /// The kernel's error.
        source: io::Error,
    },

    /// There is no mechanism of this name to switch off.
    #[cfg(feature = "mutants")]
    #[error("there is no mechanism {name} to switch off")]
    UnknownMutant {
        /// Name of the mechanism.
        name: String,
    },

    /// Some steps of a removal failed; the others succeeded.
    #[error("failed to remove {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Self>),
}
