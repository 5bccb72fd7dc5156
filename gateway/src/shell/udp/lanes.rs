//! One UDP port, shared by the lanes of a gateway.
//!
//! The kernel hands each message to the lane that its index names, by the lowest byte of the
//! slot: the sender's index in an initiation, the receiver's in all others (WireGuard's
//! protocol, section 5.4). It is a program of classic BPF, on the UDP payload.

use super::{OpenError, UdpPort};
use crate::engine::LaneId;
use nix::errno::Errno;

/// The first byte of a response, whose sender's index comes before the receiver's.
const RESPONSE: u32 = 2;

/// Where the lowest byte of the slot is in a response, and in all else: the second byte of an
/// index, which is little-endian.
const SLOT_OF_RESPONSE: u32 = 9;
const SLOT: u32 = 5;

impl UdpPort {
    /// Opens `port` once for each of `of` lanes, in their order.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] if the port is taken or the kernel refuses.
    pub(crate) fn open_lanes(port: u16, of: u8) -> Result<Vec<Self>, OpenError> {
        if of == 1 {
            return Ok(vec![Self::open(port)?]);
        }
        // Another process might share the port silently.
        drop(Self::open(port)?);
        let ports: Vec<_> = LaneId::all(of)
            .map(|_| Self::open_as(port, true))
            .collect::<Result<_, _>>()?;
        if let Some(first) = ports.first() {
            let choose = first.choose_lane(of);
            choose.map_err(|source| OpenError::Io { port, source })?;
        }

        Ok(ports)
    }

    /// Has the kernel choose among the sockets of this port, which are numbered in the order in
    /// which they were bound (`SO_ATTACH_REUSEPORT_CBPF`, socket(7)).
    fn choose_lane(&self, of: u8) -> Result<(), Errno> {
        let mut program = program(of);
        let filter = libc::sock_fprog {
            len: libc::c_ushort::try_from(program.len()).expect("a few instructions"),
            filter: program.as_mut_ptr(),
        };
        // The program lives during the call, which copies it.
        self.set(libc::SO_ATTACH_REUSEPORT_CBPF, &filter)
    }
}

/// Returns the program; a message that is too short for it is the first lane's.
fn program(of: u8) -> [libc::sock_filter; 7] {
    const BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const JUMP: u32 = libc::BPF_JMP | libc::BPF_JA;
    const MODULO: u32 = libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | BPF_A;

    [
        instruction(BYTE, 0),
        libc::sock_filter {
            jt: 2,
            ..instruction(EQUAL, RESPONSE)
        },
        instruction(BYTE, SLOT),
        instruction(JUMP, 1),
        instruction(BYTE, SLOT_OF_RESPONSE),
        instruction(MODULO, of.into()),
        instruction(RETURN, 0),
    ]
}

/// Returns the accumulator (linux/filter.h; the C library leaves it out).
const BPF_A: u32 = 0x10;

fn instruction(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: u16::try_from(code).expect("16 bits"),
        jt: 0,
        jf: 0,
        k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
    use std::os::fd::AsFd as _;

    const PATIENCE: u16 = 10_000;

    /// Sends a message to the port, and returns which of the sockets got it.
    fn receiver(sender: &UdpSocket, ports: &[UdpPort], to: SocketAddr, message: &[u8]) -> usize {
        sender.send_to(message, to).unwrap();
        let mut ready: Vec<_> = ports
            .iter()
            .map(|port| PollFd::new(port.as_fd(), PollFlags::POLLIN))
            .collect();
        assert_eq!(poll(&mut ready, PollTimeout::from(PATIENCE)), Ok(1));
        let place = ready.iter().position(|it| it.any() == Some(true)).unwrap();
        let mut buffer = vec![0; super::super::RECEIVE_MAX];
        assert!(ports[place].receive(&mut buffer).unwrap().is_some());

        place
    }

    fn message(kind: u8, place_of_index: usize, slot: u32) -> Vec<u8> {
        let mut message = vec![0; 148];
        message[0] = kind;
        let index = (slot << 8 | 0x7f).to_le_bytes();
        message[place_of_index..place_of_index + 4].copy_from_slice(&index);
        message
    }

    #[test]
    fn the_kernel_hands_each_message_to_the_lane_of_its_slot() {
        let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = free.local_addr().unwrap();
        drop(free);
        let ports = UdpPort::open_lanes(to.port(), 3).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();

        for (kind, place) in [(1, 4), (2, 8), (3, 4), (4, 4)] {
            for slot in [0, 1, 2, 0x00ff_fffe, 0x00ab_cd07] {
                let lane = LaneId::all(3).find(|lane| lane.holds(slot)).unwrap();
                let message = message(kind, place, slot);
                let receiver = receiver(&sender, &ports, to, &message);
                assert_eq!(receiver, usize::from(lane.number()), "{kind} {slot:#x}");
            }
        }
        assert_eq!(receiver(&sender, &ports, to, b"short"), 0);
    }
}
