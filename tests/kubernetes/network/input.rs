//! Tests of invalid input by users and programs. Liqo must report each input with its remedy. No
//! process may crash, and traffic with other peers must not be interrupted.

mod commands;
mod kinds;
pub(crate) mod paths;

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

/// The interval between two datagrams of a UDP flow.
const INTERVAL: Duration = Duration::from_millis(20);

/// The longest outage on a loaded machine without a fault.
const OUTAGE: Duration = Duration::from_millis(250);

/// The traffic, the restart counts and the stalls while a test provides invalid input.
struct Monitor {
    traffic: Traffic,
    restarts: BTreeMap<String, String>,
    stalls: stall::Witness,
}

impl Monitor {
    async fn start(peering: &Peering, name: &str) -> Result<Self> {
        Ok(Self {
            traffic: Traffic::start(peering, name, INTERVAL).await?,
            restarts: restarts(peering).await?,
            stalls: stall::Witness::start(),
        })
    }

    /// Asserts that traffic was not interrupted, and that no container restarted.
    async fn finish(self, peering: &Peering) -> Result<()> {
        let outcome = self.traffic.finish().await?;
        let restarts = restarts(peering).await?;
        ensure!(
            restarts == self.restarts,
            "{:?} became {restarts:?}",
            self.restarts
        );
        let stalls = self.stalls.finish();
        // Gateways may mistake a stall of the machine for the loss of a replica.
        let limit = match stalls.count {
            0 => OUTAGE,
            _ => LOST_REPLICA + stalls.longest,
        };
        ensure!(outcome.udp_outage <= limit, "{outcome:?}, {stalls:?}");

        Ok(())
    }
}

/// Returns the restart count of each of Liqo's pods, by name.
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
