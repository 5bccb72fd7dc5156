//! Forwards frames from the TAP through the engine to the UDP ports.

use super::stats::Drop;
use super::{Error, Lane, OFFSET};
use crate::engine::SessionId;
use crate::mutant;
use crate::offload::fragment::Fragments;
use crate::offload::frame::{self, HEADROOM};
use crate::offload::icmp;
use crate::offload::ipv4;
use crate::offload::split::{self, Split};
use crate::offload::vnet;
use crate::shell::outbox::{DATAGRAM_MAX, Route};
use budget::ReadBudget;
use std::time::{Duration, Instant};

mod budget;

/// Length of WireGuard's data header and authentication tag, in bytes.
const OVERHEAD: usize = 32;

/// WireGuard pads a packet to a multiple of this length, in bytes.
const PADDING: usize = 16;

/// Rate limit of ICMP "fragmentation needed" messages per lane.
const REPLIES_PER_SECOND: u32 = 1000;

/// Maximum number of frames that are discarded per queue, which is far above the length of a queue.
const OLD_FRAMES_MAX: usize = 100_000;

/// Buffers for fragments and ICMP errors, and the rate limiter of ICMP errors.
pub(super) struct Scratch {
    fragment: Box<[u8]>,
    /// Buffer for a frame with an ICMP error.
    reply: [u8; HEADROOM + icmp::LEN_MAX],
    /// Number of ICMP errors since `second`, including those that exceeded the limit.
    replies: u32,
    /// Start of the current interval of one second.
    second: Instant,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self {
            fragment: vec![0; frame::PACKET_MAX].into_boxed_slice(),
            reply: [0; HEADROOM + icmp::LEN_MAX],
            replies: 0,
            second: Instant::now(),
        }
    }

    /// Counts an ICMP error; returns false if it exceeds [`REPLIES_PER_SECOND`].
    fn may_reply(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.replies = 0;
        }
        self.replies += 1;
        self.replies <= REPLIES_PER_SECOND
    }
}

impl Lane {
    /// Reads frames from the TAP, and sends their packets, up to the budget of a wake-up.
    ///
    /// Epoll is level-triggered, so frames that remain on the TAP cause another wake-up, and so do
    /// frames in the backlog by [`Lane::timeout`].
    pub(super) fn read_tap(&mut self) -> Result<(), Error> {
        let is_single = self.frame_batching.begin(self.now);
        let mut budget = ReadBudget::default();
        while !budget.is_spent() {
            self.read_ahead(&mut budget, is_single)?;
            let Some(frame) = self.backlog.pop() else {
                break;
            };
            self.spend(&mut budget, frame.buffer, frame.len);
        }
        self.frame_batching.end(budget.is_at_most_one_small_frame());
        self.outbox.flush(&mut self.ports.sender(&mut self.stats));

        Ok(())
    }

    /// Reads frames from the TAP into the backlog, and sends those that may overtake.
    fn read_ahead(&mut self, budget: &mut ReadBudget, is_single: bool) -> Result<(), Error> {
        let mut has_overtaken = false;
        while !budget.is_spent()
            && let Some((buffer, len)) = self.read_frame()?
        {
            let packet = &self.backlog.buffer(buffer)[OFFSET..OFFSET + len];
            let flow = packet.get(HEADROOM..).map_or(0, ipv4::flow_hash);
            if !self.backlog.overtakes(len, flow) {
                self.backlog.push(len, flow);
                continue;
            }
            self.spend(budget, buffer, len);
            has_overtaken |= !self.backlog.is_empty();
            if is_single && budget.is_at_most_one_small_frame() {
                break;
            }
        }
        if has_overtaken {
            self.outbox.flush(&mut self.ports.sender(&mut self.stats));
        }

        Ok(())
    }

    /// Sends the packets of a frame in a buffer of the backlog.
    fn spend(&mut self, budget: &mut ReadBudget, buffer: usize, len: usize) {
        let segments = self.send_frame(buffer, len).unwrap_or_else(|drop| {
            self.stats.count(drop);
            0
        });
        budget.spend(len, segments);
    }

    /// Discards the frames that an earlier process left on the TAP.
    ///
    /// The peer indices in these frames may refer to other peers now.
    pub(super) fn discard_old_frames(&mut self) -> Result<(), Error> {
        for worker in 0..self.taps.len() {
            self.worker = worker;
            for _ in 0..OLD_FRAMES_MAX {
                if self.read_frame()?.is_none() {
                    break;
                }
                self.stats.count(Drop::OldFrame);
            }
        }
        Ok(())
    }

    /// Reads a frame into a free buffer. Returns the index of the buffer, and the length of the
    /// frame in bytes; `None` if there is no frame or no buffer.
    fn read_frame(&mut self) -> Result<Option<(usize, usize)>, Error> {
        let (Some(tap), Some(buffer)) = (self.taps.get(self.worker), self.backlog.room()) else {
            return Ok(None);
        };
        let frame = &mut self.backlog.buffer(buffer)[OFFSET..];
        let len = tap.read(frame).map_err(Error::TapGone)?;

        Ok(len.map(|len| (buffer, len)))
    }

