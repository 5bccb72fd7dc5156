//! Errors of loading, attaching and updating the eBPF programs.

use std::io;
use std::path::PathBuf;

/// An error of loading, attaching or updating the eBPF programs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process lacks a capability that the message lists.
    #[error(
        "failed to {action}: not permitted; the process needs the capabilities NET_ADMIN, BPF and PERFMON"
    )]
    NotPermitted {
        /// The action for which the kernel returned `EPERM`, as an infinitive.
        action: &'static str,
    },

    /// The kernel lacks a feature that the programs require.
    #[error("the kernel does not support {feature}, which needs Linux {since} or later")]
    Unsupported {
        /// Description of the feature, with the kernel's name for it.
        feature: &'static str,
        /// First version of Linux that has the feature.
        since: &'static str,
    },

    /// A device is not in the network namespace of the calling thread.
    #[error("failed to find the device {device}")]
    NoDevice {
        /// Name of the overlay device or the TAP, as in [`crate::Options`].
        device: String,
        /// Error of `if_nametoindex`.
        source: io::Error,
    },

    /// The directory of the pins is not on a BPF file system, the only type that can hold pins.
    #[error("{} is not on a BPF file system: run `mount -t bpf bpf /sys/fs/bpf`", .path.display())]
    NotBpffs {
        /// Path of the directory.
        path: PathBuf,
    },

    /// A pin, or the directory of the pins, cannot be read or changed.
    #[error("failed to {action} {}", .path.display())]
    Pin {
        /// The failed action, as an infinitive.
        action: &'static str,
        /// Path of the pin or directory.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },

    /// The kernel rejects a program.
    #[error("failed to load the program {program}")]
    Program {
        /// Name of the program's function in the object file.
        program: &'static str,
        /// Error of bpf(2), with the verifier's log.
        source: Box<aya::programs::ProgramError>,
    },

    /// The kernel refuses to attach a program to a device.
    #[error("failed to attach to the device {device}")]
    Attach {
        /// Name of the overlay device or the TAP, as in [`crate::Options`].
        device: String,
        /// Error of bpf(2) or netlink.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The embedded object file cannot be parsed, or its maps cannot be created.
    #[error("failed to load the object file of the eBPF programs")]
    Object {
        /// Error of aya's loader.
        source: Box<aya::EbpfError>,
    },

    /// The embedded object file lacks a map or program, so it does not match this loader.
    #[error("the object file of the eBPF programs has no {name}")]
    Missing {
        /// Name of the map or program.
        name: &'static str,
    },

    /// An entry of a map cannot be read or written.
    #[error("failed to access the map {map}")]
    Map {
        /// Name of the map, as defined in [`ebpf_common::maps`].
        map: &'static str,
        /// Error of bpf(2).
        source: Box<aya::maps::MapError>,
    },

    /// A table has more entries than the loader accepts.
    #[error("the table {table} has {entries} entries, the limit is {limit}")]
    TooMany {
        /// Name of the map that would contain the entries.
        table: &'static str,
        /// Number of entries in the table.
        entries: usize,
        /// Highest number of entries that the loader accepts.
        limit: usize,
    },

    /// Two prefixes have different lengths, so a remap between them cannot keep the host bits.
    #[error("cannot remap {from} to {to}: the prefix lengths differ")]
    PrefixLengths {
        /// Prefix of the addresses before the remap.
        from: ipnet::Ipv4Net,
        /// Prefix of the addresses after the remap.
        to: ipnet::Ipv4Net,
    },

    /// A local destination has no node that could receive its packets.
    #[error("the local destination {destination} has no node")]
    NoNode {
        /// Prefix of the destination, as in [`crate::Tables::local`].
        destination: ipnet::Ipv4Net,
    },

    /// An address belongs to a local destination and also to an IP object of a remote pod or of a
    /// Service, or to two such IP objects.
    #[error("{address} is the address of an IP object and also of another destination")]
    AmbiguousDestination {
        /// The ambiguous address.
        address: std::net::Ipv4Addr,
    },

    /// A ClusterIP has two IP objects, or is a source prefix of this cluster. Replies of the Service
    /// could then get either address.
    #[error("the ClusterIP {address} has two IP objects, or is a source prefix of this cluster")]
    AmbiguousSource {
        /// The ClusterIP.
        address: std::net::Ipv4Addr,
    },

    /// The socket by which the programs check that the process is alive cannot be opened.
    #[error(
        "failed to open UDP port {port} in the overlay's namespace: another program may use the gateway's probe port"
    )]
    LivenessSocket {
        /// UDP port of the overlay probe.
        port: u16,
        /// Error of `socket`, `setsockopt` or `bind`.
        source: io::Error,
    },

    /// The clock for the time of heartbeats cannot be read.
    #[error("failed to read the monotonic clock")]
    Clock {
        /// Error of `clock_gettime`.
        source: io::Error,
    },

    /// A mutation test requests a mechanism that does not exist.
    #[cfg(feature = "mutants")]
    #[error("there is no mechanism {name} to switch off")]
    UnknownMutant {
        /// The name in `Options::mutant`.
        name: String,
    },

    /// One or more steps of a removal failed. All other steps succeeded.
    #[error("failed to remove {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Self>),
}
