//! Forwards received datagrams from the UDP ports through the engine to the TAP.

use super::batching::SMALL_MAX;
use super::stats::Drop;
use super::{Lane, OFFSET};
use crate::engine::{PortId, Received};
use crate::offload::frame::HEADROOM;

/// Maximum number of receive calls per port and wake-up. Each call receives up to 64 KiB.
///
/// All calls together take about half a millisecond.
const RECEIVES_MAX: usize = 16;

impl Lane {
    /// Receives datagrams at a port in up to [`RECEIVES_MAX`] calls, and writes their packets to
    /// the TAP.
    pub(super) fn receive(&mut self, id: PortId) {
        let Self {
            engine,
            taps,
            worker,
            ports,
            coalescer,
            stats,
            datagrams,
            datagram_batching,
            now,
            ..
        } = self;
        let Some(port) = ports.get(id, *worker) else {
            return; // The port was closed after the wake-up began.
        };
        let Some(tap) = taps.get(*worker) else {
            return;
        };
        let datagrams = &mut datagrams[OFFSET..];
        let mut failed = 0_u64;
        let written = &mut stats.written;
        let mut write = |frame: &[u8]| match tap.write(frame) {
            Ok(()) => written.record(frame.len() - HEADROOM),
            Err(_) => failed += 1,
        };

        let is_single = datagram_batching.begin(*now);
        let mut receipts = 0;
        let mut is_bulk = false;
        for _ in 0..RECEIVES_MAX {
            let receipt = match port.receive(datagrams) {
                Ok(Some(receipt)) => receipt,
                Ok(None) => break,
                Err(_) => continue, // The call has returned and cleared a pending ICMP error.
            };
            stats.received.record(receipt.len);
            if receipt.len == 0 {
                // `chunks_mut` below yields no item for an empty datagram, but the engine must
                // count the datagram.
                engine.handle_datagram(id, receipt.from, &mut [], coalescer.room(), *now);
            }
            for datagram in datagrams[..receipt.len].chunks_mut(receipt.segment) {
                let out = coalescer.room();
                match engine.handle_datagram(id, receipt.from, datagram, out, *now) {
                    Received::Packet { peer, len } => coalescer.push(peer, len, &mut write),
                    Received::Nothing => {}
                }
            }
            receipts += 1;
            is_bulk |= receipt.len > SMALL_MAX.min(receipt.segment);
            if is_single && !is_bulk {
                break;
            }
        }
        datagram_batching.end(receipts <= 1 && !is_bulk);
        coalescer.flush(&mut write);

        for _ in 0..failed {
            stats.count(Drop::TapWrite);
        }
    }
}
