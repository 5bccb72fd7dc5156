//! The watched resources, and the fields of their objects that the cache keeps.

use crate::blocks;
use crate::followed::Followed;
use crate::prune::{self, Prune};
use control_api::{Configuration, GatewayClient, GatewayServer, IP, Network, PublicKey, labels};
use control_fabric::Object;
use control_runtime::{Kept, Registration, Resource, Scope as In};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The Secret that holds the private keys of all peerings.
const KEYS_SECRET: &str = "liqo-gateway-keys";

/// The private keys of this cluster's gateways. Copies share them with the cache.
#[derive(Clone, Default)]
pub struct Keys(pub(crate) Vec<Arc<KeysSecret>>);

/// The cached form of the Secret with the private keys: the raw keys, by the peer's cluster id.
#[derive(PartialEq)]
pub(crate) struct KeysSecret(BTreeMap<String, Zeroizing<Vec<u8>>>);

impl Keys {
    /// Returns the raw key for a peer.
    pub fn get(&self, cluster_id: &str) -> Option<&[u8]> {
        let found = self.0.iter().find_map(|secret| secret.0.get(cluster_id));

        found.map(|key| key.as_slice())
    }

    /// Returns whether both are the same version of the Secret. Compares no keys.
    pub fn is_same(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);

        self.0.len() == other.0.len() && pairs.into_iter().all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

impl Kept for KeysSecret {
    fn resource() -> Resource {
        Resource::of::<Secret>()
    }
}

/// The process that watches, which determines the watched resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A node's route agent.
    Node,
    /// A gateway, which also needs private keys.
    Gateway,
}

/// Returns the resources that a route agent or a gateway watches, with Liqo in `namespace`.
pub fn registrations(namespace: &str, scope: Scope) -> Vec<Registration> {
    let id = format!("{}={}", labels::APP_NAME, labels::CLUSTER_ID_CONFIG_MAP);
    let replicas = format!("{}={}", labels::COMPONENT, labels::COMPONENT_GATEWAY);
    // Networks with this label copy CIDRs of Configurations, which are watched anyway.
    let own = format!("!{}", labels::CONFIGURATION_CIDR_TYPE);
    let tenants = format!("{}=true", labels::TENANT_NAMESPACE);
    let liqo = || In::Namespace(namespace.to_owned());
    let namespaces = Registration::of(In::All, |namespace: Namespace| Namespace {
        metadata: prune::metadata(namespace.metadata),
        ..Namespace::default()
    });
    let mut all = vec![
        objects::<ConfigMap>(liqo(), &id),
        objects::<Node>(In::All, ""),
        objects::<EndpointSlice>(liqo(), &replicas),
        objects::<Network>(In::All, &own),
        objects::<IP>(In::All, ""),
        of_peers::<Configuration>(),
        of_peers::<GatewayServer>(),
        of_peers::<GatewayClient>(),
        of_peers::<PublicKey>(),
        // An administrator labels the tenant namespaces of peers.
        namespaces.labels(tenants),
    ];
    if scope == Scope::Gateway {
        all.push(Registration::of(liqo(), keys).name(KEYS_SECRET));
    }
    all.extend(blocks::registrations());

    all
}

fn of_peers<K>() -> Registration
where
    K: kube::Resource<DynamicType = ()>
        + Kept
        + Prune
        + Into<Object>
        + Clone
        + Debug
        + DeserializeOwned,
{
    objects::<K>(In::All, labels::REMOTE_CLUSTER_ID)
}

fn objects<K>(scope: In, labels: &str) -> Registration
where
    K: kube::Resource<DynamicType = ()>
        + Kept
        + Prune
        + Into<Object>
        + Clone
        + Debug
        + DeserializeOwned,
{
    Registration::of(scope, |object: K| Followed::new(object.prune())).labels(labels)
}

fn keys(secret: Secret) -> KeysSecret {
    let data = secret.data.unwrap_or_default();
    let keys = data.into_iter();
    KeysSecret(keys.map(|(id, key)| (id, Zeroizing::new(key.0))).collect())
}
