//! Detects the loss of a session by PING and PONG.
//!
//! ```text
//!   this project:  a PING every 250 ms, without traffic every 500 ms (a setting); one without PONG is
//!                  repeated after two round trips, 100 ms at least; three PINGs without PONG
//!                  and a grace period of two round trips ---> lost
//!   upstream:      a PING every 2 s; neither PONG nor any other message for 10 s ---> lost
//!   unknown kind:  eight PINGs every 250 ms, then every 2 s; never lost, because the peer
//!                  may be plain WireGuard
//! ```
//!
//! Between gateways of this project, the side that opened the session sends the PINGs. Each one
//! states whether all earlier ones were answered, and when the next one follows. That proves to the
//! other side that both directions work, so it sends PINGs only if the next one is late.

use super::interface::Kind;
use super::probe::Heard;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Interval of PINGs between gateways of this project while the session has traffic.
pub(super) const OURS_INTERVAL: Duration = Duration::from_millis(250);
/// Delay of the other side's PING for which this side waits before it sends its own.
const LATE: Duration = Duration::from_millis(50);
/// Upper bounds of the times in a PING, which the peer may choose.
const HEARD_RTT_MAX: Duration = Duration::from_secs(10);
const HEARD_NEXT_MAX: Duration = Duration::from_secs(2);
/// Minimum time after which a PING without PONG is repeated. A dead gateway must be detected before
/// TCP's second retransmission, 600 ms after the first loss, because the third one follows only
/// 800 ms later.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Interval of PINGs to an upstream gateway. Upstream uses the same interval.
const UPSTREAM_INTERVAL: Duration = Duration::from_secs(2);
/// Time without PONG after which upstream reports an error: 5 intervals.
const UPSTREAM_THRESHOLD: Duration = Duration::from_secs(10);
/// Number of PINGs without PONG after which a session with a gateway of this project is lost.
const MISSES_MAX: u32 = 3;
/// Bounds of the grace period that follows [`MISSES_MAX`] PINGs without PONG. The grace period is
/// two round trips.
const GRACE_MIN: Duration = Duration::from_millis(50);
const GRACE_MAX: Duration = Duration::from_secs(2);
/// Grace period while no round-trip time is known.
const GRACE_UNKNOWN: Duration = Duration::from_millis(750);
/// Time after any received message during which a session does not count as lost. A full queue may
/// have dropped the PONGs.
const RECEIVE_GRACE: Duration = Duration::from_millis(300);
/// Time without PONG after which a session is lost even if other messages arrive. In this case, the
/// peer's messages arrive, but the messages of this side do not reach the peer.
const ONE_WAY_MAX: Duration = Duration::from_secs(3);
/// Number of PINGs at [`OURS_INTERVAL`] to a peer of unknown kind.
const EAGER_PINGS: u32 = 8;
/// Upper limit of remembered PINGs: 8 s at [`OURS_INTERVAL`].
const OUTSTANDING_MAX: usize = 32;

/// Probe state machine of one session.
#[derive(Debug)]
pub(super) struct Liveness {
    started: Instant,
    next_ping: Instant,
    /// Interval of PINGs to a gateway of this project.
    interval: Duration,
    /// Whether the other side sends the PINGs.
    is_passive: bool,
    pings: u32,
    outstanding: VecDeque<SentPing>,
    /// Number of PINGs sent after the last PING that a PONG acknowledged. Padded PINGs do not
    /// count.
    unanswered: u32,
    /// Time at which `unanswered` reached [`MISSES_MAX`].
    exhausted: Instant,
    last_reply: Option<Instant>,
    rtt: Option<Duration>,
}

#[derive(Debug)]
struct SentPing {
    /// Timestamp in nanoseconds since the Unix epoch.
    sent: i128,
    at: Instant,
    /// Length of the inner packet if the PING is padded to measure the path MTU.
    size: Option<u16>,
}

/// The PING that a PONG acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) rtt: Duration,
    pub(super) sent_at: Instant,
    /// Length of the inner packet if the PING was padded to measure the path MTU.
    pub(super) size: Option<u16>,
}

