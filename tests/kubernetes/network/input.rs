//! Invalid input of people and programs: it is reported with its remedy, nothing crashes, and
//! other peers are not disturbed.

mod commands;
mod kinds;
mod paths;

use crate::fixture::{LIQO, Peering, Suite};
use crate::flow::Traffic;
use crate::rounds::LOST_REPLICA;
use anyhow::{Result, ensure};
use kubernetes_lab::namespace::Namespace;
use std::collections::BTreeMap;
use std::time::Duration;
use tests::stall;

pub(crate) fn add(suite: &mut Suite) {
    commands::add(suite);
    kinds::add(suite);
    paths::add(suite);
}

/// The time between datagrams.
const INTERVAL: Duration = Duration::from_millis(20);

/// The longest outage that a loaded machine causes.
const OUTAGE: Duration = Duration::from_millis(250);

/// Traffic and restart counts of the clusters, which invalid input must not affect.
struct Witness {
    traffic: Traffic,
    restarts: BTreeMap<String, String>,
    stalls: stall::Witness,
}

impl Witness {
    async fn start(peering: &Peering, name: &str) -> Result<Self> {
        Ok(Self {
            traffic: Traffic::start(peering, name, INTERVAL).await?,
            restarts: restarts(peering).await?,
            stalls: stall::Witness::start(),
        })
    }

    /// Asserts that traffic was not interrupted, and that no process was restarted.
    async fn finish(self, peering: &Peering) -> Result<()> {
        let outcome = self.traffic.finish().await?;
        let restarts = restarts(peering).await?;
        ensure!(
            restarts == self.restarts,
            "{:?} became {restarts:?}",
            self.restarts
        );
        let stalls = self.stalls.finish();
        // A stall may be taken for the loss of a replica.
        let limit = match stalls.count {
            0 => OUTAGE,
            _ => LOST_REPLICA + stalls.longest,
        };
        ensure!(outcome.udp_outage <= limit, "{outcome:?}, {stalls:?}");

        Ok(())
    }
}

/// The restart count of each of Liqo's pods.
async fn restarts(peering: &Peering) -> Result<BTreeMap<String, String>> {
    let mut restarts = BTreeMap::new();
    for cluster in peering.clusters() {
        let liqo = Namespace::existing(cluster, LIQO).await?;
        let path = "jsonpath={range .items[*]}{.metadata.name} \
                    {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}";
        let text = liqo.kubectl(&["get", "pods", "-o", path]).await?;
        for (pod, count) in text.lines().filter_map(|line| line.split_once(' ')) {
            restarts.insert(format!("{}/{pod}", cluster.name()), count.to_owned());
        }
    }

    Ok(restarts)
}
