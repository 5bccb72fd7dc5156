//! Runs all rounds. Each round measures all tunnels in direct succession.

use super::ends::Ends;
use super::fabric::Fabric;
use super::gateways::{Gateways, many_idle};
use super::measure::{self, Values};
use super::metric::{self, Measurement, Sample, Tunnel, Underlay};
use super::nebula::Nebula;
use super::plan::Plan;
use super::programs::Programs;
use super::receives::Receives;
use super::results;
use super::superpackets::{Histogram, SuperPackets};
use super::table;
use super::wireguard::Wireguard;
use crate::console;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Outcome {
    /// All samples, in chronological order.
    pub(super) samples: Vec<Sample>,
    /// Histograms of the packet sizes at the gateways' TAPs during the TCP x1 measurements, by a
    /// title that names tunnel, network and gateway.
    pub(super) super_packets: BTreeMap<String, Histogram>,
}

/// Creates all tunnels and takes all measurements.
///
/// # Errors
///
/// Returns an error that names the tunnel and the measurement that failed.
pub(super) fn measure_all(plan: &Plan, programs: &Programs) -> Result<Outcome> {
    console::step("Creating the tunnels");
    let mut rigs = Vec::new();
    for (underlay, tunnel) in plan.rigs() {
        let rig = Rig::start(tunnel, underlay, programs).with_context(|| {
            format!(
                "failed to set up {} over {}",
                tunnel.name(),
                underlay.name()
            )
        })?;
        rigs.push(rig);
    }

    let all: Vec<&Ends> = rigs.iter().map(Rig::ends).collect();
    let mut samples = one(plan, programs, &all, Measurement::Start, 0)?;
    let mut super_packets: BTreeMap<String, SuperPackets> = BTreeMap::new();
    for round in 1..=plan.rounds {
        console::step(format_args!("Round {round} of {}", plan.rounds));
        for (underlay, measurement) in plan.repeated() {
            let of_network: Vec<&Rig> = rigs
                .iter()
                .filter(|rig| rig.ends().underlay == underlay)
                .collect();
            let ends: Vec<&Ends> = of_network.iter().map(|rig| rig.ends()).collect();
            let before = counted(&of_network, measurement)?;
            let received = received(&of_network, measurement)?;
            let mut taken = one(plan, programs, &ends, measurement, round)?;
            for (tunnel, after) in self::received(&of_network, measurement)? {
                let sample = taken.iter_mut().find(|it| it.tunnel == tunnel);
                if let Some((sample, before)) = sample.zip(received.get(&tunnel)) {
                    sample.values.extend(after.means_since(*before));
                }
            }
            print_brief(&taken, underlay, measurement);
            samples.extend(taken);
            for (name, after) in counted(&of_network, measurement)? {
                if let Some(before) = before.get(&name) {
                    let sum = super_packets.entry(name).or_default();
                    sum.add_growth(before, &after);
                }
            }
        }
    }
    if plan.measurements.contains(&Measurement::Idle) {
        samples.extend(idle(plan, &all)?);
    }
    if plan.measurements.contains(&Measurement::IdlePeers) {
        samples.extend(idle_peers(plan, &all)?);
    }
    if plan.measurements.contains(&Measurement::Memory) {
        samples.extend(one(plan, programs, &all, Measurement::Memory, 0)?);
    }

    let super_packets = super_packets
        .into_iter()
        .flat_map(|(name, sum)| sum.into_named(&name))
        .collect();
    Ok(Outcome {
        samples,
        super_packets,
    })
}

/// An established tunnel, which is removed on drop.
#[derive(Debug)]
enum Rig {
    Gateways(Gateways),
    Fabric(Fabric),
    Wireguard(Wireguard),
    Nebula(Nebula),
}

impl Rig {
    fn start(tunnel: Tunnel, underlay: Underlay, programs: &Programs) -> Result<Self> {
        let program = || programs.get(&tunnel).context("its program was not built");

        match tunnel {
            Tunnel::Gateway => Gateways::start(tunnel, underlay).map(Self::Gateways),
            Tunnel::Fabric | Tunnel::FabricDefaults | Tunnel::FabricEverywhere => {
                Fabric::start(tunnel, underlay).map(Self::Fabric)
            }
            Tunnel::WireguardGo
            | Tunnel::WireguardGoDebian
            | Tunnel::Boringtun
            | Tunnel::Gotatun => {
                Wireguard::start(tunnel, program()?, underlay).map(Self::Wireguard)
            }
            Tunnel::Nebula => Nebula::start(program()?, underlay).map(Self::Nebula),
        }
    }

    fn ends(&self) -> &Ends {
        match self {
            Self::Gateways(gateways) => &gateways.ends,
            Self::Fabric(fabric) => &fabric.ends,
            Self::Wireguard(wireguard) => &wireguard.ends,
            Self::Nebula(nebula) => &nebula.ends,
        }
    }

