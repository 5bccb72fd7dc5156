//! From the TAP through the engine to the UDP ports.

use super::singles::SMALL_MAX;
use super::stats::Drop;
use super::{Error, Lane, OFFSET};
use crate::engine::SessionId;
use crate::mutant;
use crate::offload::fragment::Fragments;
use crate::offload::frame::{self, HEADROOM};
use crate::offload::icmp;
use crate::offload::ipv4;
use crate::offload::split::Split;
use crate::offload::vnet;
use crate::shell::outbox::{DATAGRAM_MAX, Route};
use std::time::{Duration, Instant};

/// Reads per wake-up, of super-packets of up to 64 KiB each.
const READS_MAX: usize = 16;

/// As above, of all packets: as many small ones as a run of datagrams takes.
const SMALL_READS_MAX: usize = 128;

/// WireGuard's header and tag.
const OVERHEAD: usize = 32;

/// WireGuard pads packets to a multiple of this.
const PADDING: usize = 16;

/// "Fragmentation needed" sent per second at most, over all peers.
const ANSWERS_PER_SECOND: u32 = 1000;

/// Frames that may wait on a TAP: its queue's length is far below.
const OLD_FRAMES_MAX: usize = 100_000;

/// Room for what the way outward makes itself.
pub(super) struct Scratch {
    fragment: Box<[u8]>,
    answer: [u8; HEADROOM + icmp::LEN_MAX],
    answers: u32,
    second: Instant,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self {
            fragment: vec![0; frame::PACKET_MAX].into_boxed_slice(),
            answer: [0; HEADROOM + icmp::LEN_MAX],
            answers: 0,
            second: Instant::now(),
        }
    }

    /// Tells whether one more answer may be sent in this second.
    fn may_answer(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.answers = 0;
        }
        self.answers += 1;
        self.answers <= ANSWERS_PER_SECOND
    }
}

impl Lane {
    /// Reads what waits on the TAP, up to a limit, and sends what is in it.
    pub(super) fn read_tap(&mut self) -> Result<(), Error> {
        let is_single = self.frames.begin(self.now);
        let mut reads = 0;
        let mut large = 0;
        while reads < SMALL_READS_MAX && large < READS_MAX {
            let Some(len) = self.read_frame()? else {
                break;
            };
            self.outward(len);
            reads += 1;
            large += usize::from(len > SMALL_MAX);
            if is_single && large == 0 {
                break;
            }
        }
        self.frames.end(reads <= 1 && large == 0);
        self.outbox.flush(&mut self.ports.sender(&mut self.stats));

        Ok(())
    }

    /// Throws away what an earlier process left: its peers had other numbers.
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

    fn read_frame(&mut self) -> Result<Option<usize>, Error> {
        let Some(tap) = self.taps.get(self.worker) else {
            return Ok(None);
        };
        tap.read(&mut self.frame[OFFSET..]).map_err(Error::TapGone)
    }

    /// Sends one frame of `len` bytes to the peer that it names.
    fn outward(&mut self, len: usize) {
        let Self {
            engine,
            outbox,
            ports,
            stats,
            frame,
            ..
        } = self;
        let frame = &mut frame[OFFSET..OFFSET + len];
        let Some(peer) = frame::destination(frame, &self.settings) else {
            return stats.count(Drop::ForeignFrame);
        };
        let Some(vnet) = vnet::Header::parse(frame) else {
            return stats.count(Drop::MalformedFrame);
        };
        stats.read.record(len - HEADROOM);
        let packet = &mut frame[HEADROOM..];
        let hash = ipv4::flow_hash(packet);
        let Ok(mut split) = Split::new(vnet, packet) else {
            return stats.count(Drop::MalformedFrame);
        };

        let Some(session) = engine.select(peer, hash) else {
            while let Some(segment) = split.next() {
                engine.queue(peer, segment, self.now);
            }
            return;
        };
        let (Some(route), Some(mtu)) = (engine.destination(session), engine.mtu(session)) else {
            return stats.count(Drop::NotSealed);
        };
        let segment_len = split.segment_len();
        if segment_len > usize::from(mtu) && !mutant::disables("mtu") {
            return self.too_long(peer, session, route, mtu, len);
        }
        let sealed_len = segment_len.next_multiple_of(PADDING) + OVERHEAD;
        if sealed_len > DATAGRAM_MAX {
            return stats.count(Drop::TooBig);
        }

        let mut send = ports.sender(stats);
        let mut unsealed = 0;
        while let Some(segment) = split.next() {
            match engine.seal(session, segment, outbox.room()) {
                Some(len) => outbox.push(route, len, &mut send),
                None => unsealed += 1,
            }
        }
        drop(send);
        for _ in 0..unsealed {
            stats.count(Drop::NotSealed);
        }
    }

    /// Fragments what may be fragmented, and answers what may not.
    ///
    /// The frame is untouched but for a checksum that was completed.
    fn too_long(&mut self, peer: u16, session: SessionId, route: Route, mtu: u16, len: usize) {
        let frame = &mut self.frame[OFFSET..OFFSET + len];
        let Some(mut vnet) = vnet::Header::parse(frame) else {
            return;
        };
        vnet.partial = None;
        let Ok(mut split) = Split::new(vnet, &mut frame[HEADROOM..]) else {
            return;
        };
        let mut send = self.ports.sender(&mut self.stats);
        let mut failed = 0_u64;
        while let Some(segment) = split.next() {
            let Some(mut fragments) = Fragments::new(segment, mtu) else {
                drop(send);
                let answer = &mut self.scratch.answer;
                let answered = icmp::too_big(segment, mtu, &mut answer[HEADROOM..]);
                return self.answer(peer, answered);
            };
            while let Some(len) = fragments.next(&mut self.scratch.fragment) {
                let fragment = &self.scratch.fragment[..len];
                match self.engine.seal(session, fragment, self.outbox.room()) {
                    Some(len) => self.outbox.push(route, len, &mut send),
                    None => failed += 1,
                }
            }
        }
        drop(send);
        for _ in 0..failed {
            self.stats.count(Drop::NotSealed);
        }
    }

    /// Writes an answer of `len` bytes back, as if it came from `peer`.
    fn answer(&mut self, peer: u16, len: Option<usize>) {
        let Some(len) = len.filter(|_| self.scratch.may_answer(self.now)) else {
            return self.stats.count(Drop::TooBigUnanswered);
        };
        self.stats.count(Drop::TooBig);
        let frame = &mut self.scratch.answer[..HEADROOM + len];
        frame[..vnet::LEN].copy_from_slice(&vnet::Header::default().encode());
        frame::write_ethernet(frame, &self.settings, peer);
        let tap = self.taps.get(self.worker);
        if tap.is_none_or(|tap| tap.write(frame).is_err()) {
            self.stats.count(Drop::TapWrite);
        }
    }
}
