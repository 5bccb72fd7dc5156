//! Distributes WireGuard messages over sockets that share a UDP port, so that each message reaches
//! the active worker of its lane.

use crate::error::Error;
use crate::object::{self, LISTEN_PROGRAM, REPLY_PROGRAM};
use aya::Ebpf;
use aya::maps::{Array, Map, MapData};
use ebpf_common::maps::{ACTIVE_WORKERS, WORKERS};
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// The programs that select the socket of each datagram if several sockets share a port, and the
/// maps of these programs.
///
/// The caller attaches the programs with `SO_ATTACH_REUSEPORT_EBPF`.
pub struct SocketSteering {
    listen: OwnedFd,
    reply: OwnedFd,
    active_workers: MapData,
    workers: Array<MapData, u32>,
}

impl SocketSteering {
    /// Loads the programs, and takes their maps out of the loaded object file.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Program`] if the kernel rejects a program, and [`Error::Missing`] if the
    /// object file lacks a program or map.
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Self, Error> {
        let listen = object::socket_filter(ebpf, LISTEN_PROGRAM)?;
        let reply = object::socket_filter(ebpf, REPLY_PROGRAM)?;
        let Some(Map::Array(active_workers)) = ebpf.take_map(ACTIVE_WORKERS) else {
            return Err(Error::Missing {
                name: ACTIVE_WORKERS,
            });
        };
        let workers = ebpf.take_map(WORKERS);
        let workers = workers.and_then(|map| Array::try_from(map).ok());

        Ok(Self {
            listen,
            reply,
            active_workers,
            workers: workers.ok_or(Error::Missing { name: WORKERS })?,
        })
    }

    /// Returns the program for the listening port, which has a socket for each worker of each lane.
    ///
    /// The program selects a socket by number, in the order in which the caller binds the sockets.
    /// The caller must bind the socket of the first worker of each lane, in the order of the lanes,
    /// then the sockets of the second workers, and so on.
    pub fn listen_program(&self) -> BorrowedFd<'_> {
        self.listen.as_fd()
    }

    /// Returns the program for the port of a lane, which has a socket for each worker of the lane.
    ///
    /// The caller must bind the sockets in the order of the workers.
    pub fn reply_program(&self) -> BorrowedFd<'_> {
        self.reply.as_fd()
    }

    /// Returns the map with the [`ActiveWorker`](ebpf_common::maps::ActiveWorker) of each lane, for
    /// `mmap`.
    pub fn active_workers(&self) -> BorrowedFd<'_> {
        self.active_workers.fd().as_fd()
    }

    /// Sets the worker that may become active when a packet arrives on `cpu`, in all lanes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel refuses the update.
    pub fn set_worker(&mut self, cpu: u32, worker: u32) -> Result<(), Error> {
        let set = self.workers.set(cpu, worker, 0);
        set.map_err(|source| Error::Map {
            map: WORKERS,
            source: Box::new(source),
        })
    }
}

impl fmt::Debug for SocketSteering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SocketSteering")
    }
}
