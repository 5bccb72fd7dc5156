//! Providers: their credentials, and the watches of the replicas.

use super::access::{Access, Next, Right};
use super::item::WorkItem;
use super::kind::Kind;
use super::selection::{FINALIZER, provider};
use crate::authentication::eks_credentials;
use control_api::core::foreign_cluster::ForeignClusterConditionStatus;
use control_api::tenant_namespace::peer_of;
use control_api::{ForeignCluster, annotations, labels};
use control_runtime::{
    Cache, Cluster, ClusterChange, Destinations, Env, Event, Key, Outcome, Plan, Ref, RemoteConfig,
    Selector, WatchChange, WatchId, Write,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
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
    /// Cluster ID of this cluster, by which the provider knows its replicas.
    consumer: String,
    /// The tenant namespace of this cluster.
    pub(super) namespace: String,
    /// The tenant namespace of the provider.
    pub(super) remote_namespace: String,
    config: RemoteConfig,
    pub(super) access: Access,
    /// Whether the last response was that of another authority's server.
    pub(super) is_untrusted: bool,
    /// When a review is due unless the watches are listed; `None` if they are not planned.
    listed_by: Option<Instant>,
    /// Whether the watch of exported Services is planned. It is needed while there are any.
    is_exporting: bool,
}

impl Peer {
    /// Takes the outcome of a request, which may be of a server of another authority: another cluster has the address, or
    /// an attacker. Returns whether that has changed.
    ///
    /// It ends waits for the provider, and nothing else: an attacker must not end a peering.
    pub(super) fn trust(&mut self, outcome: &Outcome) -> bool {
        let is_untrusted = match outcome {
            Outcome::Untrusted(_) => true,
            // No response.
            Outcome::TimedOut | Outcome::Failed(_) | Outcome::NotLeader => self.is_untrusted,
            Outcome::Stored(_)
            | Outcome::Answer(_)
            | Outcome::Gone
            | Outcome::AlreadyExists(_)
            | Outcome::Conflict(_)
            | Outcome::Refused(_) => false,
        };
        let before = std::mem::replace(&mut self.is_untrusted, is_untrusted);

        before != is_untrusted
    }

    /// Returns whether the replicas of a kind are known.
    pub(super) fn is_listed(&self, kind: Kind, id: &str, consumer: &str, cache: &Cache) -> bool {
        self.consumer == consumer && cache.is_synced(&self.watch(kind, id))
    }

    /// Returns the request for a review of a right.
    fn review(&mut self, id: &str, right: Right) -> Write {
        let (provider, namespace) = (Cluster::remote(id), &self.remote_namespace);
        self.access.review(&provider, namespace, right)
    }

    /// Returns the watch of this cluster's replicas of a kind.
    fn watch(&self, kind: Kind, id: &str) -> WatchId {
        WatchId {
            cluster: Cluster::remote(id),
            resource: kind.resource(),
            namespace: Some(self.remote_namespace.clone()),
            selector: Selector {
                labels: format!(
                    "{}={},{}=true",
                    labels::ORIGIN_ID,
                    self.consumer,
                    labels::REPLICATED
                ),
                ..Selector::default()
            },
        }
    }

    /// Adds or removes the watches.
    fn set_watched(&mut self, id: &str, listed_by: Option<Instant>, plan: &mut Plan<WorkItem>) {
        if self.listed_by.is_some() == listed_by.is_some() {
            return;
        }
        self.listed_by = listed_by;
        let watches = Kind::REQUIRED.map(|kind| self.watch(kind, id));
        let change = if listed_by.is_some() {
            WatchChange::Add
        } else {
            WatchChange::Remove
        };
        plan.watches.extend(watches.map(change));
    }

    /// Adds or removes the watch of exported Services.
    fn set_exporting(&mut self, id: &str, is_exporting: bool, plan: &mut Plan<WorkItem>) {
        if self.is_exporting != is_exporting {
            self.is_exporting = is_exporting;
            let watch = self.watch(Kind::ExportedService, id);
            plan.watches.push(if is_exporting {
                WatchChange::Add(watch)
            } else {
                WatchChange::Remove(watch)
            });
        }
    }

