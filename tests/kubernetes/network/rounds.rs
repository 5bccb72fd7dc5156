//! Faults under traffic, repeated in rounds if `LIQO_LAB_REPEAT` is set. The worst outcome of each
//! case is printed at the end.

use crate::converged::until_converged;
use crate::fixture::{Peering, Web};
use crate::flow::{Outcome, Traffic};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::env;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tests::stall::Witness;

/// The number of rounds; 1 if it is not set.
const REPEAT: &str = "LIQO_LAB_REPEAT";

/// The time between datagrams.
const INTERVAL: Duration = Duration::from_millis(10);

/// The longest outage that the loss of a replica may cause.
pub(crate) const LOST_REPLICA: Duration = Duration::from_secs(1);

/// The same for TCP, whose retransmissions back off.
const LOST_REPLICA_TCP: Duration = Duration::from_secs(2);

/// The longest pause of TCP without loss, on a loaded machine.
const NOTHING_LOST_TCP: Duration = Duration::from_secs(1);

/// The most rounds of a test that are repeated because the machine stalled.
const EXCUSED_MAX: usize = 5;

/// A check of an outcome.
pub(crate) type Promise = fn(Outcome) -> Result<()>;

/// The cases in the order of their first measurement.
static MEASURED: Mutex<Vec<Case>> = Mutex::new(Vec::new());

struct Case {
    name: String,
    rounds: u32,
    worst: Outcome,
}

/// The pods between which traffic flows.
pub(crate) enum Ends {
    /// Pods on all nodes.
    Everywhere,
    /// Pods on the first node of each cluster, since other nodes are killed.
    FirstNodes,
}

/// Traffic under repeated faults.
pub(crate) struct Rounds {
    peering: &'static Peering,
    name: String,
    traffic: Traffic,
    /// The number of rounds that count.
    count: u32,
    /// The number of rounds that have begun.
    begun: u32,
    /// Rounds that do not count, because the machine stalled.
    excused: BTreeSet<u32>,
    /// The error of the first broken promise.
    broken: Option<anyhow::Error>,
}

impl Rounds {
    /// Starts traffic in namespaces of this name.
    pub(crate) async fn start(peering: &'static Peering, name: &str, ends: Ends) -> Result<Self> {
        let traffic = match ends {
            Ends::Everywhere => Traffic::start(peering, name, INTERVAL).await?,
            Ends::FirstNodes => {
                let [rome, milan] = [&peering.rome, &peering.milan];
                let webs = [
                    Web::on_node(rome, name, rome.node(0).name()).await?,
                    Web::on_node(milan, name, milan.node(0).name()).await?,
                ];
                Traffic::between(peering, webs, INTERVAL).await?
            }
        };

        Ok(Self {
            peering,
            name: name.to_owned(),
            traffic,
            count: count()?,
            begun: 0,
            excused: BTreeSet::new(),
            broken: None,
        })
    }

    /// Begins another round, if one is left, and returns its number.
    pub(crate) fn another(&mut self) -> Option<usize> {
        let number = self.begun as usize;
        let wanted = self.count as usize + self.excused.len();
        if number >= wanted {
            return None;
        }
        self.begun += 1;

        Some(number)
    }

    /// Runs `body`, and returns its effect on the traffic until all streams make progress again.
    pub(crate) async fn measure(
        &mut self,
        case: &str,
        body: impl AsyncFnOnce(&Traffic) -> Result<()>,
    ) -> Result<Outcome> {
        let outcome = self.outcome(case, body).await?;
        note(case, outcome);

        Ok(outcome)
    }

