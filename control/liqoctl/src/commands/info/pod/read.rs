//! Reads the objects of a pod: those of this cluster, and those of the provider with the VirtualNode's credentials.

use super::facts::{Counterparts, Facts, Provider, Read};
use crate::cluster::{Cluster, Installation};
use crate::commands::info::{foreign, local};
use crate::commands::offload::OFFLOADING;
use crate::failure::{Forbidden, Unreachable};
use crate::manager;
use anyhow::{Context as _, Result};
use control_api::{NamespaceMap, NamespaceOffloading, ShadowPod, VirtualNode};
use control_client::destination::Destinations;
use control_client::kubeconfig::RemoteConfig;
use k8s_openapi::api::core::v1::{Event, Node, Pod, Secret};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;

/// Entry of the Secret with the kubeconfig.
const KUBECONFIG: &str = "kubeconfig";

/// Entry of the Secret with the credentials of an IAM user, from which the controller-manager signs tokens.
const AWS_ACCESS_KEY_ID: &str = "awsAccessKeyID";

/// Maximum number of Events about one object that are read.
const EVENTS_MAX: u32 = 500;

/// Reads all objects. `limit` bounds the requests to the provider.
///
/// # Errors
///
/// Returns an error if the pod does not exist, or if the API server of the local cluster fails.
pub(super) async fn facts(
    cluster: &Cluster,
    installation: &Installation,
    (namespace, name): (&str, &str),
    limit: Duration,
) -> Result<Facts> {
    let client = || cluster.client.clone();
    let pods = Api::<Pod>::namespaced(client(), namespace);
    let pod = cluster.get(&pods, "pod", name).await?.with_context(|| {
        format!(
            "pod {namespace}/{name} does not exist in {}: check namespace and name",
            cluster.place()
        )
    })?;
    let node = pod.spec.as_ref().and_then(|it| it.node_name.clone());
    let offloadings = Api::<NamespaceOffloading>::namespaced(client(), namespace);
    let (events, offloading, node, virtual_node) = tokio::try_join!(
        events(cluster, namespace, name),
        one(cluster, &offloadings, "NamespaceOffloading", OFFLOADING),
        read_node(cluster, node.as_deref()),
        read_virtual_node(cluster, node.as_deref()),
    )?;
    let mut facts = Facts {
        cluster_id: installation.cluster_id.clone(),
        pod,
        events: events.found().cloned().unwrap_or_default(),
        offloading,
        node,
        virtual_node,
        foreign: Read::Absent,
        map: Read::Absent,
        provider: Provider::NotTried,
    };
    let virtual_node = facts.virtual_node.found().cloned();
    if let Some(virtual_node) = virtual_node {
        let id = facts.provider_id().unwrap_or_default();
        let tenant = virtual_node.namespace().unwrap_or_default();
        let maps = Api::<NamespaceMap>::namespaced(client(), &tenant);
        (facts.foreign, facts.map) = tokio::try_join!(
            read_foreign(cluster, id),
            one(cluster, &maps, "NamespaceMap", id),
        )?;
        let remote = facts.remote_namespace();
        let objects = remote.map(|remote| (remote, name));
        facts.provider = provider(cluster, installation, &virtual_node, objects, limit).await?;
    }
    Ok(facts)
}

async fn read_node(cluster: &Cluster, name: Option<&str>) -> Result<Read<Node>> {
    let Some(name) = name else {
        return Ok(Read::Absent);
    };
    one(cluster, &Api::all(cluster.client.clone()), "Node", name).await
}

/// Reads the VirtualNode of a Node, which may be in any tenant namespace.
async fn read_virtual_node(cluster: &Cluster, name: Option<&str>) -> Result<Read<VirtualNode>> {
    let Some(name) = name else {
        return Ok(Read::Absent);
    };
    let api = Api::<VirtualNode>::all(cluster.client.clone());
    let all = optional(cluster.list(&api, "VirtualNodes", "").await)?;
    Ok(match all {
        Read::Found(all) => match all.into_iter().find(|it| it.name_any() == name) {
            Some(found) => Read::Found(found),
            None => Read::Absent,
        },
        Read::Absent => Read::Absent,
        Read::Failed(reason) => Read::Failed(reason),
    })
}

async fn read_foreign(cluster: &Cluster, id: &str) -> Result<Read<kube::api::DynamicObject>> {
    Ok(match optional(local::foreign_clusters(cluster).await)? {
        Read::Found(all) => match all.into_iter().find(|it| foreign::id(it) == id) {
            Some(found) => Read::Found(found),
            None => Read::Absent,
        },
        Read::Absent => Read::Absent,
        Read::Failed(reason) => Read::Failed(reason),
    })
}