    /// Returns the packet sizes at the TAPs of this project's gateways; `None` for other tunnels.
    fn super_packets(&self) -> Result<Option<[Histogram; 2]>> {
        match self {
            Self::Gateways(gateways) => gateways.super_packets().map(Some),
            Self::Fabric(fabric) => fabric.super_packets().map(Some),
            Self::Wireguard(_) | Self::Nebula(_) => Ok(None),
        }
    }
}

/// Takes one measurement of all tunnels in direct succession.
fn one(
    plan: &Plan,
    programs: &Programs,
    tunnels: &[&Ends],
    measurement: Measurement,
    round: u32,
) -> Result<Vec<Sample>> {
    let mut order = tunnels.to_vec();
    // Every second round has the reverse order, so that warm caches or a slowdown of the machine do
    // not affect the same tunnel in every round.
    if round.is_multiple_of(2) {
        order.reverse();
    }

    let mut samples = Vec::new();
    for ends in order {
        if !measurement.is_taken_of(ends.tunnel, ends.underlay) {
            continue;
        }
        let busy = measure::wait_until_idle(plan.max_wait())?;
        match measure::measure(ends, programs, measurement, plan.seconds) {
            Ok(mut values) => {
                values.insert(metric::OTHERS.to_owned(), busy);
                samples.push(sample(round, ends, measurement, values));
            }
            // No target depends on this tunnel, so its failure does not end the run.
            Err(error) if ends.tunnel.is_secondary() => console::note(format_args!(
                "failed to measure {} of {}: {error:#}",
                measurement.name(),
                ends.tunnel.name()
            )),
            Err(error) => {
                return Err(error).with_context(|| {
                    format!(
                        "failed to measure {} of {} in round {round}",
                        measurement.name(),
                        ends.tunnel.name()
                    )
                });
            }
        }
    }

    Ok(samples)
}

fn idle(plan: &Plan, tunnels: &[&Ends]) -> Result<Vec<Sample>> {
    let window = plan.idle_window();
    console::step(format_args!("No traffic, for {}", console::seconds(window)));
    measure::wait_until_idle(plan.max_wait())?;
    let gateways: Vec<_> = tunnels.iter().map(|ends| &ends.gateways).collect();
    let values = measure::idle(&gateways, window).context("failed to measure idle gateways")?;

    Ok(tunnels
        .iter()
        .zip(values)
        .map(|(ends, values)| sample(0, ends, Measurement::Idle, values))
        .collect())
}

/// Measures further gateways of the same binary.
fn idle_peers(plan: &Plan, tunnels: &[&Ends]) -> Result<Option<Sample>> {
    let measurement = Measurement::IdlePeers;
    let mut tunnels = tunnels.iter();
    let Some(ends) = tunnels.find(|ends| measurement.is_taken_of(ends.tunnel, ends.underlay))
    else {
        return Ok(None);
    };
    console::step("No traffic, with 1,000 peers");
    let values = many_idle(plan.idle_window()).context("failed to measure 1,000 peers")?;

    Ok(Some(sample(0, ends, measurement, values)))
}

fn sample(round: u32, ends: &Ends, measurement: Measurement, values: Values) -> Sample {
    Sample {
        round,
        tunnel: ends.tunnel,
        underlay: ends.underlay,
        measurement,
        values,
    }
}

/// Returns the current packet sizes by tunnel and network. Returns an empty map if the measurement
/// is not TCP x1.
fn counted(rigs: &[&Rig], measurement: Measurement) -> Result<BTreeMap<String, [Histogram; 2]>> {
    if measurement != Measurement::TcpX1 {
        return Ok(BTreeMap::new());
    }

    let mut counted = BTreeMap::new();
    for rig in rigs {
        if let Some(sizes) = rig.super_packets()? {
            let ends = rig.ends();
            counted.insert(
                format!("{}, {}", ends.tunnel.name(), ends.underlay.name()),
                sizes,
            );
        }
    }
    Ok(counted)
}

/// Returns what the stages of each path have received. Returns an empty map if the measurement is
/// not TCP x1.
fn received(rigs: &[&Rig], measurement: Measurement) -> Result<BTreeMap<Tunnel, Receives>> {
    let is_counted = measurement == Measurement::TcpX1;
    let paths = rigs.iter().filter_map(|rig| match rig {
        Rig::Fabric(fabric) if is_counted => Some(fabric),
        Rig::Fabric(_) | Rig::Gateways(_) | Rig::Wireguard(_) | Rig::Nebula(_) => None,
    });
    paths
        .map(|fabric| Ok((fabric.ends.tunnel, fabric.receives()?)))
        .collect()
}

fn print_brief(samples: &[Sample], underlay: Underlay, measurement: Measurement) {
    if let Some(row) = results::rows(samples).first() {
        console::note(format_args!(
            "{:<6}{:<12} {}",
            underlay.name(),
            measurement.name(),
            table::brief(row)
        ));
    }
}
