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
use zeroize::Zeroizing;

/// The Secret that holds the private keys of all peerings.
const KEYS_SECRET: &str = "liqo-gateway-keys";

/// The private keys of this cluster's gateways, raw, by the peer's cluster id.
pub type Keys = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// The cached form of the Secret with the private keys.
#[derive(PartialEq)]
pub(crate) struct KeysSecret(pub(crate) Keys);

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
pub(crate) fn registrations(namespace: &str, scope: Scope) -> Vec<Registration> {
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