    /// Returns whether the provider has not the kind of objects, or does not permit it.
    pub(super) fn lacks(&self, kind: Kind, id: &str, cache: &Cache) -> bool {
        kind == Kind::ExportedService && cache.refusal(&self.watch(kind, id)).is_some()
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
    match credentials((id, consumer), destinations, cache, env.now, &mut plan) {
        Some(new) => connect(peer, new, id, &mut plan),
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
            peer.set_watched(id, Some(env.at + LIST_MAX), &mut plan);
            let has_exports = is_exporting(peer, id, cache);
            peer.set_exporting(id, has_exports, &mut plan);
            let mut kinds = Kind::REQUIRED.into_iter();
            let is_listed = kinds.all(|kind| peer.is_listed(kind, id, consumer, cache));
            if let (false, Some(due)) = (is_listed, peer.listed_by) {
                let mut wait = due.saturating_duration_since(env.at);
                if wait.is_zero() {
                    // The provider may refuse the lists, which is no outcome of a request. One that lacks a kind still serves
                    // ResourceSlices.
                    let right = Right::create(Kind::ResourceSlice.resource());
                    plan.writes.push(peer.review(id, right));
                    wait = INTERVAL;
                    peer.listed_by = Some(env.at + wait);
                }
                plan.requeue.push((wait, item()));
            }
        }
        Next::Wait(rest) => {
            peer.set_watched(id, None, &mut plan);
            peer.set_exporting(id, false, &mut plan);
            plan.requeue.push((rest, item()));
        }
        Next::Review(right) => plan.writes.push(peer.review(id, right)),
    }

    plan
}

/// Sets the credentials of a provider, and forgets what was known if they are for another namespace, or if this cluster has
/// another ID.
fn connect(peer: &mut Option<Peer>, new: Peer, id: &str, plan: &mut Plan<WorkItem>) {
    let cluster = Cluster::remote(id);
    match peer {
        Some(known)
            if known.consumer == new.consumer
                && known.namespace == new.namespace
                && known.remote_namespace == new.remote_namespace =>
        {
            if known.config != new.config {
                plan.clusters
                    .push(ClusterChange::Set(cluster, Box::new(new.config.clone())));
                known.config = new.config;
            }
        }
        _ => {
            if let Some(known) = peer {
                known.set_watched(id, None, plan);
                known.set_exporting(id, false, plan);
            }
            plan.clusters
                .push(ClusterChange::Set(cluster, Box::new(new.config.clone())));
            *peer = Some(new);
        }
    }
}

/// Returns the provider that the Secret of its control plane describes.
fn credentials(
    (id, consumer): (&str, &str),
    destinations: Destinations,
    cache: &Cache,
    now: Timestamp,
    plan: &mut Plan<WorkItem>,
) -> Option<Peer> {
    let secrets = cache.objects::<Secret>(&Cluster::Local);
    let namespaces = cache.objects::<Namespace>(&Cluster::Local);
    // A user with rights in another namespace could displace the credentials otherwise.
    let is_placed = |key: &Key| {
        let namespace = namespaces.get(&Key::cluster(&*key.namespace));
        namespace.is_some_and(|namespace| peer_of(&namespace.metadata) == Some(id))
    };
    let secrets = secrets.indexed(BY_PROVIDER, id);
    let mut of_provider: Vec<_> = secrets.filter(|(key, _)| is_placed(key)).collect();
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
    match config(secret, destinations, now) {
        Ok((config, valid_for)) => {
            let item = || WorkItem::Peer(id.to_owned());
            plan.requeue.extend(valid_for.map(|rest| (rest, item())));
            Some(Peer {
                consumer: consumer.to_owned(),
                namespace: key.namespace.clone(),
                remote_namespace: remote_namespace.clone(),
                config,
                access: Access::default(),
                is_untrusted: false,
                listed_by: None,
                is_exporting: false,
            })
        }
        Err(note) => {
            warn(key, "InvalidKubeconfig", note);
            None
        }
    }
}

