//! Receives and sends raw frames of a device through a packet socket (packet(7)).

use crate::lab::netns::Netns;
use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvfrom, sendto,
    setsockopt, socket, sockopt,
};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::Duration;

/// A socket that receives all frames that a device receives or sends, and sends raw frames.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    address: LinkAddr,
}

/// The direction of a frame, relative to the device's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The device has received the frame.
    In,
    /// The device has sent the frame.
    Out,
}

impl PacketSocket {
    /// Opens a socket on `device` in the namespace `netns`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such device.
    pub fn open(netns: &Netns, device: &str) -> Result<Self> {
        netns.run(|| Self::open_here(device)).with_context(|| {
            format!(
                "failed to open a packet socket on {device} in {}",
                netns.name()
            )
        })
    }

    /// Opens a socket on `device` in the current thread's namespace.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such device.
    pub fn open_here(device: &str) -> Result<Self> {
        // The crate nix has no other safe constructor for a link-layer address.
        let address = nix::ifaddrs::getifaddrs()?
            .filter(|entry| entry.interface_name == device)
            .find_map(|entry| entry.address?.as_link_addr().copied())
            .context("no such device")?;
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::EthAll,
        )?;
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES)?;
        setsockopt(&socket, sockopt::SndBufForce, &BUFFER_BYTES)?;
        bind(socket.as_raw_fd(), &address)?;

        Ok(Self { socket, address })
    }

    /// Returns the MAC address that the device had when the socket was opened.
    pub fn mac(&self) -> [u8; 6] {
        self.address.addr().unwrap_or_default()
    }

    /// Waits until a frame can be received. Returns `false` if none arrives within `timeout`.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses to poll.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        // Rounding down would turn a wait of less than a millisecond into a busy loop.
        let millis = timeout.as_micros().div_ceil(1000);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error).context("failed to poll"),
        }
    }

    /// Copies the next frame into `buffer`, and returns its length and direction. Returns `None` if
    /// no frame is queued.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails. A device that is down is not an error.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<(usize, Direction)>> {
        loop {
            match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), buffer) {
                Ok((length, from)) => {
                    let from = from.context("a frame has an address")?;
                    // Before `bind`, the socket has received frames of all devices. Skip them.
                    if from.ifindex() != self.address.ifindex() {
                        continue;
                    }
                    let outgoing = i32::from(from.pkttype()) == PACKET_OUTGOING;
                    let direction = if outgoing {
                        Direction::Out
                    } else {
                        Direction::In
                    };
                    return Ok(Some((length, direction)));
                }
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR | Errno::ENETDOWN) => {}
                Err(error) => return Err(error).context("failed to receive a frame"),
            }
        }
    }

    /// Sends a frame. Returns `false` if the device has not accepted the frame.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails. A full queue, a frame larger than the MTU, and a
    /// device that is down are not errors.
    pub fn send(&self, frame: &[u8]) -> Result<bool> {
        let flags = MsgFlags::empty();
        match sendto(self.socket.as_raw_fd(), frame, &self.address, flags) {
            Ok(_) => Ok(true),
            Err(
                Errno::EAGAIN | Errno::ENOBUFS | Errno::EMSGSIZE | Errno::ENETDOWN | Errno::ENXIO,
            ) => Ok(false),
            Err(error) => Err(error).context("failed to send a frame"),
        }
    }
}

/// Size of the socket's buffers in bytes, for bursts while the reading thread is not scheduled.
const BUFFER_BYTES: usize = 16 << 20;

/// Packet type of frames that the device sends, from `linux/if_packet.h`.
const PACKET_OUTGOING: i32 = 4;

/// Buffer size in bytes that exceeds the length of every frame, including GSO frames before
/// segmentation.
pub const FRAME_MAX: usize = 128 << 10;