/// Reads the objects of the provider.
///
/// # Errors
///
/// Returns an error if the API server of the local cluster fails.
async fn provider(
    cluster: &Cluster,
    installation: &Installation,
    virtual_node: &VirtualNode,
    objects: Option<(&str, &str)>,
    limit: Duration,
) -> Result<Provider> {
    let tenant = virtual_node.namespace().unwrap_or_default();
    let Some(reference) = &virtual_node.spec.kubeconfig_secret_ref else {
        return Ok(Provider::NoCredentials(
            "spec.kubeconfigSecretRef of the VirtualNode is missing: name the Secret with the kubeconfig for the provider".to_owned(),
        ));
    };
    let name = &reference.name;
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), &tenant);
    let secret = match one(cluster, &secrets, "Secret", name).await? {
        Read::Found(secret) => secret,
        Read::Failed(reason) => return Ok(Provider::NotUsable(reason)),
        Read::Absent => {
            return Ok(Provider::NoCredentials(format!(
                "Secret {tenant}/{name} does not exist, which spec.kubeconfigSecretRef of the VirtualNode names: check the Identity of the ResourceSlice"
            )));
        }
    };
    let manager = manager::find(cluster, &installation.namespace).await?;
    let permits_local = manager
        .as_ref()
        .is_some_and(manager::permits_local_api_servers);
    // The provider has chosen its address: the rule of the controller-manager applies.
    let destinations = match permits_local {
        true => Destinations::Any,
        false => Destinations::Remote,
    };
    let opened = match open(&secret, destinations) {
        Ok(opened) => opened,
        Err(provider) => return Ok(provider),
    };
    let read = counterparts(&opened, objects);
    Ok(match tokio::time::timeout(limit, read).await {
        Ok(Ok(counterparts)) => Provider::Open(Box::new(counterparts)),
        Ok(Err(error)) => Provider::Unreachable(format!("{error:#}")),
        Err(_) => Provider::Unreachable(format!(
            "{} has not responded within {}",
            opened.place(),
            crate::parse::show_duration(limit)
        )),
    })
}

/// Prepares a client with the credentials of a Secret.
///
/// # Errors
///
/// Returns why they cannot be used.
fn open(secret: &Secret, destinations: Destinations) -> Result<Cluster, Provider> {
    let entry = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
    if entry(AWS_ACCESS_KEY_ID).is_some() {
        return Err(Provider::NotUsable(
            "the credentials are those of an IAM user of AWS, from which only the controller-manager signs tokens".to_owned(),
        ));
    }
    let text = entry(KUBECONFIG).map_or(&[][..], |it| it.0.as_slice());
    let text = String::from_utf8_lossy(text);
    let invalid = |error: String| {
        let name = secret.name_any();
        Provider::NoCredentials(format!(
            "Secret {}/{name}: {error}",
            secret.namespace().unwrap_or_default()
        ))
    };
    let config = RemoteConfig::parse(&text, destinations).map_err(|it| invalid(it.to_string()))?;
    Cluster::of_provider(&config, destinations).map_err(|it| invalid(it.to_string()))
}

/// Reads the counterparts of a pod. `objects` are their namespace and name, if the provider has created the namespace.
///
/// # Errors
///
/// Returns an error if the API server does not respond, or refuses the credentials.
async fn counterparts(provider: &Cluster, objects: Option<(&str, &str)>) -> Result<Counterparts> {
    let version = provider.client.apiserver_version().await;
    let version = version.map_err(provider.failed("reach the API server"))?;
    let mut counterparts = Counterparts {
        version: version.git_version,
        shadow: Read::Absent,
        pod: Read::Absent,
        events: Read::Absent,
    };
    let Some((namespace, name)) = objects else {
        return Ok(counterparts);
    };
    let shadows = Api::<ShadowPod>::namespaced(provider.client.clone(), namespace);
    let pods = Api::<Pod>::namespaced(provider.client.clone(), namespace);
    let (shadow, pod, events) = tokio::join!(
        one(provider, &shadows, "ShadowPod", name),
        one(provider, &pods, "pod", name),
        events(provider, namespace, name),
    );
    counterparts.shadow = of_provider(shadow)?;
    counterparts.pod = of_provider(pod)?;
    counterparts.events = of_provider(events)?;
    Ok(counterparts)
}

/// Turns an error of the provider about one object into the state of that object.
fn of_provider<T>(read: Result<Read<T>>) -> Result<Read<T>> {
    match read {
        Err(error) if !error.is::<Unreachable>() => Ok(Read::Failed(format!("{error:#}"))),
        other => other,
    }
}

/// Reads the Events about the objects of one name.
async fn events(cluster: &Cluster, namespace: &str, name: &str) -> Result<Read<Vec<Event>>> {
    let api = Api::<Event>::namespaced(cluster.client.clone(), namespace);
    let params = ListParams::default()
        .fields(&format!("involvedObject.name={name}"))
        .limit(EVENTS_MAX);
    let listed = api.list(&params).await;
    let listed = listed.map_err(cluster.failed("list Events"));
    optional(listed.map(|it| it.items))
}

async fn one<K>(cluster: &Cluster, api: &Api<K>, noun: &str, name: &str) -> Result<Read<K>>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    Ok(match optional(cluster.get(api, noun, name).await)? {
        Read::Found(Some(object)) => Read::Found(object),
        Read::Found(None) | Read::Absent => Read::Absent,
        Read::Failed(reason) => Read::Failed(reason),
    })
}

/// Takes a missing right as a reason why an object was not read.
fn optional<T>(read: Result<T>) -> Result<Read<T>> {
    match read {
        Ok(found) => Ok(Read::Found(found)),
        Err(error) if error.is::<Forbidden>() => Ok(Read::Failed(format!("{error:#}"))),
        Err(error) => Err(error),
    }
}
