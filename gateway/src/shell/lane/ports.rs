//! The descriptors of a lane: the TAP's queues, the UDP ports, and the eventfd that wakes a worker.

use super::stats::{Drop, Stats};
use crate::engine::{PortId, Transmit};
use crate::shell::outbox::Route;
use crate::shell::tap::Tap;
use crate::shell::udp::{OpenError, UdpPort};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::EventFd;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

/// Maximum number of ready descriptors that a wake-up handles.
pub(super) const READY_MAX: usize = 32;

/// [`EpollEvent::data`] of the TAP.
pub(super) const TAP: u64 = u64::MAX;

/// [`EpollEvent::data`] of the eventfd. All values other than [`TAP`] and `WAKE` are port numbers.
pub(super) const WAKE: u64 = u64::MAX - 1;

/// Returns the port of an event that is neither [`TAP`] nor [`WAKE`].
pub(super) fn id(data: u64) -> PortId {
    PortId(u32::try_from(data).unwrap_or(u32::MAX))
}

/// All open ports, and an epoll instance for each worker.
pub(super) struct Ports {
    epolls: Vec<Arc<Epoll>>,
    wake: Arc<EventFd>,
    /// The sockets of each port, one for each worker. All workers send through the first socket.
    ports: BTreeMap<PortId, Vec<UdpPort>>,
    /// The program that chooses a worker's socket for each received datagram; `None` for a single
    /// worker.
    reuseport_program: Option<OwnedFd>,
}

impl Ports {
    /// Creates an epoll instance for each worker.
    ///
    /// The instance watches the worker's queue from `taps`, the worker's socket from `listen`, and
    /// `wake`.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error if the process has no free descriptors.
    pub(super) fn new(
        taps: &[Tap],
        wake: Arc<EventFd>,
        listen: Vec<UdpPort>,
        reuseport_program: Option<OwnedFd>,
    ) -> Result<Self, Errno> {
        let mut epolls = Vec::new();
        for tap in taps {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            epoll.add(tap, EpollEvent::new(EpollFlags::EPOLLIN, TAP))?;
            // Without `EPOLLEXCLUSIVE`, each write to the eventfd would wake all workers.
            let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
            epoll.add(&wake, EpollEvent::new(flags, WAKE))?;
            epolls.push(Arc::new(epoll));
        }
        let mut ports = Self {
            epolls,
            wake,
            ports: BTreeMap::new(),
            reuseport_program,
        };
        ports.insert(PortId::LISTEN, listen)?;

        Ok(ports)
    }

    /// Returns the epoll instances, ordered by worker.
    pub(super) fn epolls(&self) -> Vec<Arc<Epoll>> {
        self.epolls.clone()
    }

    /// Wakes one worker that waits, or else the next worker that starts to wait.
    pub(super) fn wake(&self) {
        let _ = self.wake.write(1); // Fails only if an earlier wake-up is pending.
    }

    pub(super) fn clear_wake(&self) {
        let _ = self.wake.read(); // Fails if another worker has cleared the eventfd already.
    }

    pub(super) fn open(&mut self, id: PortId) -> Result<(), OpenError> {
        let reuseport_program = self
            .reuseport_program
            .as_ref()
            .map(|program| program.as_fd());
        let port = UdpPort::open_all(0, self.epolls.len(), reuseport_program)?;
        self.insert(id, port)
            .map_err(|source| OpenError::Io { port: 0, source })
    }

    /// Closes the sockets of a port; the kernel removes closed descriptors from epoll instances.
    pub(super) fn close(&mut self, id: PortId) {
        self.ports.remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.ports.len()
    }

    /// Returns the socket of a port for `worker`; `None` if the port is closed.
    pub(super) fn get(&self, id: PortId, worker: usize) -> Option<&UdpPort> {
        self.ports.get(&id)?.get(worker)
    }

    fn first(&mut self, id: PortId) -> Option<&mut UdpPort> {
        self.ports.get_mut(&id)?.first_mut()
    }

    /// Sends a datagram of the engine that contains no packet, such as a handshake message or a
    /// probe.
    pub(super) fn send(&mut self, transmit: &Transmit, stats: &mut Stats) {
        let Some(port) = self.first(transmit.port) else {
            return stats.count(Drop::PortClosed);
        };
        match port.send(transmit.to, &transmit.datagram, transmit.dont_fragment) {
            Ok(()) => stats.sent.record(transmit.datagram.len()),
            Err(error) => stats.count_refused(error, 1),
        }
    }

    /// Returns a function that sends a run of datagrams from an
    /// [`Outbox`](crate::shell::outbox::Outbox).
    pub(super) fn sender<'a>(
        &'a mut self,
        stats: &'a mut Stats,
    ) -> impl FnMut(Route, &[u8], usize) + 'a {
        |(id, to), run, segment| {
            let Some(port) = self.first(id) else {
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

    fn insert(&mut self, id: PortId, port: Vec<UdpPort>) -> Result<(), Errno> {
        for (epoll, socket) in self.epolls.iter().zip(&port) {
            epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, id.into()))?;
        }
        self.ports.insert(id, port);
        Ok(())
    }
}
