//! What people and programs get wrong: it is told with its cure, nothing crashes, and other
//! peers do not notice.

mod commands;
mod kinds;
mod ways;

use crate::fixture::{LIQO, Peering, Suite};
use crate::flow::Traffic;
use anyhow::{Result, ensure};
use kubernetes_lab::namespace::Namespace;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    commands::add(suite);
    kinds::add(suite);
    ways::add(suite);
}

/// Between datagrams.
const INTERVAL: Duration = Duration::from_millis(20);

/// A shorter outage is one of the busy machine.
const OUTAGE: Duration = Duration::from_millis(250);

/// Traffic between the clusters beside something that is wrong, and their pods.
struct Witness {
    traffic: Traffic,
    restarts: BTreeMap<String, String>,
}

impl Witness {
    async fn start(peering: &Peering, name: &str) -> Result<Self> {
        Ok(Self {
            traffic: Traffic::start(peering, name, INTERVAL).await?,
            restarts: restarts(peering).await?,
        })
    }

    /// Asserts that all flowed on, and that no process ended.
    async fn finish(self, peering: &Peering) -> Result<()> {
        let outcome = self.traffic.finish().await?;
        let restarts = restarts(peering).await?;
        ensure!(
            restarts == self.restarts,
            "{:?} became {restarts:?}",
            self.restarts
        );
        ensure!(outcome.udp_outage <= OUTAGE, "{outcome:?}");

        Ok(())
    }
}

/// How often each of Liqo's pods was started again.
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
