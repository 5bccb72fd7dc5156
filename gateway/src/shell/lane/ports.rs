//! The loop's descriptors: TAP, UDP ports, and what wakes it.

use super::stats::{Drop, Stats};
use crate::engine::{PortId, Transmit};
use crate::shell::outbox::Route;
use crate::shell::tap::Tap;
use crate::shell::udp::{OpenError, UdpPort};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What [`EpollEvent::data`] says of the TAP and of the waker; all else are ports.
pub(super) const TAP: u64 = u64::MAX;
pub(super) const WAKE: u64 = u64::MAX - 1;

/// The port of an event that is neither [`TAP`] nor [`WAKE`].
pub(super) fn id(data: u64) -> PortId {
    PortId(u32::try_from(data).unwrap_or(u32::MAX))
}

/// All open ports, and the one place to wait for any descriptor.
pub(super) struct Ports {
    epoll: Epoll,
    wake: Arc<EventFd>,
    ports: BTreeMap<PortId, UdpPort>,
    /// Sees every datagram that arrives.
    program: Option<OwnedFd>,
}

impl Ports {
    pub(super) fn new(tap: &Tap, wake: Arc<EventFd>, listen: UdpPort) -> Result<Self, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(tap, EpollEvent::new(EpollFlags::EPOLLIN, TAP))?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let mut ports = Self {
            epoll,
            wake,
            ports: BTreeMap::new(),
            program: None,
        };
        ports.insert(PortId::LISTEN, listen)?;

        Ok(ports)
    }

    /// Has `program` see every datagram that arrives at these ports and at later ones.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
    pub(super) fn attach(&mut self, program: BorrowedFd<'_>) -> Result<(), Errno> {
        for port in self.ports.values() {
            port.attach(program)?;
        }
        let program = program.try_clone_to_owned();
        self.program = Some(
            program.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?,
        );
        Ok(())
    }

    pub(super) fn wait(
        &self,
        ready: &mut [EpollEvent],
        timeout: EpollTimeout,
    ) -> Result<usize, Errno> {
        self.epoll.wait(ready, timeout)
    }

    /// Has the next wait end at once.
    pub(super) fn wake(&self) {
        let _ = self.wake.write(1); // EAGAIN: the counter is full.
    }

    pub(super) fn clear_wake(&self) {
        let _ = self.wake.read(); // EAGAIN: cleared already.
    }

    pub(super) fn open(&mut self, id: PortId) -> Result<(), OpenError> {
        let port = UdpPort::open(0)?;
        self.insert(id, port)
            .map_err(|source| OpenError::Io { port: 0, source })
    }

    /// Closes a port; its descriptor leaves the waiting with it.
    pub(super) fn close(&mut self, id: PortId) {
        self.ports.remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.ports.len()
    }

    pub(super) fn get(&self, id: PortId) -> Option<&UdpPort> {
        self.ports.get(&id)
    }

    /// Sends a datagram of the engine's own.
    pub(super) fn send(&mut self, transmit: &Transmit, stats: &mut Stats) {
        let Some(port) = self.ports.get_mut(&transmit.port) else {
            return stats.count(Drop::PortClosed);
        };
        match port.send(transmit.to, &transmit.datagram, transmit.dont_fragment) {
            Ok(()) => stats.sent.record(transmit.datagram.len()),
            Err(error) => stats.count_refused(error, 1),
        }
    }

    /// Returns what sends the outbox's runs.
    pub(super) fn sender<'a>(
        &'a mut self,
        stats: &'a mut Stats,
    ) -> impl FnMut(Route, &[u8], usize) + 'a {
        |(id, to), run, segment| {
            let Some(port) = self.ports.get_mut(&id) else {
                return stats.count(Drop::PortClosed);
            };
            let Ok(segment) = u16::try_from(segment) else {
                return stats.count(Drop::SendFailed);
            };
            stats.sent.record(run.len());
            port.send_run(to, run, segment, |error, datagrams| {
                stats.count_refused(error, datagrams);
            });
        }
    }

    fn insert(&mut self, id: PortId, port: UdpPort) -> Result<(), Errno> {
        if let Some(program) = &self.program {
            port.attach(program.as_fd())?;
        }
        self.epoll
            .add(&port, EpollEvent::new(EpollFlags::EPOLLIN, id.into()))?;
        self.ports.insert(id, port);
        Ok(())
    }
}
