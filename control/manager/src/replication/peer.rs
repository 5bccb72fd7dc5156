//! Providers: their credentials, and the watches of the replicas.

use super::access::{Access, Next, review};
use super::item::WorkItem;
use super::kind::Kind;
use super::selection::{FINALIZER, provider};
use control_api::core::foreign_cluster::{
    ForeignClusterConditionStatus, ForeignClusterConditionType,
};
use control_api::{ForeignCluster, annotations, labels};
use control_runtime::{
    Cache, Cluster, ClusterChange, Destinations, Env, Event, Key, Plan, Ref, RemoteConfig,
    Selector, WatchChange, WatchId,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::time::{Duration, Instant};

/// Time for the lists of a provider's objects, after which a review shows whether it permits them.
const LIST_MAX: Duration = Duration::from_secs(5);

/// Interval between two reviews while the objects of a provider are not listed.
const INTERVAL: Duration = Duration::from_secs(15);

/// Index of the kubeconfig Secrets of control planes by the provider.
pub(super) const BY_PROVIDER: &str = "replication/provider";

/// A provider that this cluster is connected to.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The tenant namespace of this cluster.
    pub(super) namespace: String,
    /// The tenant namespace of the provider.
    pub(super) remote_namespace: String,
    config: RemoteConfig,
    pub(super) access: Access,
    /// Since when the watches are planned; `None` if they are not.
    watched_since: Option<Instant>,
}

impl Peer {
    /// Returns whether the replicas of a kind are known.
    pub(super) fn is_listed(&self, kind: Kind, id: &str, consumer: &str, cache: &Cache) -> bool {
        cache.is_synced(&self.watch(kind, id, consumer))
    }

    /// Returns the watch of this cluster's replicas of a kind.
    fn watch(&self, kind: Kind, id: &str, consumer: &str) -> WatchId {
        WatchId {
            cluster: Cluster::remote(id),
            resource: kind.resource(),
            namespace: Some(self.remote_namespace.clone()),
            selector: Selector {
                labels: format!(
                    "{}={consumer},{}=true",
                    labels::ORIGIN_ID,
                    labels::REPLICATED
                ),
                name: None,
            },
        }
    }

    /// Adds the watches, and returns since when they are planned.
    fn add_watches(
        &mut self,
        id: &str,
        consumer: &str,
        now: Instant,
        plan: &mut Plan<WorkItem>,
    ) -> Instant {
        if self.watched_since.is_none() {
            let watches = Kind::ALL.map(|kind| self.watch(kind, id, consumer));
            plan.watches.extend(watches.map(WatchChange::Add));
        }
        *self.watched_since.get_or_insert(now)
    }

    /// Removes the watches.
    fn remove_watches(&mut self, id: &str, consumer: &str, plan: &mut Plan<WorkItem>) {
        if self.watched_since.take().is_some() {
            let watches = Kind::ALL.map(|kind| self.watch(kind, id, consumer));
            plan.watches.extend(watches.map(WatchChange::Remove));
        }
    }
}

/// Returns the provider whose control plane a Secret has the kubeconfig of.
pub(super) fn provider_of(metadata: &ObjectMeta) -> Option<&str> {
    let labels = metadata.labels.as_ref()?;
    let is_control_plane =
        labels.get(labels::IDENTITY_TYPE).map(String::as_str) == Some("ControlPlane");
    let provider = labels.get(labels::REMOTE_CLUSTER_ID).map(String::as_str);
    let annotations = metadata.annotations.as_ref()?;

    provider.filter(|_| {
        is_control_plane && annotations.contains_key(annotations::REMOTE_TENANT_NAMESPACE)
    })
}

/// Plans the connection to a provider.
///
/// A Secret that is gone does not end the connection before the replicas are gone: the Renew of an Identity is deleted after
/// the Secret.
pub(super) fn plan(
    peer: &mut Option<Peer>,
    (id, consumer): (&str, &str),
    destinations: Destinations,
    cache: &Cache,
    env: &Env<'_>,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    match credentials(id, destinations, cache, &mut plan) {
        Some(new) => connect(peer, new, (id, consumer), &mut plan),
        None => {
            let is_needed = peer
                .as_ref()
                .is_some_and(|peer| has_replicated(peer, id, cache));
            if !is_needed && peer.take().is_some() {
                plan.clusters
                    .push(ClusterChange::Remove(Cluster::remote(id)));
            }
        }
    }
    let Some(peer) = peer else {
        return plan;
    };
    let item = || WorkItem::Peer(id.to_owned());
    match peer.access.next(env.at) {
        Next::Permitted => {
            let since = peer.add_watches(id, consumer, env.at, &mut plan);
            let is_listed = Kind::ALL
                .iter()
                .all(|kind| peer.is_listed(*kind, id, consumer, cache));
            let waited = env.at.saturating_duration_since(since);
            if !is_listed && waited < LIST_MAX {
                plan.requeue.push((LIST_MAX.saturating_sub(waited), item()));
            } else if !is_listed {
                // The provider may refuse the lists, which is no outcome of a request.
                plan.writes
                    .push(review(&Cluster::remote(id), &peer.remote_namespace));
                plan.requeue.push((INTERVAL, item()));
            }
        }
        Next::Wait(rest) => {
            peer.remove_watches(id, consumer, &mut plan);
            plan.requeue.push((rest, item()));
        }
        Next::Review => {
            plan.writes
                .push(review(&Cluster::remote(id), &peer.remote_namespace));
        }
    }

    plan
}

