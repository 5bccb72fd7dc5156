//! Faults under traffic, in several rounds if `LIQO_LAB_REPEAT` is set. `rounds::print` shows the
//! worst outcome of each case at the end.

use crate::converged::until_converged;
use crate::fixture::{Peering, Web};
use crate::flow::{Outcome, Traffic};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::env;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tests::stall::Witness;

/// The environment variable with the number of rounds. The default is one round.
const REPEAT: &str = "LIQO_LAB_REPEAT";

/// The interval between two datagrams of a UDP flow.
const INTERVAL: Duration = Duration::from_millis(10);

/// The longest outage that the loss of a replica may cause.
pub(crate) const LOST_REPLICA: Duration = Duration::from_secs(1);

/// The longest TCP pause that the loss of a replica may cause. TCP backs off between
/// retransmissions.
const LOST_REPLICA_TCP: Duration = Duration::from_secs(2);

/// The longest TCP pause on a loaded machine if no packet is lost.
const NOTHING_LOST_TCP: Duration = Duration::from_secs(1);

/// The maximum number of rounds of a test that are repeated because the machine stalled.
const REPEATED_MAX: usize = 5;

/// A function that returns an error if an outcome exceeds the limits of a case.
pub(crate) type Check = fn(Outcome) -> Result<()>;

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
    /// Pods on the first node of each cluster, because the test kills other nodes.
    FirstNodes,
}

/// Traffic under faults that occur once in each round.
pub(crate) struct Rounds {
    peering: &'static Peering,
    name: String,
    traffic: Traffic,
    /// The number of rounds to measure, without repeated ones.
    count: u32,
    /// The number of rounds that have begun, including repeated ones.
    begun: u32,
    /// The rounds that are repeated because the machine stalled.
    repeated: BTreeSet<u32>,
    /// The error of the first failed check.
    failure: Option<anyhow::Error>,
}

impl Rounds {
    /// Starts traffic between pods in new namespaces called `name`.
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
            repeated: BTreeSet::new(),
            failure: None,
        })
    }

    /// Begins another round if one is left, and returns the round's index from 0.
    pub(crate) fn another(&mut self) -> Option<usize> {
        let number = self.begun as usize;
        let rounds = self.count as usize + self.repeated.len();
        if number >= rounds {
            return None;
        }
        self.begun += 1;

        Some(number)
    }

    /// Runs `body`, and waits until all streams make progress again. Returns the outcome of the
    /// traffic during this time.
    pub(crate) async fn measure(
        &mut self,
        case: &str,
        body: impl AsyncFnOnce(&Traffic) -> Result<()>,
    ) -> Result<Outcome> {
        let outcome = self.outcome(case, body).await?;
        note(case, outcome);

        Ok(outcome)
    }

    /// Runs `body`, and checks the outcome of the traffic.
    ///
    /// [`Rounds::finish`] returns the error of a failed check, so that all rounds are measured. If
    /// the machine stalled in a round with a failed check, the round is repeated.
    pub(crate) async fn check(
        &mut self,
        check: Check,
        case: &str,
        body: impl AsyncFnOnce(&Traffic) -> Result<()>,
    ) -> Result<()> {
        let witness = Witness::start();
        let outcome = self.outcome(case, body).await?;
        let stalls = witness.finish();
        let checked = check(outcome).with_context(|| format!("{case}, round {}", self.begun));
        if checked.is_err() && stalls.count > 0 && self.repeated.len() < REPEATED_MAX {
            eprintln!(
                "{case}: round {} does not count: the machine stalled {} times, for up to {:.1?}",
                self.begun, stalls.count, stalls.longest
            );
            self.repeated.insert(self.begun);
            return Ok(());
        }

        note(case, outcome);
        self.failure = self.failure.take().or(checked.err());
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

    /// Runs `body` once in each round and checks the outcome of the traffic. Each round starts on
    /// converged clusters. Ends the traffic after the last round.
    pub(crate) async fn each(
        mut self,
        check: Check,
        mut body: impl AsyncFnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let case = self.name.clone();
        while let Some(number) = self.another() {
            until_converged(self.peering).await?;
            self.check(check, &case, async |_| body(number).await)
                .await?;
        }

        self.finish().await
    }

    /// Ends the traffic. Asserts that no byte changed or was lost, that no connection broke, and
    /// that no check failed.
    pub(crate) async fn finish(self) -> Result<()> {
        self.traffic.finish().await?;
        self.failure.map_or(Ok(()), Err)
    }
}

/// Checks that an outcome is within the limits for the loss of a replica.
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

/// Returns the number of rounds that [`REPEAT`] sets.
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
