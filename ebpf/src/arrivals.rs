//! Tells on which CPU datagrams arrive.

use crate::error::Error;
use crate::object::{self, ARRIVAL_PROGRAM};
use aya::Ebpf;
use aya::maps::{Array, MapData};
use ebpf_common::maps::ARRIVALS;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// A program for sockets (`SO_ATTACH_BPF`) that takes every datagram and notes where it arrived.
pub struct Arrivals {
    program: OwnedFd,
    cpu: Array<MapData, u32>,
}

impl Arrivals {
    /// Has the verifier look at the program.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the kernel refuses.
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Self, Error> {
        let program = object::socket_filter(ebpf, ARRIVAL_PROGRAM)?;
        let cpu = ebpf.take_map(ARRIVALS);
        let cpu = cpu.and_then(|map| Array::try_from(map).ok());

        Ok(Self {
            program,
            cpu: cpu.ok_or(Error::Missing { name: ARRIVALS })?,
        })
    }

    /// The program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Returns the CPU on which the last datagram arrived at any of the sockets; some CPU if
    /// none has; `None` if the kernel does not tell.
    pub fn cpu(&self) -> Option<u32> {
        self.cpu.get(&0, 0).ok()
    }
}

impl fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrivals")
            .field("cpu", &self.cpu())
            .finish_non_exhaustive()
    }
}
