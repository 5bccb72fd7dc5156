//! Super-packets: taken apart for the tunnel, put together for the kernel.
//!
//! The TAP hands over up to 64 KiB of one flow in one read and takes as much in
//! one write, which makes the crossing between kernel and process ten times
//! cheaper per byte. On the wire the same bytes are packets of the path's MTU:
//! [`split`] cuts, [`coalesce`] joins, [`fragment`] and [`icmp`] answer what does
//! not fit. PURE: buffers in, buffers out.
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
