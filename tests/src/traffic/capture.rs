//! Captures those frames of a device that match a filter.

use super::frame::Ipv4;
use crate::lab::netns::Netns;
use crate::lab::wait;
use crate::packet::{Direction, FRAME_MAX, PacketSocket};
use anyhow::{Context as _, Result, bail};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A captured frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Time at which the capture read the frame from its socket.
    pub at: Instant,
    /// Whether the device received or sent the frame.
    pub direction: Direction,
    /// The bytes of the frame, including the Ethernet header.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// Returns the IPv4 packet in the frame, `None` if the frame contains another protocol.
    pub fn ipv4(&self) -> Option<Ipv4<'_>> {
        Ipv4::in_frame(&self.bytes)
    }
}

/// A running capture. Dropping the value stops the capture.
#[derive(Debug)]
pub struct Capture {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    frames: Mutex<Vec<Frame>>,
    seen: AtomicU64,
    stop: AtomicBool,
}

impl Capture {
    /// Starts to capture the frames on `device` for which `filter` returns `true`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such device.
    pub fn start(
        netns: &Netns,
        device: &str,
        filter: impl Fn(&Frame) -> bool + Send + 'static,
    ) -> Result<Self> {
        let socket = PacketSocket::open(netns, device)?;
        let shared = Arc::new(Shared::default());
        let worker = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || capture(&socket, &shared, filter))
        };

        Ok(Self {
            shared,
            worker: Some(worker),
        })
    }

    /// Starts to capture the IPv4 packets on `device` for which `filter` returns `true`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such device.
    pub fn packets(
        netns: &Netns,
        device: &str,
        filter: impl Fn(&Ipv4<'_>) -> bool + Send + 'static,
    ) -> Result<Self> {
        Self::start(netns, device, move |frame| {
            frame.ipv4().is_some_and(|packet| filter(&packet))
        })
    }

    /// Returns a copy of the frames that have been captured so far.
    pub fn frames(&self) -> Vec<Frame> {
        let frames = self.shared.frames.lock();
        frames.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of frames that have matched so far, including frames that were not
    /// stored.
    pub fn seen(&self) -> u64 {
        self.shared.seen.load(Ordering::Relaxed)
    }

    /// Waits until `count` frames have matched.
    ///
    /// # Errors
    ///
    /// Returns an error if fewer frames have matched after `timeout`.
    pub fn wait_for(&self, count: u64, timeout: Duration) -> Result<()> {
        let what = format!("{count} frames");
        wait::until(timeout, &what, || Ok(self.seen() >= count))
    }

    /// Stops the capture, and returns at most [`FRAMES_MAX`] captured frames.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket failed during the capture.
    pub fn finish(mut self) -> Result<Vec<Frame>> {
        self.end()?;
        let mut frames = self
            .shared
            .frames
            .lock()
            .unwrap_or_else(PoisonError::into_inner);

        Ok(std::mem::take(&mut frames))
    }

    fn end(&mut self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let Some(worker) = self.worker.take() else {
            return Ok(());
        };
        match worker.join() {
            Ok(outcome) => outcome.context("the capture failed"),
            Err(_) => bail!("the capture panicked"),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "a capture failed");
        }
    }
}

fn capture(socket: &PacketSocket, shared: &Shared, filter: impl Fn(&Frame) -> bool) -> Result<()> {
    let mut buffer = vec![0; FRAME_MAX];
    loop {
        // Read the flag before the socket, so that all frames sent before the stop are captured.
        let last = shared.stop.load(Ordering::Relaxed);
        while let Some((length, direction)) = socket.receive(&mut buffer)? {
            let frame = Frame {
                at: Instant::now(),
                direction,
                bytes: buffer[..length].to_owned(),
            };
            if filter(&frame) {
                shared.seen.fetch_add(1, Ordering::Relaxed);
                let mut frames = shared.frames.lock().unwrap_or_else(PoisonError::into_inner);
                if frames.len() < FRAMES_MAX {
                    frames.push(frame);
                }
            }
        }
        if last {
            return Ok(());
        }
        socket.wait(IDLE)?;
    }
}

/// Maximum number of frames that a capture stores. Later frames are only counted.
pub const FRAMES_MAX: usize = 100_000;

/// Interval at which an idle capture checks whether it must stop.
const IDLE: Duration = Duration::from_millis(20);
