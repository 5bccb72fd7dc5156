//! A replacement for the engine, which returns each packet to this cluster as a packet of the peer.
//!
//! The peer has the same addresses as this cluster. Therefore two sockets of the node communicate
//! through the overlay, the programs and the TAP. Each socket receives packets from the remapped
//! address of the other socket.

use super::lab::PEER;
use super::tap::{Tap, VNET_HEADER};
use ebpf::Settings;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Statistics of the returned frames.
#[derive(Default)]
pub(super) struct Seen {
    /// Number of frames.
    pub(super) frames: AtomicUsize,
    /// Length of the longest frame, in bytes.
    pub(super) longest: AtomicUsize,
}

/// Runs `work` while the mirror returns frames.
pub(super) fn with_mirror<T>(tap: &Tap, work: impl FnOnce(&Seen) -> T) -> T {
    let seen = Seen::default();
    let is_done = AtomicBool::new(false);

    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                match tap.read() {
                    Some(frame) => return_frame(tap, frame, &seen),
                    None => thread::yield_now(),
                }
            }
        });
        // The guard stops the thread even if `work` panics. Otherwise the scope would never end.
        let _stop = StopOnDrop(&is_done);
        work(&seen)
    })
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn return_frame(tap: &Tap, mut frame: Vec<u8>, seen: &Seen) {
    let settings = Settings::default();
    let (destination, source) = (
        VNET_HEADER..VNET_HEADER + 6,
        VNET_HEADER + 6..VNET_HEADER + 12,
    );
    if frame[destination.clone()] != settings.peer_mac(PEER) {
        return;
    }

    frame[destination].copy_from_slice(&settings.node_mac);
    frame[source].copy_from_slice(&settings.peer_mac(PEER));
    seen.frames.fetch_add(1, Ordering::Relaxed);
    seen.longest.fetch_max(frame.len(), Ordering::Relaxed);
    assert!(tap.write(&frame), "the kernel rejects a frame that it sent");
}
