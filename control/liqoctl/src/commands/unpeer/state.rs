//! The state of a peering before its end.

use super::provider::{self, Gone};
use crate::commands::authenticate::{is_through_tunnel, requested};
use crate::objects;
use crate::pair::{Pair, Side};
use crate::wait::{Deadline, Found};
use anyhow::Result;
use control_api::authentication::auth_params::AuthParams;
use control_api::core::foreign_cluster::{ForeignCluster, ForeignClusterConditionStatus};
use control_api::{Connection, Identity, NamespaceMap, Renew, ResourceSlice, Tenant, labels};
use kube::Api;
use std::collections::BTreeSet;
use std::time::Duration;

/// Time in which the controller manager must report that it reaches the provider.
const REACHED: Duration = Duration::from_secs(6);

/// The state of a peering at the consumer.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Whether the provider is also a consumer of this cluster.
    pub(super) is_reversed: bool,
    /// Whether the controller manager reaches the provider through the tunnel only.
    pub(super) is_in_band: bool,
    /// The objects that the controller manager replicates to the provider.
    pub(super) requested: Requested,
}

/// The objects of the consumer that have replicas at the provider.
#[derive(Debug, Default)]
pub(super) struct Requested {
    slices: Vec<ResourceSlice>,
    /// An Identity has one as long as it exists, also without ResourceSlices.
    renews: Vec<Renew>,
    pub(super) maps: Vec<NamespaceMap>,
}

impl State {
    /// Reads the state from the tenant namespace, if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server fails.
    pub(super) async fn read(consumer: &Side, namespace: Option<&str>) -> Result<Self> {
        let Some(namespace) = namespace else {
            return Ok(Self::default());
        };
        let (cluster, peer) = (&consumer.cluster, &consumer.peer);
        let selector = requested(peer);
        let (is_reversed, identities, slices, renews, maps) = tokio::try_join!(
            is_reversed(consumer, Some(namespace)),
            objects::list::<Identity>(cluster, namespace, peer),
            objects::select::<ResourceSlice>(cluster, namespace, &selector),
            objects::select::<Renew>(cluster, namespace, &selector),
            objects::select::<NamespaceMap>(cluster, namespace, &selector),
        )?;
        let mut parameters = identities.iter().map(|it| it.spec.auth_params.as_ref());
        let is_in_band = match parameters.find_map(proxy_url) {
            Some(url) => is_through_tunnel(consumer, namespace, url).await?,
            None => false,
        };
        Ok(Self {
            is_reversed,
            is_in_band,
            requested: Requested {
                slices,
                renews,
                maps,
            },
        })
    }

    /// Checks that the controller manager reaches the provider, where it must delete replicas. It waits for a provider
    /// that has just returned. A provider that is gone is returned and not waited for.
    ///
    /// # Errors
    ///
    /// Returns an error that names `force unpeer`.
    pub(super) async fn check_reachable(
        &self,
        pair: &Pair,
        (here, there): (Option<&str>, Option<&str>),
    ) -> Result<Option<Gone>> {
        let Some(namespace) = here.filter(|_| self.requested.has_replicas()) else {
            return Ok(None);
        };
        let consumer = &pair.local;
        let peer = &consumer.peer;
        let goal = format!("nothing was changed: reaching the API server of {peer}");
        let mut known = None;
        Deadline::after(REACHED)
            .until(&goal, async || {
                let Some(obstacle) = self.obstacle(consumer, namespace).await? else {
                    return Ok(Found::Ready(None));
                };
                // Connecting once is enough: a provider that returns meanwhile is reported by the controller manager.
                let gone = match known {
                    Some(gone) => gone,
                    None => provider::gone(pair, namespace, there, self.is_reversed).await?,
                };
                known = Some(gone);
                if gone.is_some() {
                    return Ok(Found::Ready(gone));
                }
                Ok(Found::Missing(format!(
                    "the controller-manager in {} {obstacle}; if cluster {peer} will never respond again, run `liqoctl force unpeer {peer}`",
                    consumer.cluster.place()
                )))
            })
            .await
    }

    /// Returns why the controller manager does not reach the provider, or none if it does or need not.
    async fn obstacle(&self, consumer: &Side, namespace: &str) -> Result<Option<&'static str>> {
        let (cluster, peer) = (&consumer.cluster, &consumer.peer);
        let api = Api::<ForeignCluster>::all(cluster.client.clone());
        let foreign = cluster.get(&api, "ForeignCluster", peer).await?;
        if foreign
            .as_ref()
            .is_some_and(ForeignCluster::is_declared_dead)
        {
            return Ok(None);
        }
        if foreign.as_ref().is_some_and(is_unreachable) {
            return Ok(Some("does not reach it"));
        }
        if self.is_in_band && !is_connected(consumer, namespace).await? {
            return Ok(Some(
                "reaches it through the tunnel, which is not connected",
            ));
        }
        Ok(None)
    }
}

