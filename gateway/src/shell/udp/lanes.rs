//! A UDP port with several sockets, one for each worker that receives datagrams at the port.
//!
//! An eBPF program chooses the socket of each received datagram by number. The kernel numbers the
//! sockets in the order in which they were bound (`SO_ATTACH_REUSEPORT_EBPF`, socket(7)).

use super::{OpenError, UdpPort};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use std::os::fd::{AsRawFd as _, BorrowedFd};

impl UdpPort {
    /// Opens `count` sockets at `port`, and attaches `program`. If `port` is 0, uses any free port.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] if the port is in use or the kernel rejects a request.
    pub(crate) fn open_all(
        port: u16,
        count: usize,
        program: Option<BorrowedFd<'_>>,
    ) -> Result<Vec<Self>, OpenError> {
        // The first socket is bound without `SO_REUSEPORT`. With this option, the gateway could
        // silently share the port of another process.
        let first = Self::open(port)?;
        if count == 1 {
            return Ok(vec![first]);
        }
        let io = |source| OpenError::Io { port, source };
        setsockopt(&first.socket, sockopt::ReusePort, &true).map_err(io)?;
        let number = first.port().map_err(io)?;
        let mut all = vec![first];
        for _ in 1..count {
            all.push(Self::open_as(number, true)?);
        }
        if let (Some(first), Some(program)) = (all.first(), program) {
            first.attach(program).map_err(io)?;
        }

        Ok(all)
    }

    /// Attaches the eBPF program that chooses the socket of each datagram to this port.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
    pub(crate) fn attach(&self, program: BorrowedFd<'_>) -> Result<(), Errno> {
        self.set(libc::SO_ATTACH_REUSEPORT_EBPF, &program.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::AsFd as _;

    const TIMEOUT_MS: u16 = 10_000;

    /// Sends a datagram to the port; returns the number of the socket that received it.
    fn receiver(sender: &UdpSocket, ports: &[UdpPort]) -> usize {
        let to = (Ipv4Addr::LOCALHOST, ports[0].port().unwrap());
        sender.send_to(b"a message", to).unwrap();
        let mut ready: Vec<_> = ports
            .iter()
            .map(|port| PollFd::new(port.as_fd(), PollFlags::POLLIN))
            .collect();
        assert_eq!(poll(&mut ready, PollTimeout::from(TIMEOUT_MS)), Ok(1));
        let place = ready.iter().position(|it| it.any() == Some(true)).unwrap();
        let mut buffer = vec![0; super::super::RECEIVE_MAX];
        assert!(ports[place].receive(&mut buffer).unwrap().is_some());

        place
    }

    #[test]
    fn all_sockets_have_the_same_port() {
        let ports = UdpPort::open_all(0, 3, None).unwrap();
        let numbers: BTreeSet<_> = ports.iter().map(|it| it.port().unwrap()).collect();
        assert_eq!(numbers.len(), 1);

        // Without a program, the kernel chooses the socket by the address of the sender.
        let places: BTreeSet<_> = (0..100)
            .map(|_| {
                let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                receiver(&sender, &ports)
            })
            .collect();
        assert_eq!(places, BTreeSet::from([0, 1, 2]));
    }

    #[test]
    fn a_port_in_use_is_not_shared_silently() {
        let ports = UdpPort::open_all(0, 2, None).unwrap();
        let number = ports[0].port().unwrap();

        let error = UdpPort::open_all(number, 2, None).err().unwrap();
        assert!(matches!(error, OpenError::InUse(port) if port == number));
    }
}
