//! What happens to traffic is measured several times if one asks for it; the worst of all
//! times is told at the end.

use crate::fixture::{Peering, Web};
use crate::flow::{Outcome, Traffic};
use crate::whole::until_whole;
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::env;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tests::stall::Witness;

/// Says how often: 1 if it is not set.
const REPEAT: &str = "LIQO_LAB_REPEAT";

/// Between datagrams.
const INTERVAL: Duration = Duration::from_millis(10);

/// What losing a replica may cost the fabric.
const LOST_REPLICA: Duration = Duration::from_secs(1);

/// The same as TCP shows it: its retransmissions back off.
const LOST_REPLICA_TCP: Duration = Duration::from_secs(2);

/// How long TCP may pause where nothing is lost: the machine is busy.
const NOTHING_LOST_TCP: Duration = Duration::from_secs(1);

/// How many rounds of a test may not count since the machine stood still.
const EXCUSED_MAX: usize = 5;

/// What is promised of an outcome.
pub(crate) type Promise = fn(Outcome) -> Result<()>;

/// What was measured, by case, in the order of the first times.
static MEASURED: Mutex<Vec<Case>> = Mutex::new(Vec::new());

struct Case {
    name: String,
    rounds: u32,
    worst: Outcome,
}

/// Between which pods traffic is to flow.
pub(crate) enum Ends {
    /// On all nodes.
    Everywhere,
    /// On the first node of each cluster: others may die.
    FirstNodes,
}

/// Traffic to which one thing happens, once or several times.
pub(crate) struct Rounds {
    peering: &'static Peering,
    name: String,
    traffic: Traffic,
    /// How many rounds are to count.
    count: u32,
    /// How many have begun.
    begun: u32,
    /// Those that do not count.
    excused: BTreeSet<u32>,
    /// The first promise that was not kept.
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

    /// Does something, and returns what it did to the traffic until all of it flows again.
    pub(crate) async fn measure(
        &mut self,
        case: &str,
        body: impl AsyncFnOnce(&Traffic) -> Result<()>,
    ) -> Result<Outcome> {
        let outcome = self.outcome(case, body).await?;
        note(case, outcome);

        Ok(outcome)
    }

    /// Does something to the traffic that promises an outcome.
    ///
    /// If that is not kept, [`Rounds::finish`] will say so, after all other rounds: what
    /// the worst of them is counts. But a round in which the machine stood still tells
    /// nothing: another one takes its place.
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
                "{case}: round {} does not count: the machine stood still {} times, for up to {:.1?}",
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

    /// Has whole clusters do something, as often as asked for, that promises an outcome, and
    /// ends the traffic.
    pub(crate) async fn each(
        mut self,
        promise: Promise,
        mut body: impl AsyncFnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let case = self.name.clone();
        while let Some(number) = self.another() {
            until_whole(self.peering).await?;
            self.promise(promise, &case, async |_| body(number).await)
                .await?;
        }

        self.finish().await
    }

    /// Ends the traffic: no byte was changed or lost, no connection broke, and every
    /// promise was kept.
    pub(crate) async fn finish(self) -> Result<()> {
        self.traffic.finish().await?;
        self.broken.map_or(Ok(()), Err)
    }
}

/// Checks what the loss of a replica has cost.
pub(crate) fn lost_a_replica(outcome: Outcome) -> Result<()> {
    ensure!(outcome.udp_outage <= LOST_REPLICA, "{outcome:?}");
    ensure!(outcome.tcp_gap <= LOST_REPLICA_TCP, "{outcome:?}");

    Ok(())
}

/// Checks that nothing was lost.
pub(crate) fn lost_nothing(outcome: Outcome) -> Result<()> {
    ensure!(outcome.udp_lost == 0, "{outcome:?}");
    ensure!(outcome.tcp_gap <= NOTHING_LOST_TCP, "{outcome:?}");

    Ok(())
}

/// How often what is measured is to be repeated.
pub(crate) fn count() -> Result<u32> {
    let Ok(text) = env::var(REPEAT) else {
        return Ok(1);
    };
    let count = text.parse().ok().filter(|count| *count > 0);
    count.with_context(|| format!("{REPEAT} is {text:?}: use a number from 1 on"))
}

/// Prints the worst of each case.
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
