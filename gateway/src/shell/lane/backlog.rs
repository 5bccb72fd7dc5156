//! Frames of the TAP that wait for their encryption.
//!
//! To read a super-packet takes a fifth of the time of its encryption. So a lane reads ahead, and a small frame overtakes the
//! super-packets of other flows: its delay is the time to read what is before it. Frames of a flow keep their order.

use super::batching::SMALL_MAX;
use std::collections::VecDeque;

/// Maximum number of frames that wait.
///
/// A fast sender keeps 20 to 50 super-packets in flight, so most of them are read at once. All buffers have 2 MiB.
const FRAMES_MAX: usize = 32;

/// Maximum number of frames that overtake between two frames that wait. A flow that sends more has to wait, too, so that it
/// neither starves those that wait, nor delays a flow of fewer packets.
const OVERTAKING_MAX: u8 = 16;

/// Number of groups of flows. A small frame does not overtake a frame of its group.
const GROUPS: usize = 256;

/// A queue of frames, and the buffers for them.
pub(super) struct Backlog {
    buffers: Vec<Box<[u8]>>,
    /// Buffers without a frame. The last one was used last, so that it is in the CPU's cache.
    free: Vec<usize>,
    waiting: VecDeque<Waiting>,
    /// Number of waiting frames by group of flows.
    groups: [u8; GROUPS],
    /// Number of frames that have overtaken since the last waiting frame was removed.
    overtaken: u8,
}

/// A frame in one of the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Index of the buffer.
    pub(super) buffer: usize,
    /// Length of the frame in bytes.
    pub(super) len: usize,
    group: u8,
}

impl Backlog {
    /// Creates an empty queue with buffers of `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        Self {
            // The kernel provides the pages of a buffer when it is used for the first time.
            buffers: vec![vec![0; len].into_boxed_slice(); FRAMES_MAX],
            free: (0..FRAMES_MAX).rev().collect(),
            waiting: VecDeque::with_capacity(FRAMES_MAX),
            groups: [0; GROUPS],
            overtaken: 0,
        }
    }

    /// Returns the index of a buffer for the next frame; `None` if [`FRAMES_MAX`] frames wait.
    pub(super) fn room(&self) -> Option<usize> {
        self.free.last().copied()
    }

    /// Returns the contents of a buffer.
    pub(super) fn buffer(&mut self, buffer: usize) -> &mut [u8] {
        &mut self.buffers[buffer]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Decides whether a frame of `len` bytes, of the flow with this hash, is sent at once.
    pub(super) fn overtakes(&mut self, len: usize, flow: u32) -> bool {
        if len > SMALL_MAX || self.groups[usize::from(group(flow))] > 0 {
            return false;
        }
        if self.waiting.is_empty() {
            return true;
        }
        let may_overtake = self.overtaken < OVERTAKING_MAX;
        self.overtaken += u8::from(may_overtake);

        may_overtake
    }

    /// Adds the frame of `len` bytes in the buffer of [`Backlog::room`], of the flow with this hash.
    pub(super) fn push(&mut self, len: usize, flow: u32) {
        let Some(buffer) = self.free.pop() else {
            return;
        };
        let group = group(flow);
        self.groups[usize::from(group)] += 1;
        self.waiting.push_back(Waiting { buffer, len, group });
    }

    /// Removes the first frame. Its contents stay in its buffer until the next frame is read.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.groups[usize::from(waiting.group)] -= 1;
        self.overtaken = 0;
        self.free.push(waiting.buffer);

        Some(waiting)
    }
}

fn group(flow: u32) -> u8 {
    flow.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LARGE: usize = SMALL_MAX + 1;

    #[test]
    fn small_frames_overtake_other_flows_only() {
        let mut backlog = Backlog::new(4);
        assert!(backlog.overtakes(64, 1));
        assert!(!backlog.overtakes(LARGE, 1));

        backlog.push(LARGE, 1);
        backlog.push(LARGE, 1);
        assert!(!backlog.overtakes(64, 1));
        assert!(backlog.overtakes(64, 2));

        backlog.pop();
        assert!(!backlog.overtakes(64, 1), "one of its frames waits");
        backlog.pop();
        assert!(backlog.overtakes(64, 1));
    }

    #[test]
    fn a_flood_of_small_frames_waits_and_a_flow_of_few_still_overtakes() {
        let (bulk, flood, few) = (1, 2, 3);
        let mut backlog = Backlog::new(4);
        backlog.push(LARGE, bulk);
        backlog.push(LARGE, bulk);
        let sent = (0..100).take_while(|_| backlog.overtakes(64, flood));
        assert_eq!(sent.count(), usize::from(OVERTAKING_MAX));

        backlog.push(64, flood);
        backlog.pop();
        assert!(!backlog.overtakes(64, flood), "one of its frames waits");
        assert!(backlog.overtakes(64, few));
    }

    #[test]
    fn the_number_of_frames_is_limited() {
        let mut backlog = Backlog::new(4);
        for _ in 0..FRAMES_MAX {
            assert!(backlog.room().is_some());
            backlog.push(LARGE, 7);
        }
        assert_eq!(backlog.room(), None);

        let first = backlog.pop().unwrap();
        assert_eq!(backlog.room(), Some(first.buffer));
    }

    /// Sends frames as a lane does: each has a flow and a length, and its number is its content. `reads` are the numbers of
    /// frames that are read before one that waits is sent.
    fn sent(frames: &[(u32, usize)], reads: &[usize]) -> Vec<usize> {
        let mut backlog = Backlog::new(size_of::<usize>());
        let mut sent = Vec::new();
        let mut unread = frames.iter().enumerate();
        for reads in reads.iter().cycle() {
            for _ in 0..*reads {
                let Some(buffer) = backlog.room() else { break };
                let Some((number, &(flow, len))) = unread.next() else {
                    break;
                };
                backlog
                    .buffer(buffer)
                    .copy_from_slice(&number.to_le_bytes());
                match backlog.overtakes(len, flow) {
                    true => sent.push(number),
                    false => backlog.push(len, flow),
                }
            }
            match backlog.pop() {
                Some(frame) => {
                    let content = backlog.buffer(frame.buffer).as_array().copied();
                    sent.push(usize::from_le_bytes(content.unwrap()));
                }
                None if unread.len() == 0 => break,
                None => {}
            }
        }
        sent
    }

    proptest! {
        #[test]
        fn every_frame_is_sent_once_and_flows_keep_their_order(
            frames in prop::collection::vec((0_u32..600, prop::sample::select(vec![64, LARGE])), 0..200),
            reads in prop::collection::vec(1_usize..50, 1..8),
        ) {
            let sent = sent(&frames, &reads);

            let mut sorted = sent.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..frames.len()).collect::<Vec<_>>());
            for flow in 0..600 {
                let of_flow: Vec<_> = sent.iter().filter(|it| frames[**it].0 == flow).collect();
                prop_assert!(of_flow.is_sorted());
            }
        }
    }
}
