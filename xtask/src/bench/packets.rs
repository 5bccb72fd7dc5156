//! Measures the rate of UDP datagrams that a tunnel carries, and the processor time per datagram.

use super::ends::Ends;
use super::measure::{Values, named};
use super::rate_search::Search;
use super::{metric, process};
use ::tests::traffic::rate::{self, Carried, Offer};
use anyhow::{Context as _, Result};
use std::time::Duration;

/// A rate counts as carried if at most this percentage of its datagrams is lost.
const LOSS_PERCENT_MAX: f64 = 1.0;

/// Maximum number of attempts at one rate. A rate is tried again after a failure, because another
/// process may have caused the failure.
const TRIES: u32 = 2;

/// Maximum ratio of the actual to the planned duration of sending. Above this ratio, the sender is
/// too slow for the rate.
const DELAY_MAX: f64 = 1.05;

/// The duration of sending at one rate, as a share of the measurement's duration. A search tries
/// about twelve rates, so it takes longer than the measurement's duration.
const SHARE: f64 = 1.0 / 8.0;

/// The minimum duration of sending at one rate. A shorter duration gives inexact results, because
/// the kernel counts processor time in steps of 10 ms.
const OFFER_MIN: Duration = Duration::from_millis(250);

/// Searches for the highest rate at which the tunnel carries datagrams with `payload_bytes` of
/// payload.
///
/// # Errors
///
/// Returns an error if no datagram arrives, or if a gateway has ended.
pub(super) fn carried(ends: &Ends, payload_bytes: usize, seconds: u32) -> Result<Values> {
    let duration = Duration::from_secs_f64(f64::from(seconds) * SHARE).max(OFFER_MIN);
    let mut search = Search::default();
    let mut best: Option<(Carried, [f64; 2])> = None;
    while let Some(per_second) = search.rate() {
        let offer = Offer {
            per_second,
            payload_bytes,
            duration,
        };
        let mut is_carried = false;
        for _ in 0..TRIES {
            let (carried, used) = try_once(ends, offer)?;
            if carried.loss_percent() > LOSS_PERCENT_MAX {
                continue;
            }
            // If the sender was too slow for the rate, the result is still valid for the lower rate
            // at which it sent: the tunnel carried these datagrams.
            if best.is_none_or(|(best, _)| carried.per_second() > best.per_second()) {
                best = Some((carried, used));
            }
            if carried.duration <= duration.mul_f64(DELAY_MAX) {
                is_carried = true;
                break;
            }
        }
        search.handle(per_second, is_carried);
    }

    let (carried, used) = best.context("no rate is carried without loss")?;
    let per_packet = |index: usize| used[index] * 1e6 / carried.received as f64;
    Ok(named([
        (metric::KPPS, carried.per_second() / 1e3),
        (metric::PACKET_SENDER, per_packet(0)),
        (metric::PACKET_RECEIVER, per_packet(1)),
    ]))
}

fn try_once(ends: &Ends, offer: Offer) -> Result<(Carried, [f64; 2])> {
    let used = || -> Result<[f64; 2]> {
        let [client, server] = &ends.gateways;
        Ok([process::cpu_seconds(client)?, process::cpu_seconds(server)?])
    };

    let before = used()?;
    let carried = rate::offer(&ends.client, &ends.server, ends.server_address, offer)?;
    let after = used()?;

    Ok((carried, [after[0] - before[0], after[1] - before[1]]))
}
