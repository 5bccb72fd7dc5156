//! Segmentation and coalescing of super-packets.
//!
//! One read or write of the TAP carries up to 64 KiB of a flow, which makes the crossing
//! between kernel and process ten times cheaper per byte. On the wire the same bytes are packets of
//! the path's MTU: [`split`] segments, [`coalesce`] coalesces, [`fragment`] and [`icmp`] handle
//! packets longer than the MTU. PURE: buffers in, buffers out.
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
