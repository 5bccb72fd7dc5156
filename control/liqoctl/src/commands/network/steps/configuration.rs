//! Step: a cluster has the Configuration of its peer.

use crate::cidrs::Cidrs;
use crate::kinds::configuration;
use crate::objects;
use crate::pair::Side;
use crate::removal::Removal;
use crate::state::State;
use crate::steps::{Lines, Step, Undo, lines};
use anyhow::Result;
use control_api::Configuration;
use kube::{Api, ResourceExt as _};
use serde_json::Value;

/// Writes the CIDRs of the peer, and waits until the controller manager has applied them.
pub(crate) struct PeerConfiguration<'a> {
    /// The cluster that gets the Configuration.
    pub(crate) side: &'a Side,
    /// The tenant namespace.
    pub(crate) namespace: &'a str,
}

impl PeerConfiguration<'_> {
    async fn existing(&self) -> Result<Option<Configuration>> {
        objects::find(&self.side.cluster, self.namespace, &self.side.peer).await
    }

    fn manifest(&self, existing: Option<&Configuration>, cidrs: &Cidrs) -> Value {
        let peer = &self.side.peer;
        let name = existing.map_or_else(|| peer.clone(), |existing| existing.name_any());
        let object = configuration::manifest(&name, Some(self.namespace), peer, cidrs);
        self.side.cluster.with_metadata(object)
    }
}

impl Step for PeerConfiguration<'_> {
    type Desired = Cidrs;
    type Output = ();

    fn lines(&self) -> Lines {
        Lines {
            scope: self.side.cluster.side,
            apply: lines(
                "Setting up network configuration",
                "Network configuration correctly set up",
            ),
            wait: lines(
                "Waiting for configuration to be applied",
                "Configuration applied successfully",
            ),
            goal: "applying the network configuration",
        }
    }

    async fn observe(&self, cidrs: &Cidrs) -> Result<State<()>> {
        let existing = self.existing().await?;
        let manifest = self.manifest(existing.as_ref(), cidrs);
        let place = self.side.cluster.place();
        Ok(state(existing.as_ref(), &manifest, &place))
    }

    async fn apply(&self, cidrs: &Cidrs) -> Result<()> {
        let cluster = &self.side.cluster;
        let manifest = self.manifest(self.existing().await?.as_ref(), cidrs);
        let api = Api::<Configuration>::namespaced(cluster.client.clone(), self.namespace);
        cluster.apply(&api, manifest).await?;
        Ok(())
    }

    fn undo(&self) -> Option<Box<dyn Undo + '_>> {
        let noun = "network configuration";
        let removal = Removal::<Configuration>::new(self.side, self.namespace, noun);
        Some(Box::new(removal))
    }
}

fn state(existing: Option<&Configuration>, manifest: &Value, place: &str) -> State<()> {
    let applied = existing.map_or(Ok(()), configuration::is_applied);
    match (objects::state(existing, manifest, place), applied) {
        (State::Ready(()), Err(missing)) => State::Waiting(format!("{missing}, in {place}")),
        (state, _) => state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn manifest(pod: &str) -> Value {
        let cidrs = Cidrs {
            pod: vec![pod.to_owned()],
            external: vec!["10.70.0.0/16".to_owned()],
        };
        configuration::manifest("milan", Some("liqo-tenant-milan"), "milan", &cidrs)
    }

    fn stored(pod: &str, is_applied: &str) -> Configuration {
        let mut object = manifest(pod);
        object["metadata"]["generation"] = 1.into();
        object["status"] = json!({"conditions": [{
            "type": "NetworkCIDRsConfigured", "status": is_applied, "reason": "R", "message": "M",
            "observedGeneration": 1, "lastTransitionTime": "2026-11-21T08:15:18Z",
        }]});
        from_value(object).unwrap()
    }

    #[test]
    fn only_an_equal_configuration_is_ready() {
        let desired = manifest("10.244.0.0/16");
        let of = |existing: Option<Configuration>| state(existing.as_ref(), &desired, "here");

        assert_eq!(of(None), State::Pending);
        assert_eq!(of(Some(stored("10.0.0.0/8", "True"))), State::Pending);
        assert_eq!(of(Some(stored("10.244.0.0/16", "True"))), State::Ready(()));
        let State::Waiting(missing) = of(Some(stored("10.244.0.0/16", "False"))) else {
            panic!("a Configuration that is not applied must be waited for");
        };
        assert!(missing.ends_with("R: M, in here"), "{missing}");
    }
}
