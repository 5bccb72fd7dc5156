//! Selects the measurements of a run.

use super::Bench;
use super::metric::{Measurement, Tunnel, Underlay};
use super::targets;
use clap::ValueEnum;
use std::time::Duration;

/// The selected measurements, tunnels and networks, and the durations.
#[derive(Debug)]
pub(super) struct Plan {
    /// Number of rounds. Each repeated measurement is taken once per round.
    pub(super) rounds: u32,
    /// The duration of one measurement, in seconds.
    pub(super) seconds: u32,
    pub(super) measurements: Vec<Measurement>,
    /// The tunnels, in the order of the table's columns.
    pub(super) tunnels: Vec<Tunnel>,
    /// The networks, in the order of the tables.
    pub(super) underlays: Vec<Underlay>,
    /// Whether only measurements that have a target are taken.
    targets_only: bool,
    /// Whether the run takes all measurements of a build of a known commit. Only such a result is
    /// written to `bench/results`.
    pub(super) is_complete: bool,
}

impl Plan {
    /// Plans a run. `builds` states whether the bench builds the binaries from this checkout, so
    /// that their commit is known.
    pub(super) fn of(options: &Bench, builds: bool) -> Self {
        let (rounds, seconds) = if options.quick {
            (2, 1)
        } else {
            (options.rounds, options.seconds)
        };
        let mut tunnels = chosen(&options.tunnel);
        if options.quick && options.tunnel.is_empty() {
            tunnels.retain(|tunnel| !tunnel.is_secondary());
        }
        let mut underlays = chosen(&options.underlay);
        if options.quick && options.underlay.is_empty() {
            // No target depends on it.
            underlays.retain(|underlay| *underlay != Underlay::Jumbo);
        }

        Self {
            rounds,
            seconds,
            targets_only: options.quick && options.only.is_empty(),
            measurements: chosen(&options.only),
            tunnels,
            underlays,
            is_complete: builds
                && !options.quick
                && options.only.is_empty()
                && options.tunnel.is_empty()
                && options.underlay.is_empty(),
        }
    }

    /// Returns the tunnels to create, each with the network between its ends.
    pub(super) fn rigs(&self) -> Vec<(Underlay, Tunnel)> {
        self.underlays
            .iter()
            .flat_map(|&underlay| self.tunnels.iter().map(move |&tunnel| (underlay, tunnel)))
            .filter(|(underlay, tunnel)| tunnel.is_over(*underlay))
            .collect()
    }

    /// Returns the measurements of a round, in chronological order.
    pub(super) fn repeated(&self) -> Vec<(Underlay, Measurement)> {
        self.underlays
            .iter()
            .flat_map(|&underlay| {
                self.measurements
                    .iter()
                    .filter(move |it| it.is_repeated() && it.is_taken_over(underlay))
                    .filter(move |it| !self.targets_only || targets::need(underlay, **it))
                    .map(move |&measurement| (underlay, measurement))
            })
            .collect()
    }

    /// Returns the maximum time to wait for an idle machine before a measurement.
    pub(super) fn max_wait(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds) * 2)
    }

    /// Returns the duration of the idle measurement. It is longer than other measurements, because
    /// the kernel counts processor time in steps of 10 ms.
    pub(super) fn idle_window(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds) * 5).max(IDLE_WINDOW_MIN)
    }
}

/// Minimum duration of the idle measurement. The kernel's step of 10 ms is 0.1 % of this duration.
const IDLE_WINDOW_MIN: Duration = Duration::from_secs(10);

/// Returns the variants in `named`, in the order of their declaration; all variants if `named` is
/// empty.
fn chosen<T: ValueEnum + PartialEq + Copy>(named: &[T]) -> Vec<T> {
    T::value_variants()
        .iter()
        .copied()
        .filter(|it| named.is_empty() || named.contains(it))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn only_a_complete_run_is_kept() {
        assert!(plan(&[]).is_complete);
        assert!(plan(&["--rounds", "9"]).is_complete);
        assert!(!plan(&["--quick"]).is_complete);
        assert!(!plan(&["--only", "tcp-x1"]).is_complete);
        assert!(!plan(&["--tunnel", "fabric"]).is_complete);
        assert!(!plan(&["--underlay", "uso"]).is_complete);
        assert!(!Plan::of(&options(&[]), false).is_complete);
    }

    #[test]
    fn measurements_can_be_chosen() {
        let plan = plan(&["--only", "memory,tcp-x4", "--only", "udp64"]);

        assert_eq!(
            plan.measurements,
            [Measurement::TcpX4, Measurement::Udp64, Measurement::Memory]
        );
    }

    #[test]
    fn a_quick_run_takes_only_measurements_of_targets() {
        let plan = plan(&["--quick"]);

        let repeated = plan.repeated();
        assert!(repeated.contains(&(Underlay::Nouso, Measurement::TcpX1)));
        assert!(!repeated.contains(&(Underlay::Nouso, Measurement::TcpX1Back)));
        assert!(!repeated.contains(&(Underlay::Uso, Measurement::Udp1200)));
        assert!(!plan.tunnels.contains(&Tunnel::Nebula));
        assert_eq!(plan.underlays, [Underlay::Uso, Underlay::Nouso]);
    }

    #[test]
    fn tunnels_can_be_chosen() {
        let plan = plan(&["--tunnel", "wireguard-go,gateway"]);

        assert_eq!(plan.tunnels, [Tunnel::Gateway, Tunnel::WireguardGo]);
    }

    #[test]
    fn a_measurement_that_is_taken_once_is_in_no_round() {
        let plan = plan(&["--only", "memory,tcp-x1"]);

        assert_eq!(
            plan.repeated(),
            [
                (Underlay::Uso, Measurement::TcpX1),
                (Underlay::Nouso, Measurement::TcpX1),
                (Underlay::Jumbo, Measurement::TcpX1)
            ]
        );
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    fn plan(arguments: &[&str]) -> Plan {
        Plan::of(&options(arguments), true)
    }

    fn options(arguments: &[&str]) -> Bench {
        Line::parse_from([&["bench"], arguments].concat()).bench
    }
}
