//! UDP sockets that send and receive many datagrams per system call.
//!
//! A run is a sequence of datagrams with the same destination and length, of which only the last
//! may be shorter. One system call sends a run with `UDP_SEGMENT` (Linux 4.18), and one system call
//! receives a run with `UDP_GRO` (Linux 5.0).
//!
//! If the kernel rejects a run, the socket sends the datagrams one by one:
//!
//! - If the device has no checksum offload, the socket sends no further runs.
//! - If the path's MTU is too small, the socket sends no run with datagrams of this or a larger
//!   length to the destination for [`NARROW_FOR`].

#![expect(
    unsafe_code,
    reason = "nix allocates memory for each message, libc does not"
)]

mod lanes;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrLike as _, SockaddrStorage,
    bind, getsockname, setsockopt, socket, sockopt,
};
use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Maximum number of datagrams in a run: the smallest `UDP_MAX_SEGMENTS` of all kernels.
pub(crate) const RUN_DATAGRAMS_MAX: usize = 64;

/// Maximum length of a run in bytes: the maximum UDP payload over IPv4.
pub(crate) const RUN_BYTES_MAX: usize = 65_507;

/// Maximum length of a datagram or run that one system call receives, in bytes.
pub(crate) const RECEIVE_MAX: usize = 65_535;

/// Size of the socket buffers in bytes. It suffices for bursts of about 6 ms at 10 Gb/s.
const BUFFER_BYTES: usize = 8 << 20;

/// Time for which a socket sends no runs of the same or a larger datagram length to a destination,
/// after the kernel has rejected a run because of the path's MTU.
const NARROW_FOR: Duration = Duration::from_secs(60);

/// Maximum number of entries in [`UdpPort::narrow`]; the socket clears a full map.
const NARROW_MAX: usize = 1024;

/// A UDP socket bound to a port.
pub(crate) struct UdpPort {
    socket: OwnedFd,
    /// True if the socket supports IPv6 and IPv4, false if it supports IPv4 only.
    dual_stack: bool,
    /// Whether the socket sends runs.
    segmentation: bool,
    /// Destinations for which the kernel rejected a run, with the length of the run's datagrams.
    /// Until the given time, the socket sends no run with datagrams of this or a larger length.
    narrow: BTreeMap<SocketAddr, (usize, Instant)>,
}

/// The reason why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// Another process uses the port.
    #[error(
        "UDP port {0} is in use in this network namespace: stop the other process, or choose another --listen-port"
    )]
    InUse(u16),

    /// The port is reserved for privileged processes.
    #[error("UDP port {0} needs CAP_NET_BIND_SERVICE: choose a --listen-port from 1024 on")]
    Privileged(u16),

    /// The kernel rejected a request for another reason.
    #[error("failed to open UDP port {port}")]
    Io {
        /// The requested port; 0 for any free port.
        port: u16,
        source: Errno,
    },
}

/// The datagram or run that one system call received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// Length of all datagrams together, in bytes.
    pub(crate) len: usize,
    /// Length of each datagram except the last, in bytes; at least 1.
    pub(crate) segment: usize,
    pub(crate) from: SocketAddr,
}

impl UdpPort {
    /// Opens `port` for IPv4 and, if available, IPv6. If `port` is 0, opens any free port.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] if the port is in use or the kernel rejects a request.
    pub(crate) fn open(port: u16) -> Result<Self, OpenError> {
        Self::open_as(port, false)
    }

    /// Opens `port`; with `shared`, sets `SO_REUSEPORT`.
    fn open_as(port: u16, shared: bool) -> Result<Self, OpenError> {
        let error = |source| {
            if source == Errno::EADDRINUSE {
                OpenError::InUse(port)
            } else if source == Errno::EACCES {
                OpenError::Privileged(port)
            } else {
                OpenError::Io { port, source }
            }
        };
        let (socket, dual_stack) = match open_v6(port, shared) {
            Ok(socket) => (socket, true),
            // The kernel or the network namespace has no IPv6.
            Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) => {
                (open_v4(port, shared).map_err(error)?, false)
            }
            Err(source) => return Err(error(source)),
        };

        // Errors of these options are ignored, since the options only improve throughput.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES);
        let _ = setsockopt(&socket, sockopt::SndBufForce, &BUFFER_BYTES);
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        let segmentation = setsockopt(&socket, sockopt::UdpGsoSegment, &0).is_ok();
        let mut port = Self {
            socket,
            dual_stack,
            segmentation,
            narrow: BTreeMap::new(),
        };
        port.discover_mtu(libc::IP_PMTUDISC_DONT).map_err(error)?;