/// Returns the address and the credentials in a Secret, and the time after which another token replaces them, if any.
///
/// # Errors
///
/// Returns the field that is missing or wrong.
fn config(
    secret: &Secret,
    destinations: Destinations,
    now: Timestamp,
) -> Result<(RemoteConfig, Option<Duration>), String> {
    let data = secret.data.as_ref().and_then(|data| data.get("kubeconfig"));
    let text = data.and_then(|data| std::str::from_utf8(&data.0).ok());
    let text = text.ok_or("data.kubeconfig is missing or no text")?;
    let config = RemoteConfig::parse(text, destinations)
        .map_err(|error| format!("data.kubeconfig: {error}"))?;
    let Some(credentials) = eks_credentials(secret)? else {
        return Ok((config, None));
    };
    let (token, valid_for) = credentials
        .token(now)
        .map_err(|error| format!("data: {error}"))?;

    Ok((config.with_token(token), Some(valid_for)))
}

/// Returns the names of the Secrets with credentials of a provider.
pub(super) fn secrets<'a>(id: &str, cache: &'a Cache) -> impl Iterator<Item = &'a Key> + use<'a> {
    let secrets = cache.objects::<Secret>(&Cluster::Local);
    secrets.indexed(BY_PROVIDER, id).map(|(key, _)| key)
}

/// Returns whether this cluster exports Services to a provider.
fn is_exporting(peer: &Peer, id: &str, cache: &Cache) -> bool {
    let exports = Kind::ExportedService.within(cache, &Cluster::Local, &peer.namespace);
    let mut exports = exports.into_iter();

    exports.any(|(_, metadata)| provider(metadata) == Some(id))
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

/// Returns whether a user has declared that a provider never answers again, and the last probe does not contradict.
pub(crate) fn is_dead(id: &str, cache: &Cache) -> bool {
    let foreign = cache.local::<ForeignCluster>(&Key::cluster(id));
    foreign.is_some_and(|foreign| {
        foreign.is_declared_dead()
            && !foreign.is_api_server(ForeignClusterConditionStatus::Established)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1"}}],
        "users": [{"name": "u", "user": {}}]}"#;

    fn config_at(time: &str, without: &str) -> Result<(RemoteConfig, Option<Duration>), String> {
        let fields = [
            ("kubeconfig", KUBECONFIG),
            ("awsAccessKeyID", "AKIDEXAMPLE"),
            ("awsSecretAccessKey", "secret"),
            ("awsRegion", "eu-west-1"),
            ("awsEksClusterID", "milan"),
        ];
        let fields = fields.into_iter().filter(|(name, _)| *name != without);
        let data = fields.map(|(name, value)| (name.to_owned(), ByteString(value.into())));
        let secret = Secret {
            data: Some(data.collect()),
            ..Secret::default()
        };
        let now = format!("2026-11-26T{time}Z").parse().unwrap();

        config(&secret, Destinations::Remote, now)
    }

    #[test]
    fn the_token_of_an_eks_cluster_is_replaced_every_ten_minutes() {
        let (first, rest) = config_at("12:00:00", "").unwrap();
        assert_eq!(rest, Some(Duration::from_secs(600)));
        let (same, rest) = config_at("12:09:58", "").unwrap();
        assert_eq!(rest, Some(Duration::from_secs(2)));
        assert_eq!(first, same);
        let (next, _) = config_at("12:10:00", "").unwrap();
        assert_ne!(first, next);

        let (certificate, rest) = config_at("12:00:00", "awsAccessKeyID").unwrap();
        assert_eq!(rest, None);
        assert_ne!(first, certificate);
        let error = config_at("12:00:00", "awsRegion").unwrap_err();
        assert_eq!(error, "data.awsRegion is missing or no text");
    }
}
