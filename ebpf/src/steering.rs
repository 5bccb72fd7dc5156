//! Distributes packets to peers over the queues of the TAP, so that each packet reaches the active
//! worker of a lane.

use crate::error::Error;
use crate::object::{self, STEER_PROGRAM};
use aya::Ebpf;
use aya::maps::{HashMap, MapData, MapError};
use ebpf_common::maps::LANES;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// The program that selects the queue of a TAP, and its map from peer to lanes.
///
/// Packets for a peer without an entry in the map go to the first lane.
pub struct Steering {
    program: OwnedFd,
    lanes: HashMap<MapData, [u8; 2], u32>,
}

impl Steering {
    /// Loads the program, and takes its map out of the loaded object file.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Program`] if the kernel rejects the program, and [`Error::Missing`] if the
    /// object file lacks the program or map.
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Self, Error> {
        let program = object::socket_filter(ebpf, STEER_PROGRAM)?;
        let lanes = ebpf.take_map(LANES);
        let lanes = lanes.and_then(|map| HashMap::try_from(map).ok());

        Ok(Self {
            program,
            lanes: lanes.ok_or(Error::Missing { name: LANES })?,
        })
    }

    /// Returns the loaded program, for `TUNSETSTEERINGEBPF`.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Sets the bitmap of the lanes that may carry packets to `peer`. Zero means the first lane
    /// only.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel refuses the update.
    pub fn set(&mut self, peer: u16, lanes: u32) -> Result<(), Error> {
        let peer = peer.to_be_bytes();
        let set = if lanes == 0 {
            match self.lanes.remove(&peer) {
                Err(MapError::KeyNotFound) => Ok(()),
                removed => removed,
            }
        } else {
            self.lanes.insert(peer, lanes, 0)
        };
        set.map_err(|source| Error::Map {
            map: LANES,
            source: Box::new(source),
        })
    }
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steering")
    }
}
