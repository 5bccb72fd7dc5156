//! Takes one measurement of one tunnel.

use super::ends::Ends;
use super::gateways::many_idle;
use super::metric::{self, Measurement};
use super::programs::Programs;
use super::tcp_counters::TcpCounters;
use super::{handshakes, iperf, packets, ping, process};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

/// The numbers of one measurement, by the keys that [`metric`] defines.
pub(super) type Values = BTreeMap<String, f64>;

/// Takes `measurement` of the tunnel between `ends`. The measurement takes about `seconds`.
///
/// # Errors
///
/// Returns an error if a tool fails or a gateway has ended.
pub(super) fn measure(
    ends: &Ends,
    programs: &Programs,
    measurement: Measurement,
    seconds: u32,
) -> Result<Values> {
    match measurement {
        Measurement::TcpX1 => tcp(ends, 1, Direction::Forth, seconds),
        Measurement::TcpX1Back => tcp(ends, 1, Direction::Back, seconds),
        Measurement::TcpX4 => tcp(ends, 4, Direction::Forth, seconds),
        Measurement::TcpX4Back => tcp(ends, 4, Direction::Back, seconds),
        Measurement::TcpX16 => tcp(ends, 16, Direction::Forth, seconds),
        Measurement::TcpBoth => tcp(ends, 1, Direction::Both, seconds),
        Measurement::Udp64 => packets::carried(ends, 64, seconds),
        Measurement::Udp1200 => packets::carried(ends, 1200, seconds),
        Measurement::RttIdle => rtt_idle(ends, seconds),
        Measurement::RttLoaded => rtt_loaded(ends, seconds),
        Measurement::Handshakes => handshakes::measure(ends.tunnel, programs, seconds),
        Measurement::Idle => {
            Ok(idle(&[&ends.gateways], Duration::from_secs(seconds.into()))?.remove(0))
        }
        Measurement::IdlePeers => many_idle(Duration::from_secs(seconds.into())),
        Measurement::Memory => memory(ends),
        Measurement::Start => started(ends),
    }
}

/// Measures the processor time of gateways, by their process ids, during the same `window` without traffic: those of the
/// clients and of the servers. Returns the numbers of each pair in the order of `pairs`.
///
/// # Errors
///
/// Returns an error if a gateway has ended.
pub(super) fn idle(pairs: &[&[Vec<u32>; 2]], window: Duration) -> Result<Vec<Values>> {
    let used = |[client, server]: &&[Vec<u32>; 2]| -> Result<[f64; 2]> {
        Ok([process::cpu_seconds(client)?, process::cpu_seconds(server)?])
    };

    let start = Instant::now();
    let before: Vec<_> = pairs.iter().map(used).collect::<Result<_>>()?;
    thread::sleep(window);
    let after: Vec<_> = pairs.iter().map(used).collect::<Result<_>>()?;
    let percent = 100.0 / start.elapsed().as_secs_f64();

    let values = before.iter().zip(after).map(|(before, after)| {
        named([
            (metric::CPU_CLIENT, (after[0] - before[0]) * percent),
            (metric::CPU_SERVER, (after[1] - before[1]) * percent),
        ])
    });
    Ok(values.collect())
}

/// Waits for at most `max_wait` until the machine is idle. Returns the number of busy cores at the
/// end.
///
/// # Errors
///
/// Returns an error if `/proc/stat` cannot be read.
pub(super) fn wait_until_idle(max_wait: Duration) -> Result<f64> {
    let deadline = Instant::now() + max_wait;
    loop {
        let start = Instant::now();
        let before = process::machine_cpu_seconds()?;
        thread::sleep(QUIET_WINDOW);
        let busy = (process::machine_cpu_seconds()? - before) / start.elapsed().as_secs_f64();
        if busy <= QUIET_CORES || Instant::now() >= deadline {
            return Ok(busy);
        }
    }
}

/// The number of busy cores up to which the machine counts as idle. A load up to this limit changes
/// a result less than the drift of a shared machine.
pub(super) const QUIET_CORES: f64 = 0.1;

const QUIET_WINDOW: Duration = Duration::from_millis(600);