impl Liveness {
    /// Creates a state machine whose first PING is due at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            started: now,
            next_ping: now,
            interval: OURS_INTERVAL,
            is_passive: false,
            pings: 0,
            outstanding: VecDeque::new(),
            unanswered: 0,
            exhausted: now,
            last_reply: None,
            rtt: None,
        }
    }

    /// Resets everything except the round-trip time, after a handshake.
    pub(super) fn restart(&mut self, now: Instant) {
        let rtt = self.rtt;
        *self = Self {
            rtt,
            ..Self::new(now)
        };
    }

    /// Returns the smoothed round-trip time.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Returns whether a PONG has arrived since the last handshake.
    pub(super) fn has_reply(&self) -> bool {
        self.last_reply.is_some()
    }

    /// Returns whether messages arrive in both directions. Between gateways of this project, a second PING without PONG
    /// is the sign that they do not, unless other messages still arrive (see [`RECEIVE_GRACE`]). For other peers, the
    /// last PONG must be younger than [`UPSTREAM_THRESHOLD`]. The result determines the reported state of the
    /// connection, not the state of the session.
    pub(super) fn is_replying(&self, kind: Kind, last_received: Instant, now: Instant) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);

        self.last_reply.is_some_and(|last| match kind {
            Kind::Ours => self.is_healthy() || since(last_received) < RECEIVE_GRACE,
            Kind::Upstream | Kind::Unknown => since(last) < UPSTREAM_THRESHOLD,
        })
    }

    /// Returns whether PONGs arrive: at least one has arrived, and at most one is missing since the
    /// last one.
    pub(super) fn is_healthy(&self) -> bool {
        self.has_reply() && self.unanswered <= 1
    }

    /// Returns the number of PINGs sent since the last handshake, without the padded ones.
    #[cfg(test)]
    pub(super) fn pings(&self) -> u32 {
        self.pings
    }

    /// Makes the next PING due now.
    pub(super) fn ping_now(&mut self, now: Instant) {
        self.next_ping = now;
    }

    /// Sets the interval of PINGs to a gateway of this project, at each tick.
    pub(super) fn set_interval(&mut self, kind: Kind, interval: Duration) {
        if kind != Kind::Ours {
            return;
        }
        self.interval = interval;
        let is_unchanged = interval > OURS_INTERVAL || self.unanswered > 0;
        let Some(last) = self.last_reply.filter(|_| !is_unchanged) else {
            return;
        };
        let late = if self.is_passive {
            LATE
        } else {
            Duration::ZERO
        };
        self.next_ping = self.next_ping.min(last + OURS_INTERVAL + late);
    }

    /// Moves the next PING to the nearest tick. All sessions then send their PINGs in the same
    /// wake-up, because a wake-up costs more than a PING. The following PINGs stay aligned, because
    /// the intervals are multiples of that of the ticks, [`OURS_INTERVAL`].
    pub(super) fn handle_tick(&mut self, kind: Kind, now: Instant) {
        let wait = self.next_ping.saturating_duration_since(now);
        if kind != Kind::Ours || self.unanswered > 0 || self.is_passive || wait > OURS_INTERVAL {
            return;
        }
        self.next_ping = if wait < OURS_INTERVAL / 2 {
            self.next_ping.min(now)
        } else {
            now + OURS_INTERVAL
        };
    }

    /// Returns this side's statement for its next PING, if all earlier ones were answered.
    pub(super) fn heard(&self) -> Option<Heard> {
        let rtt = self.rtt.filter(|_| self.has_reply())?;

        (self.unanswered == 0).then_some(Heard {
            rtt,
            next: self.interval,
        })
    }

    /// Handles the statement in a PING of the other side: its PINGs were answered, so messages
    /// arrive in both directions. Returns the round-trip time.
    pub(super) fn handle_heard(&mut self, heard: Heard, now: Instant) -> Duration {
        let rtt = heard.rtt.min(HEARD_RTT_MAX);
        let next = heard.next.clamp(OURS_INTERVAL, HEARD_NEXT_MAX);
        self.unanswered = 0;
        self.last_reply = Some(now);
        self.rtt = Some(rtt);
        // A PING that is due announces something.
        if self.next_ping > now {
            self.is_passive = true;
            self.next_ping = now + next + LATE;
        }

        rtt
    }

    /// Returns whether a PING is due, and schedules the next one.
    pub(super) fn poll_ping(&mut self, kind: Kind, now: Instant) -> bool {
        if now < self.next_ping {
            return false;
        }

        let interval = match kind {
            // Repeat a PING early. If its PONG arrives first, `handle_pong` postpones the next PING
            // to the full interval.
            Kind::Ours => self.rtt.map_or(OURS_INTERVAL, |rtt| {
                (rtt * 2).clamp(RETRY_MIN, OURS_INTERVAL)
            }),
            Kind::Upstream => UPSTREAM_INTERVAL,
            Kind::Unknown if self.pings < EAGER_PINGS => OURS_INTERVAL,
            Kind::Unknown => UPSTREAM_INTERVAL,
        };
        // Count the interval from the scheduled time, so that delays do not accumulate. The lower
        // bound prevents a burst after a pause.
        self.next_ping = (self.next_ping + interval).max(now + interval / 2);
        true
    }

    /// Records a sent PING. `sent` is its timestamp in nanoseconds since the Unix epoch. `size` is
    /// the length of its inner packet, if it is padded.
    pub(super) fn handle_sent(&mut self, sent: i128, size: Option<u16>, now: Instant) {
        if self.outstanding.len() == OUTSTANDING_MAX {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back(SentPing {
            sent,
            at: now,
            size,
        });
        if size.is_none() {
            self.is_passive = false;
            self.pings = self.pings.saturating_add(1);
            self.unanswered = self.unanswered.saturating_add(1);
            if self.unanswered == MISSES_MAX {
                self.exhausted = now;
            }
        }
    }

    /// Handles the PONG of the PING with the timestamp `sent`. Returns `None` if no such PING is
    /// remembered.
    pub(super) fn handle_pong(&mut self, sent: i128, now: Instant) -> Option<Reply> {
        let position = self.outstanding.iter().position(|q| q.sent == sent)?;
        let ping = self.outstanding.remove(position)?;
        let rtt = now.saturating_duration_since(ping.at);
        if ping.size.is_none() {
            // Keep padded PINGs, because their PONGs still measure the path MTU.
            self.outstanding
                .retain(|q| q.at >= ping.at || q.size.is_some());
            let later = self.outstanding.iter().filter(|q| q.size.is_none());
            self.unanswered = 0;
            for ping in later {
                self.unanswered += 1;
                if self.unanswered == MISSES_MAX {
                    self.exhausted = ping.at;
                }
            }
            self.last_reply = Some(now);
            self.next_ping = self.next_ping.max(ping.at + self.interval);
            self.rtt = Some(self.rtt.map_or(rtt, |old| (old * 3 + rtt) / 4).max(rtt / 2));
        }

        Some(Reply {
            rtt,
            sent_at: ping.at,
            size: ping.size,
        })
    }

    /// Resets the number of missing PONGs. The engine calls this after the process was suspended.
    pub(super) fn reset_missing(&mut self) {
        self.unanswered = 0;
    }

    /// Returns the time at which the session is lost if no further message arrives. `last_received`
    /// is the time of the last authenticated message.
    pub(super) fn lost_at(&self, kind: Kind, last_received: Instant) -> Option<Instant> {
        match kind {
            Kind::Unknown => None,
            Kind::Upstream => self
                .last_reply
                .map(|last| last.max(last_received) + UPSTREAM_THRESHOLD),
            Kind::Ours if self.unanswered < MISSES_MAX => None,
            Kind::Ours => {
                let grace = self
                    .rtt
                    .map_or(GRACE_UNKNOWN, |rtt| (rtt * 2).clamp(GRACE_MIN, GRACE_MAX));
                let missed = self.exhausted + grace;
                let one_way = self.last_reply.unwrap_or(self.started) + ONE_WAY_MAX;

                Some(missed.max((last_received + RECEIVE_GRACE).min(one_way)))
            }
        }
    }

    /// Returns whether the session is lost at `now`.
    pub(super) fn is_lost(&self, kind: Kind, last_received: Instant, now: Instant) -> bool {
        self.lost_at(kind, last_received)
            .is_some_and(|at| at <= now)
    }

    /// Returns the time of the next PING or of the loss of the session, whichever is earlier.
    pub(super) fn poll_timeout(&self, kind: Kind, last_received: Instant) -> Instant {
        self.lost_at(kind, last_received)
            .map_or(self.next_ping, |at| at.min(self.next_ping))
    }
}

#[cfg(test)]
mod tests;
