//! Spreads datagrams over the sockets of a port, one for each worker of each lane.

use crate::error::Error;
use crate::object::{self, LISTEN_PROGRAM, REPLY_PROGRAM};
use aya::Ebpf;
use aya::maps::{Array, Map, MapData};
use ebpf_common::maps::{TURNS, WORKERS};
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Programs that choose among the sockets of a port (`SO_ATTACH_REUSEPORT_EBPF`), and which worker
/// serves which CPU.
pub struct Turns {
    listen: OwnedFd,
    reply: OwnedFd,
    turns: MapData,
    workers: Array<MapData, u32>,
}

impl Turns {
    /// Has the verifier look at the programs.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the kernel refuses.
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Self, Error> {
        let listen = object::socket_filter(ebpf, LISTEN_PROGRAM)?;
        let reply = object::socket_filter(ebpf, REPLY_PROGRAM)?;
        let Some(Map::Array(turns)) = ebpf.take_map(TURNS) else {
            return Err(Error::Missing { name: TURNS });
        };
        let workers = ebpf.take_map(WORKERS);
        let workers = workers.and_then(|map| Array::try_from(map).ok());

        Ok(Self {
            listen,
            reply,
            turns,
            workers: workers.ok_or(Error::Missing { name: WORKERS })?,
        })
    }

    /// For the listening port, which has a socket for each worker of each lane: all lanes of the
    /// first worker come first.
    pub fn listen_program(&self) -> BorrowedFd<'_> {
        self.listen.as_fd()
    }

    /// For a port that is one lane's, which has a socket for each of its workers.
    pub fn reply_program(&self) -> BorrowedFd<'_> {
        self.reply.as_fd()
    }

    /// The map with a [`Turn`](ebpf_common::maps::Turn) for each lane, to be mapped.
    pub fn turns(&self) -> BorrowedFd<'_> {
        self.turns.fd().as_fd()
    }

    /// Says which worker serves what comes on a CPU.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel refuses.
    pub fn set_worker(&mut self, cpu: u32, worker: u32) -> Result<(), Error> {
        let set = self.workers.set(cpu, worker, 0);
        set.map_err(|source| Error::Map {
            map: WORKERS,
            source: Box::new(source),
        })
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turns")
    }
}
