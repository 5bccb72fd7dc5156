//! Segmentation and coalescing of super-packets.
//!
//! A super-packet holds up to 64 KiB of one TCP or UDP flow behind a single header (GSO and GRO in
//! the Linux kernel). One read or write of the TAP moves a whole super-packet, which makes the copy
//! between kernel and process ten times cheaper per byte.
//!
//! - [`split`] segments super-packets into packets for the tunnel.
//! - [`coalesce`] coalesces packets from the tunnel into super-packets.
//! - [`fragment`] and [`icmp`] handle packets longer than the path's MTU.
//!
//! A frame of the TAP has these headers:
//!
//! ```text
//! +---------------+----------+----------------------------------+
//! | virtio_net_hdr| Ethernet | IPv4 ...                         |
//! | 10 bytes      | 14 bytes | up to 65,535 bytes               |
//! +---------------+----------+----------------------------------+
//! ```

pub(crate) mod checksum;
pub(crate) mod coalesce;
pub(crate) mod fragment;
pub(crate) mod frame;
pub(crate) mod icmp;
pub(crate) mod ipv4;
pub(crate) mod split;
pub(crate) mod vnet;

#[cfg(test)]
mod tests;