/// Sets the credentials of a provider, and forgets what was known if they are for another namespace.
fn connect(
    peer: &mut Option<Peer>,
    new: Peer,
    (id, consumer): (&str, &str),
    plan: &mut Plan<WorkItem>,
) {
    let cluster = Cluster::remote(id);
    match peer {
        Some(known)
            if known.namespace == new.namespace
                && known.remote_namespace == new.remote_namespace =>
        {
            if known.config != new.config {
                plan.clusters
                    .push(ClusterChange::Set(cluster, Box::new(new.config.clone())));
                known.config = new.config;
                // The new credentials may have rights that the old ones lacked.
                known.access = Access::default();
            }
        }
        _ => {
            if let Some(known) = peer {
                known.remove_watches(id, consumer, plan);
            }
            plan.clusters
                .push(ClusterChange::Set(cluster, Box::new(new.config.clone())));
            *peer = Some(new);
        }
    }
}

/// Returns the provider that the Secret of its control plane describes.
fn credentials(
    id: &str,
    destinations: Destinations,
    cache: &Cache,
    plan: &mut Plan<WorkItem>,
) -> Option<Peer> {
    let secrets = cache.objects::<Secret>(&Cluster::Local);
    let mut of_provider: Vec<_> = secrets.indexed(BY_PROVIDER, id).collect();
    of_provider.sort_by_key(|(key, _)| *key);
    let mut of_provider = of_provider.into_iter();
    let (key, secret) = of_provider.next()?;
    let mut warn = |key: &Key, reason, note| {
        plan.events.push(Event {
            object: Ref::of::<Secret>(&Cluster::Local, key),
            is_warning: true,
            reason,
            note,
            is_repeated: false,
        });
    };
    for (other, _) in of_provider {
        let note = format!(
            "Secret {key} has credentials of the same provider and is used: delete one of the two"
        );
        warn(other, "DuplicateCredentials", note);
    }
    let annotations = secret.metadata.annotations.as_ref()?;
    let remote_namespace = annotations.get(annotations::REMOTE_TENANT_NAMESPACE)?;
    let data = secret.data.as_ref().and_then(|data| data.get("kubeconfig"));
    let text = data.and_then(|data| std::str::from_utf8(&data.0).ok());
    let Some(text) = text else {
        let note = "data.kubeconfig is missing or no text".to_owned();
        warn(key, "InvalidKubeconfig", note);
        return None;
    };
    match RemoteConfig::parse(text, destinations) {
        Ok(config) => Some(Peer {
            namespace: key.namespace.clone(),
            remote_namespace: remote_namespace.clone(),
            config,
            access: Access::default(),
            watched_since: None,
        }),
        Err(error) => {
            warn(
                key,
                "InvalidKubeconfig",
                format!("data.kubeconfig: {error}"),
            );
            None
        }
    }
}

/// Returns whether objects of this cluster may still have replicas at a provider.
fn has_replicated(peer: &Peer, id: &str, cache: &Cache) -> bool {
    Kind::ALL.into_iter().any(|kind| {
        let objects = kind
            .within(cache, &Cluster::Local, &peer.namespace)
            .into_iter();
        let mut finalized = objects.filter(|(_, metadata)| {
            let finalizers = metadata.finalizers.iter().flatten();
            finalizers.into_iter().any(|it| it == FINALIZER.name)
        });
        finalized.any(|(_, metadata)| provider(metadata) == Some(id))
    })
}

/// Returns whether a user has declared that a provider never answers again.
pub(super) fn is_dead(id: &str, cache: &Cache) -> bool {
    let Some(foreign) = cache.local::<ForeignCluster>(&Key::cluster(id)) else {
        return false;
    };
    let annotations = foreign.metadata.annotations.as_ref();
    let is_declared = annotations
        .and_then(|it| it.get(annotations::PERMANENTLY_UNREACHABLE))
        .is_some_and(|value| value == "true");
    let conditions = foreign.status.iter().flat_map(|status| &status.conditions);
    let mut answers = conditions.into_iter().filter(|it| {
        it.type_ == ForeignClusterConditionType::APIServerStatus
            && it.status == ForeignClusterConditionStatus::Established
    });

    is_declared && answers.next().is_none()
}
