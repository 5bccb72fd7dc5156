//! Step: the CIDRs of a cluster are known.

use crate::cidrs::Cidrs;
use crate::cluster::list_all;
use crate::pair::Side;
use crate::state::State;
use crate::steps::{Lines, Step, lines};
use anyhow::Result;
use control_api::{Network, labels};
use kube::Api;

/// Reads the CIDRs that a cluster advertises. Its controller manager allocates them.
pub(crate) struct AdvertisedCidrs<'a>(pub(crate) &'a Side);

impl Step for AdvertisedCidrs<'_> {
    type Desired = ();
    type Output = Cidrs;

    fn lines(&self) -> Lines {
        Lines {
            scope: self.0.cluster.side,
            apply: None,
            wait: lines(
                "Retrieving network configuration",
                "Network configuration correctly retrieved",
            ),
            goal: "reading the network configuration",
        }
    }

    async fn observe(&self, (): &()) -> Result<State<Cidrs>> {
        let (cluster, namespace) = (&self.0.cluster, &self.0.liqo.namespace);
        let api = Api::<Network>::namespaced(cluster.client.clone(), namespace);
        let networks = list_all(&api, labels::NETWORK_TYPE)
            .await
            .map_err(cluster.failed("list Networks"))?;
        Ok(match Cidrs::of(&networks) {
            Ok(cidrs) => State::Ready(cidrs),
            Err(missing) => State::Waiting(format!(
                "{missing} in namespace {namespace} of {}",
                cluster.place()
            )),
        })
    }
}