impl Requested {
    /// Returns whether the controller manager must delete replicas at the provider.
    fn has_replicas(&self) -> bool {
        [self.slices.len(), self.renews.len(), self.maps.len()] != [0; 3]
    }

    /// Returns the namespaces that are mapped to namespaces of the provider, in alphabetical order.
    pub(super) fn offloaded(&self) -> Vec<String> {
        let names = self
            .maps
            .iter()
            .flat_map(|map| map.spec.desired_mapping.keys());
        let names: BTreeSet<String> = names.cloned().collect();
        names.into_iter().collect()
    }
}

/// Returns whether the provider is also a consumer of this cluster, whose Tenant is not being deleted. In-band, its Renews
/// ([`has_renews_by_proxy`]) and the network are deleted after the Tenant.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(super) async fn is_reversed(consumer: &Side, namespace: Option<&str>) -> Result<bool> {
    let Some(namespace) = namespace else {
        return Ok(false);
    };
    let tenants = objects::list::<Tenant>(&consumer.cluster, namespace, &consumer.peer).await?;
    let mut tenants = tenants.iter();
    Ok(tenants.any(|tenant| tenant.metadata.deletion_timestamp.is_none()))
}

/// Returns whether this cluster has replicas of Renews of the provider, which reaches this cluster through a proxy. In-band, its
/// controller manager deletes them through the tunnel. Without a proxy, it needs no tunnel, and no command waits for their end.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(super) async fn has_renews_by_proxy(consumer: &Side, namespace: Option<&str>) -> Result<bool> {
    let Some(namespace) = namespace else {
        return Ok(false);
    };
    let (replicated, origin) = (labels::REPLICATED, labels::ORIGIN_ID);
    let selector = format!("{replicated}=true,{origin}={}", consumer.peer);
    let renews = objects::select::<Renew>(&consumer.cluster, namespace, &selector).await?;
    let mut statuses = renews.iter().filter_map(|renew| renew.status.as_ref());
    Ok(statuses.any(|status| proxy_url(status.auth_params.as_ref()).is_some()))
}

/// Returns the URL of the proxy in front of a provider's API server.
fn proxy_url(parameters: Option<&AuthParams>) -> Option<&str> {
    let url = parameters?.proxy_url.as_deref()?;
    (!url.is_empty()).then_some(url)
}

/// Returns whether the tunnel to the provider is connected.
async fn is_connected(consumer: &Side, namespace: &str) -> Result<bool> {
    let (cluster, peer) = (&consumer.cluster, &consumer.peer);
    let connection: Option<Connection> = objects::find(cluster, namespace, peer).await?;
    let value = connection.and_then(|connection| connection.status?.value);

    Ok(value.as_deref() == Some("Connected"))
}

/// Returns whether the controller manager reports that the API server does not respond.
fn is_unreachable(foreign: &ForeignCluster) -> bool {
    foreign.is_api_server(ForeignClusterConditionStatus::Error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn foreign(annotations: &Value, status: &str) -> ForeignCluster {
        from_value(json!({
            "apiVersion": "core.liqo.io/v1beta1", "kind": "ForeignCluster",
            "metadata": {"name": "milan", "annotations": annotations},
            "spec": {"clusterID": "milan"},
            "status": {"role": "Provider", "conditions": [{"type": "APIServerStatus", "status": status}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_cluster_that_is_declared_dead_is_not_waited_for() {
        let dead = json!({"liqo.io/foreign-cluster-permanently-unreachable": "true"});

        assert!(is_unreachable(&foreign(&json!({}), "Error")));
        assert!(!is_unreachable(&foreign(&json!({}), "Established")));
        assert!(foreign(&dead, "Error").is_declared_dead());
        assert!(!foreign(&json!({}), "Error").is_declared_dead());
    }

    #[test]
    fn offloaded_namespaces_are_listed_once() {
        let map = |mapping: Value| -> NamespaceMap {
            from_value(json!({
                "apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceMap",
                "metadata": {"name": "milan"}, "spec": {"desiredMapping": mapping},
            }))
            .unwrap()
        };
        let requested = Requested {
            maps: vec![
                map(json!({"b": "b-1", "a": "a-1"})),
                map(json!({"a": "a-2"})),
            ],
            ..Requested::default()
        };

        assert_eq!(requested.offloaded(), ["a", "b"]);
    }

    #[test]
    fn a_renew_without_resource_slices_has_a_replica() {
        let renew = json!({
            "apiVersion": "authentication.liqo.io/v1beta1", "kind": "Renew",
            "metadata": {"name": "controlplane-milan"},
            "spec": {"consumerClusterID": "rome", "identityType": "ControlPlane"},
        });
        let requested = Requested {
            renews: vec![from_value(renew).unwrap()],
            ..Requested::default()
        };

        assert!(requested.has_replicas());
        assert!(!Requested::default().has_replicas());
    }
}
