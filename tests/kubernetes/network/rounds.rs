//! What happens to traffic is measured several times if one asks for it; the worst of all
//! times is told at the end.

use crate::fixture::{Peering, Web};
use crate::flow::{Outcome, Traffic};
use crate::whole;
use anyhow::{Context as _, Result, ensure};
use std::env;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
    traffic: Traffic,
    /// How often it is to happen.
    count: u32,
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
            traffic,
            count: count()?,
        })
    }

    /// The numbers of all rounds.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> + use<> {
        0..self.count as usize
    }

    /// Waits until both clusters are whole, does something, and returns what it did to the
    /// traffic until all of it flows again.
    pub(crate) async fn during(
        &mut self,
        case: &str,
        body: impl AsyncFnOnce(&Traffic) -> Result<()>,
    ) -> Result<Outcome> {
        whole::until_whole(self.peering).await?;
        self.measure(case, body).await
    }

    /// As [`Rounds::during`], whatever state the clusters are in.
    pub(crate) async fn measure(
        &mut self,
        case: &str,
        body: impl AsyncFnOnce(&Traffic) -> Result<()>,
    ) -> Result<Outcome> {
        self.traffic.lap()?;
        body(&self.traffic).await?;
        let outcome = self.traffic.lap()?;
        eprintln!("{case}: {outcome:?}");
        note(case, outcome);

        Ok(outcome)
    }

    /// Ends the traffic: no byte was changed or lost, and no connection broke.
    pub(crate) async fn finish(self) -> Result<()> {
        self.traffic.finish().await.map(drop)
    }
}

/// Does something to traffic between all nodes, as often as asked for, and returns the worst.
pub(crate) async fn each_round(
    peering: &'static Peering,
    case: &str,
    ends: Ends,
    mut body: impl AsyncFnMut(usize) -> Result<()>,
) -> Result<Outcome> {
    let mut rounds = Rounds::start(peering, case, ends).await?;
    let mut worst = Outcome::default();
    for number in rounds.numbers() {
        let outcome = rounds.during(case, async |_| body(number).await).await?;
        worst = worst.worse(outcome);
    }
    rounds.finish().await?;

    Ok(worst)
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