    /// Sends the packets of a frame to the peer whose index is in the destination MAC address.
    ///
    /// `len` is the length in bytes of the frame in `buffer`. Returns the number of packets in the
    /// frame, including packets whose encryption failed.
    ///
    /// # Errors
    ///
    /// Returns the reason why the whole frame is dropped.
    fn send_frame(&mut self, buffer: usize, len: usize) -> Result<usize, Drop> {
        let Self {
            engine,
            outbox,
            ports,
            stats,
            backlog,
            ..
        } = self;
        let frame = &mut backlog.buffer(buffer)[OFFSET..OFFSET + len];
        let peer = frame::destination(frame, &self.settings).ok_or(Drop::ForeignFrame)?;
        let vnet = vnet::Header::parse(frame).ok_or(Drop::MalformedFrame)?;
        stats.read.record(len - HEADROOM);
        let packet = &mut frame[HEADROOM..];
        let hash = ipv4::flow_hash(packet);
        let destination = ipv4::destination(packet);
        let mut split = Split::new(vnet, packet)?;

        let mut segments = 0;
        let Some(session) = engine.select(peer, hash, destination) else {
            while let Some(segment) = split.next() {
                engine.queue(peer, segment, self.now);
                segments += 1;
            }
            return Ok(segments);
        };
        let route = engine.destination(session).ok_or(Drop::NotSealed)?;
        let mtu = engine.mtu(session).ok_or(Drop::NotSealed)?;
        let segment_len = split.segment_len();
        if segment_len > usize::from(mtu) && !mutant::disables("mtu") {
            return Ok(self.fragment_or_reject(peer, session, (route, mtu), (buffer, len)));
        }
        let sealed_len = segment_len.next_multiple_of(PADDING) + OVERHEAD;
        if sealed_len > DATAGRAM_MAX {
            return Err(Drop::TooBig);
        }

        let mut send = ports.sender(stats);
        let mut unsealed = 0;
        while let Some(segment) = split.next() {
            match engine.seal(session, segment, outbox.room()) {
                Some(len) => outbox.push(route, len, &mut send),
                None => unsealed += 1,
            }
            segments += 1;
        }
        drop(send);
        for _ in 0..unsealed {
            stats.count(Drop::NotSealed);
        }

        Ok(segments)
    }

    /// Sends fragments of all segments of a frame, because the longest exceeds `mtu` bytes.
    ///
    /// If a segment must not be fragmented, replies to it with an ICMP error instead, and ignores
    /// the rest of the frame. Returns the number of fragments.
    fn fragment_or_reject(
        &mut self,
        peer: u16,
        session: SessionId,
        (route, mtu): (Route, u16),
        (buffer, len): (usize, usize),
    ) -> usize {
        let frame = &mut self.backlog.buffer(buffer)[OFFSET..OFFSET + len];
        let Some(mut vnet) = vnet::Header::parse(frame) else {
            return 0;
        };
        // The first `Split::new`, in `send_frame`, has already completed the checksum.
        vnet.partial = None;
        let Ok(mut split) = Split::new(vnet, &mut frame[HEADROOM..]) else {
            return 0;
        };
        let mut send = self.ports.sender(&mut self.stats);
        let mut sealed = 0;
        let mut failed = 0_u64;
        while let Some(segment) = split.next() {
            let Some(mut fragments) = Fragments::new(segment, mtu) else {
                drop(send);
                let reply = &mut self.scratch.reply;
                let reply_len = icmp::too_big(segment, mtu, &mut reply[HEADROOM..]);
                self.reply(peer, reply_len);
                return sealed;
            };
            while let Some(len) = fragments.next(&mut self.scratch.fragment) {
                let fragment = &self.scratch.fragment[..len];
                match self.engine.seal(session, fragment, self.outbox.room()) {
                    Some(len) => self.outbox.push(route, len, &mut send),
                    None => failed += 1,
                }
                sealed += 1;
            }
        }
        drop(send);
        for _ in 0..failed {
            self.stats.count(Drop::NotSealed);
        }

        sealed
    }

    /// Writes the ICMP error of `len` bytes to the TAP, as a packet from `peer`.
    ///
    /// If `len` is `None` or the rate limit is exceeded, writes nothing. In both cases, counts the
    /// dropped packet.
    fn reply(&mut self, peer: u16, len: Option<usize>) {
        let Some(len) = len.filter(|_| self.scratch.may_reply(self.now)) else {
            return self.stats.count(Drop::TooBigUnanswered);
        };
        self.stats.count(Drop::TooBig);
        let frame = &mut self.scratch.reply[..HEADROOM + len];
        frame[..vnet::LEN].copy_from_slice(&vnet::Header::default().encode());
        frame::write_ethernet(frame, &self.settings, peer);
        let tap = self.taps.get(self.worker);
        if tap.is_none_or(|tap| tap.write(frame).is_err()) {
            self.stats.count(Drop::TapWrite);
        }
    }
}

impl From<split::Error> for Drop {
    fn from(error: split::Error) -> Self {
        match error {
            split::Error::Malformed => Self::MalformedFrame,
            split::Error::TooManySegments => Self::TooManySegments,
        }
    }
}
