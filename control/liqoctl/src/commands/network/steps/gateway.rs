//! One side's gateway, on which several steps act.

use crate::kinds::gateway::{self, Gateway as Kind, Spec};
use crate::objects;
use crate::pair::Side;
use crate::removal::Removal;
use crate::steps::Undo;
use anyhow::Result;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt as _};
use serde_json::Value;

/// One side's gateway.
#[derive(Clone, Copy)]
pub(crate) struct Gateway<'a> {
    /// The cluster of the gateway.
    pub(crate) side: &'a Side,
    /// The tenant namespace.
    pub(crate) namespace: &'a str,
    /// Whether upstream's controllers create the gateway from a template, in its own pod.
    pub(crate) upstream: bool,
}

impl<'a> Gateway<'a> {
    /// Returns the gateway of a side.
    pub(crate) fn new(side: &'a Side, namespace: &'a str, upstream: bool) -> Self {
        Self {
            side,
            namespace,
            upstream,
        }
    }

    /// Returns the API of the gateway's objects of a kind.
    pub(crate) fn api<K: objects::Kind>(&self) -> Api<K> {
        Api::namespaced(self.side.cluster.client.clone(), self.namespace)
    }

    /// Returns the gateway's object of a kind, or none.
    pub(crate) async fn object<K: objects::Kind>(&self) -> Result<Option<K>> {
        objects::find(&self.side.cluster, self.namespace, &self.side.peer).await
    }

    /// Returns the name of the gateway's object: that of the existing one, else the peer's cluster ID.
    pub(crate) fn name(&self, existing: Option<&impl Kind>) -> String {
        existing.map_or_else(|| self.side.peer.clone(), |existing| existing.name_any())
    }

    /// Returns the GatewayServer or GatewayClient for `spec`.
    pub(crate) fn manifest<G: Kind>(&self, name: &str, spec: &Spec<G>) -> Value {
        let object = gateway::manifest(name, self.namespace, &self.side.peer, spec);
        self.side.cluster.with_metadata(object)
    }

    /// Returns the removal of the gateway's objects of a kind, which progress lines call `noun`.
    pub(crate) fn removal<G: Kind>(&self, noun: &'static str) -> Box<dyn Undo + 'a> {
        Box::new(Removal::<G>::new(self.side, self.namespace, noun))
    }

    /// Returns the false conditions of the gateway's objects, which callers append to a message.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server fails.
    pub(crate) async fn problems<K: Kind>(&self) -> Result<String> {
        let cluster = &self.side.cluster;
        let resource = ApiResource::erase::<K>(&());
        let client = cluster.client.clone();
        let api = Api::<DynamicObject>::namespaced_with(client, self.namespace, &resource);
        let selector = objects::selector(&self.side.peer);
        let found = cluster.list(&api, &resource.plural, &selector).await?;
        let mut text = String::new();
        for object in &found {
            for condition in false_conditions(&object.data) {
                text += &format!(
                    "; {} {} reports {condition}",
                    K::kind(&()),
                    object.name_any()
                );
            }
        }
        Ok(text)
    }
}

/// Returns reason and message of every condition that is false.
fn false_conditions(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["status"] == "False")
        .map(|condition| {
            let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("reason"), text("message"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn false_conditions_are_shown_with_reason_and_message() {
        let object = json!({"status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": "PortTaken", "message": "31110 is in use"},
            {"type": "Other", "status": "True", "reason": "Fine", "message": ""},
        ]}});

        assert_eq!(false_conditions(&object), ["PortTaken: 31110 is in use"]);
        assert!(false_conditions(&json!({})).is_empty());
    }
}
