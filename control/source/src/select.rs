//! Which objects are watched.

use crate::pauses::Pauses;
use crate::store::{Id, Item, Keys, Update};
use crate::trim::{self, Trim};
use control_api::{
    Configuration, Connection, GatewayClient, GatewayServer, IP, Network, PublicKey, labels,
};
use control_fabric::Object;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::core::NamespaceResourceScope;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use zeroize::Zeroizing;

/// The Secret that holds the private keys of all peerings.
const KEYS_SECRET: &str = "liqo-gateway-keys";

/// What the watch of one kind tells.
pub(crate) type Updates = BoxStream<'static, Result<Update, watcher::Error>>;

/// Watches what every part of the fabric reads: the kinds of `namespace`, Liqo's, and of
/// all.
pub(crate) fn fabric(client: &Client, namespace: &str) -> Vec<Updates> {
    let id = format!("{}={}", labels::APP_NAME, labels::CLUSTER_ID_CONFIG_MAP);
    let replicas = format!("{}={}", labels::COMPONENT, labels::COMPONENT_GATEWAY);
    // Those mirror Configurations, which are read themselves.
    let own = format!("!{}", labels::CONFIGURATION_CIDR_TYPE);
    let of_peers = labels::REMOTE_CLUSTER_ID;

    vec![
        objects::<ConfigMap>(Api::namespaced(client.clone(), namespace), &id),
        objects::<Node>(Api::all(client.clone()), ""),
        objects::<EndpointSlice>(Api::namespaced(client.clone(), namespace), &replicas),
        objects::<Network>(Api::all(client.clone()), &own),
        objects::<IP>(Api::all(client.clone()), ""),
        of_all::<Configuration>(client, of_peers),
        of_all::<GatewayServer>(client, of_peers),
        of_all::<GatewayClient>(client, of_peers),
        of_all::<PublicKey>(client, of_peers),
        tenant_namespaces(client),
    ]
}

/// Watches the labels by which an administrator chooses the namespaces of peers.
fn tenant_namespaces(client: &Client) -> Updates {
    let labelled = format!("{}=true", labels::TENANT_NAMESPACE);
    let config = Config::default().labels(&labelled);

    updates(Api::<Namespace>::all(client.clone()), config, |namespace| {
        Item::TenantNamespace(Box::new(trim::metadata(namespace.metadata)))
    })
}

/// Watches what only gateways need: their private keys in `namespace`, and the
/// Connections whose status they write.
pub(crate) fn gateway(client: &Client, namespace: &str) -> Vec<Updates> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let name = format!("metadata.name={KEYS_SECRET}");
    let keys = updates(secrets, Config::default().fields(&name), |secret| {
        Item::Keys(keys(secret))
    });

    vec![
        keys,
        of_all::<Connection>(client, labels::REMOTE_CLUSTER_ID),
    ]
}

fn keys(secret: Secret) -> Keys {
    let data = secret.data.unwrap_or_default();
    let keys = data.into_iter();
    keys.map(|(id, key)| (id, Zeroizing::new(key.0))).collect()
}

fn of_all<K>(client: &Client, selector: &str) -> Updates
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Trim + Into<Object> + 'static,
{
    objects::<K>(Api::all(client.clone()), selector)
}

fn objects<K>(api: Api<K>, selector: &str) -> Updates
where
    K: Resource<DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned + Send + Trim + Into<Object> + 'static,
{
    let mut config = Config::default();
    if !selector.is_empty() {
        config = config.labels(selector);
    }
    updates(api, config, |object| {
        Item::Object(Box::new(object.trim().into()))
    })
}

fn updates<K>(
    api: Api<K>,
    config: Config,
    item: impl Fn(K) -> Item + Send + Copy + 'static,
) -> Updates
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let updates = watcher::watcher(api, config).backoff(Pauses::new());
    let updates = updates.map(move |event| {
        event.map(|event| match event {
            Event::Init => Update::Begin,
            Event::InitApply(object) | Event::Apply(object) => {
                Update::Apply(id(&object), item(object))
            }
            Event::Delete(object) => Update::Delete(id(&object)),
            Event::InitDone => Update::End,
        })
    });

    updates.boxed()
}

/// Returns how an object is told from others of its kind.
pub(crate) fn id<K: Resource>(object: &K) -> Id {
    let metadata = object.meta();
    (
        metadata.namespace.clone(),
        metadata.name.clone().unwrap_or_default(),
    )
}