pub(super) fn named<const N: usize>(values: [(&str, f64); N]) -> Values {
    values
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Forth,
    Back,
    Both,
}

fn tcp(ends: &Ends, streams: u32, direction: Direction, seconds: u32) -> Result<Values> {
    let parallel = streams.to_string();
    let mut arguments = vec!["--parallel", parallel.as_str()];
    let [client, server] = &ends.gateways;
    let (sender, receiver) = match direction {
        Direction::Forth => (client, server),
        Direction::Back => {
            arguments.push("--reverse");
            (server, client)
        }
        Direction::Both => {
            arguments.push("--bidir");
            (client, server)
        }
    };
    let used = || -> Result<[f64; 3]> {
        Ok([
            process::cpu_seconds(sender)?,
            process::cpu_seconds(receiver)?,
            process::machine_cpu_seconds()?,
        ])
    };
    let counters = || TcpCounters::read(&[&ends.client, &ends.server]);

    let before = (used()?, counters()?);
    let result = iperf::tcp(&ends.iperf3(&arguments, seconds)?)?;
    let after = (used()?, counters()?.since(before.1));

    let per_gb = |index: usize| (after.0[index] - before.0[index]) / (result.bytes / 1e9);
    Ok(named([
        (metric::GBPS, result.bits_per_second / 1e9),
        (metric::FAIRNESS, result.fairness),
        (metric::REPEATED, after.1.repeated),
        (metric::REORDERED, after.1.reordered),
        (metric::DISORDER, after.1.repeated + after.1.reordered),
        (metric::SENDER, per_gb(0)),
        (metric::RECEIVER, per_gb(1)),
        (metric::MACHINE, per_gb(2)),
    ]))
}

fn rtt_idle(ends: &Ends, seconds: u32) -> Result<Values> {
    let duration = Duration::from_secs(seconds.into());

    rtt(&ends.ping(Duration::from_millis(2), duration)?)
}

fn rtt_loaded(ends: &Ends, seconds: u32) -> Result<Values> {
    let duration = Duration::from_secs(seconds.into());
    let load_seconds = seconds + 2 * RAMP.as_secs().try_into().unwrap_or(1);

    let (load, output) = thread::scope(|scope| {
        let load = scope.spawn(|| ends.iperf3(&["--parallel", "4"], load_seconds));
        thread::sleep(RAMP);
        let output = ends.ping(Duration::from_millis(10), duration);
        (load.join(), output)
    });

    let load = load.unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
    let load = iperf::tcp(&load).context("the load during the round trips")?;
    let mut values = rtt(&output?)?;
    values.insert(metric::GBPS.to_owned(), load.bits_per_second / 1e9);
    Ok(values)
}

/// Time until TCP has opened its congestion window and fills the path.
const RAMP: Duration = Duration::from_secs(1);

fn rtt(output: &str) -> Result<Values> {
    let rtt = ping::rtt(output)?;

    Ok(named([
        (metric::P50, rtt.p50_us),
        (metric::P99, rtt.p99_us),
        (metric::LOSS, rtt.loss_percent),
    ]))
}

fn memory(ends: &Ends) -> Result<Values> {
    let [client, server] = &ends.gateways;
    let client = process::memory(client)?;
    let server = process::memory(server)?;

    Ok(named([
        (metric::RSS_CLIENT, client.resident / 1e6),
        (metric::RSS_SERVER, server.resident / 1e6),
        (metric::PEAK_CLIENT, client.peak / 1e6),
        (metric::PEAK_SERVER, server.peak / 1e6),
    ]))
}

/// Returns the peak memory of the gateways since their start, and resets the peak. So the peak that
/// [`memory`] reads later covers only the measurements.
fn started(ends: &Ends) -> Result<Values> {
    let [client, server] = &ends.gateways;
    let values = named([
        (metric::START_CLIENT, process::memory(client)?.peak / 1e6),
        (metric::START_SERVER, process::memory(server)?.peak / 1e6),
    ]);
    process::reset_peak(client)?;
    process::reset_peak(server)?;

    Ok(values)
}