        Ok(port)
    }

    /// Returns the port number to which the socket is bound.
    fn port(&self) -> Result<u16, Errno> {
        let name: SockaddrStorage = getsockname(self.socket.as_raw_fd())?;
        let v6 = name.as_sockaddr_in6().map(SockaddrIn6::port);
        let v4 = name.as_sockaddr_in().map(SockaddrIn::port);
        v6.or(v4).ok_or(Errno::EAFNOSUPPORT)
    }

    /// Sets an option of `SOL_SOCKET` that the crate nix lacks.
    fn set<T>(&self, option: libc::c_int, value: &T) -> Result<(), Errno> {
        // SAFETY: the kernel reads only the bytes of `value`, which lives during the call.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                std::ptr::from_ref(value).cast(),
                socklen::<T>(),
            )
        };
        Errno::result(result).map(drop)
    }

    /// Sends one datagram; with `dont_fragment`, sets the flag don't fragment (DF).
    ///
    /// # Errors
    ///
    /// Returns the kernel's error, such as `EMSGSIZE` if a datagram with DF exceeds the device's
    /// MTU.
    pub(crate) fn send(
        &mut self,
        to: SocketAddr,
        datagram: &[u8],
        dont_fragment: bool,
    ) -> Result<(), Errno> {
        if !dont_fragment {
            return self.transmit(to, datagram, None);
        }

        self.discover_mtu(libc::IP_PMTUDISC_PROBE)?;
        let sent = self.transmit(to, datagram, None);
        self.discover_mtu(libc::IP_PMTUDISC_DONT)?;
        sent
    }

    /// Sends a run of datagrams of `segment` bytes, the last of which may be shorter.
    ///
    /// Calls `failed` with each error and the number of datagrams that were not sent because of it.
    pub(crate) fn send_run(
        &mut self,
        to: SocketAddr,
        run: &[u8],
        segment: u16,
        mut failed: impl FnMut(Errno, usize),
    ) {
        let len = usize::from(segment);
        if run.len() > len && self.takes_runs(to, len) {
            match self.transmit(to, run, Some(segment)) {
                Ok(()) => return,
                // EIO means that the device has no checksum offload.
                Err(Errno::EIO) => {
                    self.segmentation = false;
                    tracing::warn!("UDP segmentation is off: the device has no checksum offload");
                }
                Err(Errno::EINVAL | Errno::EMSGSIZE) => self.note_narrow(to, len),
                Err(error) => return failed(error, run.len().div_ceil(len)),
            }
        }
        for datagram in run.chunks(len) {
            if let Err(error) = self.transmit(to, datagram, None) {
                failed(error, 1);
            }
        }
    }

    /// Receives a datagram or a run into `buffer`; returns `None` if none is available.
    ///
    /// `buffer` must have at least [`RECEIVE_MAX`] bytes.
    ///
    /// # Errors
    ///
    /// Returns the pending error of the socket, which the call clears.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Option<Receipt>, Errno> {
        let mut name = MaybeUninit::<libc::sockaddr_in6>::zeroed();
        let mut control = Control::default();
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: a `msghdr` of zero bytes is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_namelen = socklen::<libc::sockaddr_in6>();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        // The type of the field differs between C libraries, so the cast infers it.
        message.msg_controllen = control.0.len() as _;

        // SAFETY: `name`, `part`, `buffer` and `control` outlive the call, and `message` has their
        // lengths.
        let result = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
        let len = match Errno::result(result) {
            Ok(len) => usize::try_from(len).expect("the length is not negative"),
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error),
        };
        let segment = gro_segment(&message).filter(|segment| *segment > 0);
        // SAFETY: `name` was initialized with zero bytes, which are a valid `sockaddr_in6`.
        let name = unsafe { name.assume_init() };

        Ok(Some(Receipt {
            len,
            segment: segment.unwrap_or(len).max(1),
            from: parse(&name),
        }))
    }

    fn takes_runs(&self, to: SocketAddr, len: usize) -> bool {
        self.segmentation
            && (self.narrow.is_empty()
                || self
                    .narrow
                    .get(&to)
                    .is_none_or(|(narrow, until)| len < *narrow || *until <= Instant::now()))
    }

    fn note_narrow(&mut self, to: SocketAddr, len: usize) {
        if self.narrow.len() == NARROW_MAX {
            self.narrow.clear();
        }
        self.narrow.insert(to, (len, Instant::now() + NARROW_FOR));
    }

    fn transmit(&self, to: SocketAddr, bytes: &[u8], segment: Option<u16>) -> Result<(), Errno> {
        if self.dual_stack {
            let to = SockaddrIn6::from(mapped(to));
            self.sendmsg(to.as_ptr().cast(), to.len(), bytes, segment)
        } else if let SocketAddr::V4(to) = to {
            let to = SockaddrIn::from(to);
            self.sendmsg(to.as_ptr().cast(), to.len(), bytes, segment)
        } else {
            Err(Errno::EAFNOSUPPORT)
        }
    }

    fn sendmsg(
        &self,
        name: *const libc::sockaddr,
        name_len: libc::socklen_t,
        bytes: &[u8],
        segment: Option<u16>,
    ) -> Result<(), Errno> {
        let mut control = Control::default();
        let mut part = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: a `msghdr` of zero bytes is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = name.cast_mut().cast();
        message.msg_namelen = name_len;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        if let Some(segment) = segment {
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = put_gso_segment(&mut control, segment) as _;
        }

        loop {
            // SAFETY: all memory to which `message` points outlives the call, and the call only
            // reads it.
            let result = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, 0) };
            match Errno::result(result) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sets path MTU discovery (`IP_MTU_DISCOVER`), and thus the flag DF of all later datagrams.
    fn discover_mtu(&mut self, how: libc::c_int) -> Result<(), Errno> {
        let set = |level, option| {
            // SAFETY: the kernel reads only the bytes of `how`, which lives during the call.
            let result = unsafe {
                libc::setsockopt(
                    self.socket.as_raw_fd(),
                    level,
                    option,
                    (&raw const how).cast(),
                    socklen::<libc::c_int>(),
                )
            };
            Errno::result(result).map(drop)
        };
        if self.dual_stack {
            // IPV6_MTU_DISCOVER and IP_MTU_DISCOVER have the same values.
            set(libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER)?;
        }
        set(libc::SOL_IP, libc::IP_MTU_DISCOVER)
    }
}

