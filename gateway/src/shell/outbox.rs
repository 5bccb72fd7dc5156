//! Collects encrypted datagrams into runs.
//!
//! A run is a sequence of datagrams with the same destination and length, of which only the last
//! may be shorter. `UDP_SEGMENT` sends a run in one system call.

use super::udp::{RUN_BYTES_MAX, RUN_DATAGRAMS_MAX};
use crate::engine::PortId;
use crate::offload::frame::PACKET_MAX;
use std::net::SocketAddr;

/// Maximum length of a datagram that the kernel sends, in bytes.
pub(crate) const DATAGRAM_MAX: usize = RUN_BYTES_MAX;

/// Maximum length of a datagram from the engine, in bytes: packet, WireGuard header, padding and
/// tag.
///
/// It exceeds [`DATAGRAM_MAX`]. The kernel rejects such datagrams, and the lane counts the drops.
const SEALED_MAX: usize = PACKET_MAX + 48;

/// Local port and remote address of a datagram.
pub(crate) type Route = (PortId, SocketAddr);

/// The datagrams of the current run.
///
/// A datagram with another route or a larger length starts a new run. A shorter datagram ends the
/// current run. A run may contain datagrams of several super-packets. The caller writes each
/// datagram directly after the previous datagram, so that most datagrams are never copied.
pub(crate) struct Outbox {
    buffer: Box<[u8]>,
    /// Length of the run in bytes.
    used: usize,
    /// Number of datagrams in the run.
    count: usize,
    /// Length of each datagram except the last, in bytes.
    segment: usize,
    route: Option<Route>,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; RUN_BYTES_MAX + SEALED_MAX].into_boxed_slice(),
            used: 0,
            count: 0,
            segment: 0,
            route: None,
        }
    }

    /// Returns the buffer for the next datagram; the caller fills it before [`Outbox::push`].
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.used..]
    }

    /// Adds a datagram, whose `len` bytes are in the buffer of [`Outbox::room`].
    ///
    /// Passes complete runs to `send`: route, bytes, and length of each datagram except the last.
    pub(crate) fn push(
        &mut self,
        route: Route,
        len: usize,
        send: &mut impl FnMut(Route, &[u8], usize),
    ) {
        let start = self.used;
        let continues =
            self.route == Some(route) && len <= self.segment && start + len <= RUN_BYTES_MAX;
        if !continues && self.count > 0 {
            self.flush(send);
            self.buffer.copy_within(start..start + len, 0);
        }
        if self.count == 0 {
            self.route = Some(route);
            self.segment = len;
        }
        self.used += len;
        self.count += 1;
        // A run that has no space for another datagram of this length is sent at once. Otherwise
        // `push` would have to copy the next datagram to the start of the buffer.
        let is_full = self.count == RUN_DATAGRAMS_MAX || self.used + self.segment > RUN_BYTES_MAX;
        if len < self.segment || is_full {
            self.flush(send);
        }
    }

    /// Passes the current run to `send`, even if it is incomplete.
    pub(crate) fn flush(&mut self, send: &mut impl FnMut(Route, &[u8], usize)) {
        if let Some(route) = self.route.take() {
            send(route, &self.buffer[..self.used], self.segment);
        }
        self.used = 0;
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_datagrams_and_a_shorter_last_one_are_one_run() {
        assert_eq!(runs(&[(1, 100), (1, 100), (1, 60)]), [(1, 260, 100)]);
        assert_eq!(
            runs(&[(1, 100), (1, 60), (1, 60)]),
            [(1, 160, 100), (1, 60, 60)]
        );
        assert_eq!(runs(&[(1, 60), (1, 100)]), [(1, 60, 60), (1, 100, 100)]);
    }

    #[test]
    fn another_destination_starts_another_run() {
        assert_eq!(
            runs(&[(1, 100), (2, 100), (2, 100)]),
            [(1, 100, 100), (2, 200, 100)]
        );
    }

    #[test]
    fn a_run_stays_within_both_limits() {
        let small = runs(&[(1, 10); 100]);
        assert_eq!(small, [(1, 640, 10), (1, 360, 10)]);

        let large = runs(&[(1, 1500); 60]);
        assert!(large.iter().all(|(_, bytes, _)| *bytes <= RUN_BYTES_MAX));
        assert_eq!(
            large.iter().map(|(_, bytes, _)| bytes).sum::<usize>(),
            90_000
        );
    }

    #[test]
    fn a_full_run_is_sent() {
        let mut outbox = Outbox::new();
        let mut sent = Vec::new();
        let mut send = |_, run: &[u8], segment: usize| sent.push(run.len() / segment);

        // Simulates two super-packets of 50 segments each.
        for _ in 0..2 * 50 {
            outbox.push(route(1), 1372, &mut send);
        }

        assert_eq!(sent, [47, 47], "the last six datagrams are not sent yet");
    }

    #[test]
    fn every_byte_arrives_in_order() {
        let mut outbox = Outbox::new();
        let mut sent = Vec::new();
        let mut send = |_, run: &[u8], _| sent.extend_from_slice(run);
        let mut expected = Vec::new();

        for at in 0..200_u8 {
            let len = 50 + usize::from(at % 7);
            outbox.room()[..len].fill(at);
            expected.extend(std::iter::repeat_n(at, len));
            outbox.push(route(at % 3), len, &mut send);
        }
        outbox.flush(&mut send);

        assert_eq!(sent, expected);
    }

    fn runs(datagrams: &[(u8, usize)]) -> Vec<(u8, usize, usize)> {
        let mut outbox = Outbox::new();
        let mut sent = Vec::new();
        let mut send = |(_, to): Route, run: &[u8], segment| {
            sent.push((u8::try_from(to.port()).unwrap(), run.len(), segment));
        };
        for (to, len) in datagrams {
            outbox.push(route(*to), *len, &mut send);
        }
        outbox.flush(&mut send);
        sent
    }

    fn route(to: u8) -> Route {
        (PortId::LISTEN, ([192, 0, 2, 1], u16::from(to)).into())
    }
}