    /// Runs `body`, which promises an outcome of the traffic.
    ///
    /// [`Rounds::finish`] returns the error of a broken promise, so that all rounds are measured.
    /// A round in which the machine stalled is repeated, since its outcome proves nothing.
    pub(crate) async fn promise(
        &mut self,
        promise: Promise,
        case: &str,
        body: impl AsyncFnOnce(&Traffic) -> Result<()>,
    ) -> Result<()> {
        let witness = Witness::start();
        let outcome = self.outcome(case, body).await?;
        let stalls = witness.finish();
        let kept = promise(outcome).with_context(|| format!("{case}, round {}", self.begun));
        if kept.is_err() && stalls.count > 0 && self.excused.len() < EXCUSED_MAX {
            eprintln!(
                "{case}: round {} does not count: the machine stalled {} times, for up to {:.1?}",
                self.begun, stalls.count, stalls.longest
            );
            self.excused.insert(self.begun);
            return Ok(());
        }

        note(case, outcome);
        self.broken = self.broken.take().or(kept.err());
        Ok(())
    }

    async fn outcome(
        &mut self,
        case: &str,
        body: impl AsyncFnOnce(&Traffic) -> Result<()>,
    ) -> Result<Outcome> {
        self.traffic.lap()?;
        body(&self.traffic).await?;
        let outcome = self.traffic.lap()?;
        eprintln!("{case}: {outcome:?}");

        Ok(outcome)
    }

    /// Runs `body`, which promises an outcome, once in each round, each time on converged clusters,
    /// and ends the traffic.
    pub(crate) async fn each(
        mut self,
        promise: Promise,
        mut body: impl AsyncFnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let case = self.name.clone();
        while let Some(number) = self.another() {
            until_converged(self.peering).await?;
            self.promise(promise, &case, async |_| body(number).await)
                .await?;
        }

        self.finish().await
    }

    /// Ends the traffic. Asserts that no byte was changed or lost, that no connection broke, and
    /// that every promise was kept.
    pub(crate) async fn finish(self) -> Result<()> {
        self.traffic.finish().await?;
        self.broken.map_or(Ok(()), Err)
    }
}

/// Checks that an outcome is within the limits of a lost replica.
pub(crate) fn lost_a_replica(outcome: Outcome) -> Result<()> {
    ensure!(outcome.udp_outage <= LOST_REPLICA, "{outcome:?}");
    ensure!(outcome.tcp_gap <= LOST_REPLICA_TCP, "{outcome:?}");

    Ok(())
}

/// Checks that no datagram was lost.
pub(crate) fn lost_nothing(outcome: Outcome) -> Result<()> {
    ensure!(outcome.udp_lost == 0, "{outcome:?}");
    ensure!(outcome.tcp_gap <= NOTHING_LOST_TCP, "{outcome:?}");

    Ok(())
}

/// The number of rounds that [`REPEAT`] sets.
pub(crate) fn count() -> Result<u32> {
    let Ok(text) = env::var(REPEAT) else {
        return Ok(1);
    };
    let count = text.parse().ok().filter(|count| *count > 0);
    count.with_context(|| format!("{REPEAT} is {text:?}: use a number from 1 on"))
}

/// Prints the worst outcome of each case.
pub(crate) fn print() {
    let cases = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    if cases.is_empty() {
        return;
    }
    eprintln!(
        "\n{:<24} {:>6} {:>12} {:>12} {:>6}",
        "at worst", "rounds", "TCP gap", "UDP outage", "lost"
    );
    for Case {
        name,
        rounds,
        worst,
    } in cases.iter()
    {
        eprintln!(
            "{name:<24} {rounds:>6} {:>9} ms {:>9} ms {:>6}",
            worst.tcp_gap.as_millis(),
            worst.udp_outage.as_millis(),
            worst.udp_lost
        );
    }
}

fn note(name: &str, outcome: Outcome) {
    let mut cases = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    match cases.iter_mut().find(|case| case.name == name) {
        Some(case) => {
            case.rounds += 1;
            case.worst = case.worst.worse(outcome);
        }
        None => cases.push(Case {
            name: name.to_owned(),
            rounds: 1,
            worst: outcome,
        }),
    }
}