impl AsFd for UdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        Self::other(error)
    }
}

/// A buffer for one control message; its alignment is at least that of `cmsghdr`.
#[repr(C, align(8))]
#[derive(Default)]
struct Control([u8; 32]);

const FLAGS: SockFlag = SockFlag::SOCK_CLOEXEC.union(SockFlag::SOCK_NONBLOCK);

fn open_v6(port: u16, shared: bool) -> Result<OwnedFd, Errno> {
    let socket = socket(AddressFamily::Inet6, SockType::Datagram, FLAGS, None)?;
    setsockopt(&socket, sockopt::ReusePort, &shared)?;
    setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
    bind(socket.as_raw_fd(), &SockaddrIn6::from(any))?;
    Ok(socket)
}

fn open_v4(port: u16, shared: bool) -> Result<OwnedFd, Errno> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, FLAGS, None)?;
    setsockopt(&socket, sockopt::ReusePort, &shared)?;
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    bind(socket.as_raw_fd(), &SockaddrIn::from(any))?;
    Ok(socket)
}

fn mapped(address: SocketAddr) -> SocketAddrV6 {
    match address {
        SocketAddr::V4(v4) => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0),
        SocketAddr::V6(v6) => v6,
    }
}

/// Parses the address of a sender; converts an IPv4-mapped IPv6 address to IPv4.
fn parse(name: &libc::sockaddr_in6) -> SocketAddr {
    if libc::c_int::from(name.sin6_family) == libc::AF_INET6 {
        let ip = IpAddr::from(name.sin6_addr.s6_addr).to_canonical();
        let port = u16::from_be(name.sin6_port);
        return match ip {
            IpAddr::V4(_) => SocketAddr::new(ip, port),
            IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, name.sin6_scope_id).into(),
        };
    }

    // SAFETY: `sockaddr_in` is not longer than `sockaddr_in6`, does not need a larger alignment,
    // and is valid for any bytes.
    let v4 = unsafe { *(&raw const *name).cast::<libc::sockaddr_in>() };
    let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
    SocketAddr::new(ip.into(), u16::from_be(v4.sin_port))
}

/// Writes a control message `UDP_SEGMENT` to `control`; returns its length in bytes.
fn put_gso_segment(control: &mut Control, segment: u16) -> u32 {
    let len = u32::try_from(size_of::<u16>()).expect("the size is 2");
    // SAFETY: both functions only compute lengths.
    let (message_len, space) = unsafe { (libc::CMSG_LEN(len), libc::CMSG_SPACE(len)) };
    // SAFETY: a `cmsghdr` of zero bytes is valid.
    let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
    header.cmsg_len = message_len as _;
    header.cmsg_level = libc::SOL_UDP;
    header.cmsg_type = libc::UDP_SEGMENT;
    let at = control.0.as_mut_ptr();
    // SAFETY: `Control` has the alignment of the header, and its 32 bytes are enough for header and
    // value. `CMSG_DATA` only computes a pointer.
    unsafe {
        at.cast::<libc::cmsghdr>().write(header);
        libc::CMSG_DATA(at.cast())
            .cast::<u16>()
            .write_unaligned(segment);
    }
    space
}

/// Returns the length of each datagram of a received run except the last; `None` for a single
/// datagram.
fn gro_segment(message: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has initialized `msg_control` up to `msg_controllen`, and the buffer still
    // lives.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_UDP, libc::UDP_GRO) {
        return None;
    }
    // SAFETY: the data of `UDP_GRO` is an `int` (net/ipv4/udp.c, udp_cmsg_recv).
    let segment = unsafe {
        libc::CMSG_DATA(header)
            .cast::<libc::c_int>()
            .read_unaligned()
    };
    usize::try_from(segment).ok()
}

fn socklen<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("the type is small")
}

#[cfg(test)]
mod tests;
