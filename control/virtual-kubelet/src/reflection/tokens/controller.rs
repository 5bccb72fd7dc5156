//! Connects the planners of tokens to the runtime.

use super::issued::{INTERVAL, Issued};
use super::item::TokenItem;
use super::plan::{self, View};
use super::registrations::{registrations, watches};
use super::settings::TokenSettings;
use crate::reflection::namespaces::{Namespaces, State, names};
use crate::reflection::registrations::FIELD_MANAGER;
use crate::reflection::summary::Summary;
use crate::reflection::token::{Token, TokenSpec, TokenState};
use control_api::NamespaceMap;
use control_runtime::{
    Action, Cache, Change, Cluster, Controller, Entry, Env, Key, Outcome, Plan, Queue, Ref,
    Registration, Request, WatchId, Write,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Requests tokens for the pods of a virtual node, and writes them to Secrets of the provider.
pub(crate) struct TokenController {
    settings: TokenSettings,
    namespaces: Namespaces,
    issued: Issued,
    /// Why the Secret of a pod was not written.
    refused: BTreeMap<Key, String>,
    /// UIDs of Secrets that have the name of a pod's Secret, by pod.
    abandoned: BTreeMap<Key, String>,
    /// When such a Secret was deleted last, by pod.
    deleted_at: BTreeMap<Key, Timestamp>,
}

impl TokenController {
    /// Creates the controller.
    pub(crate) fn new(settings: TokenSettings) -> Self {
        Self {
            settings,
            namespaces: Namespaces::default(),
            issued: Issued::default(),
            refused: BTreeMap::new(),
            abandoned: BTreeMap::new(),
            deleted_at: BTreeMap::new(),
        }
    }

    fn plan_namespace(&mut self, namespace: &str, cache: &Cache) -> Plan<TokenItem> {
        let mut plan = Plan::default();
        let settings = &self.settings;
        let map = settings.map();
        let state = State::in_cache(cache, &map, namespace);
        let of_remote = |remote: &str| watches(settings, remote);
        let is_followed = self.namespaces.remote(namespace).is_some();
        self.namespaces.plan(namespace, state, of_remote, &mut plan);
        if !is_followed {
            // Another controller may have added the watches, which are listed already.
            let items = self.items_in(namespace, cache).into_iter();
            plan.requeue.extend(items.map(|it| (Duration::ZERO, it)));
        }

        plan
    }

    /// Returns the items of a namespace of this cluster.
    fn items_in(&self, namespace: &str, cache: &Cache) -> BTreeSet<TokenItem> {
        let pods = cache.objects::<Pod>(&Cluster::Local).within(namespace);
        let pods = pods.filter(|(_, pod)| self.settings.is_bound(pod));
        let pods = pods.map(|(key, _)| TokenItem::Pod(key.clone()));
        let remote = self.namespaces.remote(namespace);
        let cluster = self.settings.peering.cluster();
        let secrets = remote.into_iter().flat_map(|remote| {
            let secrets = cache.objects::<Summary<Secret>>(&cluster).within(remote);
            let secrets = secrets.filter(|(_, it)| it.tokens.is_some());
            secrets.map(|(key, _)| TokenItem::Secret(key.clone()))
        });

        pods.chain(secrets).collect()
    }

    fn of_pod(&self, change: &Change<'_>) -> BTreeSet<TokenItem> {
        let key = &change.object.key;
        let states = [change.before::<Pod>(), change.after::<Pod>()];
        let bound = states
            .into_iter()
            .flatten()
            .filter(|it| self.settings.is_bound(it));
        let remote = self.namespaces.remote(&key.namespace);
        let secret = |pod: &Pod| {
            let name = self.settings.secret_of(pod).name;
            remote.map(|remote| TokenItem::Secret(Key::new(remote, name)))
        };
        bound
            .flat_map(|pod| [Some(TokenItem::Pod(key.clone())), secret(pod)])
            .flatten()
            .collect()
    }

    fn of_secret(&self, change: &Change<'_>) -> BTreeSet<TokenItem> {
        let key = &change.object.key;
        let states = [change.before(), change.after()];
        let states: [Option<&Summary<Secret>>; 2] = states;
        let tokens = states
            .into_iter()
            .flatten()
            .filter_map(|it| it.tokens.as_deref());
        let tokens = tokens.filter(|it| it.node == self.settings.node);
        tokens
            .flat_map(|it| {
                let pod = self.pod_of(key, it).map(TokenItem::Pod);
                [Some(TokenItem::Secret(key.clone())), pod]
            })
            .flatten()
            .collect()
    }

    /// Returns the pod that a Secret names.
    fn pod_of(&self, secret: &Key, tokens: &TokenState) -> Option<Key> {
        let namespace = self.namespaces.local(&secret.namespace)?;
        Some(Key::new(namespace, tokens.pod_name.as_deref()?))
    }

    fn of_map(&self, change: &Change<'_>, cache: &Cache) -> BTreeSet<TokenItem> {
        if change.object.key != self.settings.map() {
            return BTreeSet::new();
        }
        let states = [change.before(), change.after()];
        let [before, after]: [Option<&NamespaceMap>; 2] = states;
        let names: BTreeSet<_> = states.into_iter().flatten().flat_map(names).collect();
        let changed = names
            .into_iter()
            .filter(|name| State::of(before, name) != State::of(after, name));
        let mut items = BTreeSet::new();
        for name in changed {
            items.insert(TokenItem::Namespace(name.to_owned()));
            items.extend(self.items_in(name, cache));
        }

        items
    }

    /// Takes the outcome of a write for a pod; returns whether the pod can proceed.
    fn written(&mut self, pod: &Key, write: &Write, outcome: &Outcome) -> bool {
        match (&write.action, outcome) {
            (Action::Post(body), Outcome::Answer(answer)) => {
                let token = TokenSpec::of_request(body).zip(Token::parse(&answer.0));
                let is_valid = token.is_some();
                if let Some((spec, token)) = token {
                    self.issued.put(pod, spec, token);
                } else {
                    let message = "the API server has returned no token".to_owned();
                    self.refused.insert(pod.clone(), message);
                }
                is_valid
            }
            (Action::Post(_), Outcome::Refused(status)) => {
                let message = format!("the request for a token is refused: {}", status.message);
                self.refused.insert(pod.clone(), message);
                false
            }
            (Action::Create(_) | Action::Apply(_), Outcome::Stored(_)) => {
                self.issued.written(pod);
                self.refused.remove(pod);
                false
            }
            (Action::Create(_) | Action::Apply(_), Outcome::Refused(status)) => {
                let destination = &self.settings.peering.destination;
                let message = format!(
                    "cluster {destination} refuses the Secret: {}",
                    status.message
                );
                self.refused.insert(pod.clone(), message);
                false
            }
            (Action::Create(_), Outcome::AlreadyExists(Some(entry))) => {
                self.exists(pod, &write.object, entry);
                false
            }
            (Action::Delete, Outcome::Refused(status)) => {
                let object = &write.object;
                let message = format!("{object} cannot be replaced: {}", status.message);
                self.refused.insert(pod.clone(), message);
                false
            }
            (Action::Delete, Outcome::Gone | Outcome::Stored(_)) => true,
            // The write is repeated, or another replica makes it.
            (_, _) => false,
        }
    }

    /// Takes the Secret that has the name of a pod's Secret. The pod is planned again after the backoff of failures.
    fn exists(&mut self, pod: &Key, object: &Ref, entry: &Entry) {
        let summary = entry.get::<Summary<Secret>>();
        let summary = summary.filter(|it| it.is_reflected(&self.settings.peering));
        let tokens = summary.and_then(|it| it.tokens.as_deref());
        let (Some(summary), Some(tokens)) = (summary, tokens) else {
            let message = format!("{object} already exists and has no tokens: rename or delete it");
            self.refused.insert(pod.clone(), message);
            return;
        };
        // It is of an earlier pod, because the API server has issued tokens for the present one. The virtual kubelet of the
        // earlier pod's node deletes it, unless that node was removed. The watch reports Secrets of this node.
        if tokens.node != self.settings.node && !summary.is_terminating {
            self.abandoned.insert(pod.clone(), entry.uid.clone());
        }
    }

    /// Returns what the outcomes of an item's requests have shown: see [`plan::pod`].
    fn take_known(
        &mut self,
        item: &TokenItem,
        cache: &Cache,
        now: Timestamp,
    ) -> (Option<String>, Option<String>) {
        let TokenItem::Pod(pod) = item else {
            return (None, None);
        };
        if cache.local::<Pod>(pod).is_none() {
            self.deleted_at.remove(pod);
        }
        let abandoned = self.take_abandoned(pod, now);

        (self.refused.remove(pod), abandoned)
    }

    /// Returns the UID of a Secret that nothing else deletes, unless another client creates it again and again.
    fn take_abandoned(&mut self, pod: &Key, now: Timestamp) -> Option<String> {
        let uid = self.abandoned.remove(pod)?;
        let before = self.deleted_at.get(pod);
        let elapsed = before.map(|it| Duration::try_from(now.duration_since(*it)));
        if elapsed.is_some_and(|it| it.unwrap_or_default() < INTERVAL) {
            let message =
                "another client creates the Secret again and again: remove its right to do so";
            self.refused.insert(pod.clone(), message.to_owned());
            return None;
        }
        self.deleted_at.insert(pod.clone(), now);

        Some(uid)
    }
}

impl Controller for TokenController {
    type Item = TokenItem;
    const NAME: &'static str = "tokens";
    const FIELD_MANAGER: &'static str = FIELD_MANAGER;

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.settings)
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<TokenItem> {
        let is_local = change.object.cluster == Cluster::Local;
        let is_remote = change.object.cluster == self.settings.peering.cluster();
        let items = if is_local && change.is::<Pod>() {
            self.of_pod(change)
        } else if is_local && change.is::<NamespaceMap>() {
            self.of_map(change, cache)
        } else if is_remote && change.is::<Secret>() {
            self.of_secret(change)
        } else {
            BTreeSet::new()
        };

        Vec::from_iter(items)
    }

    fn started(&mut self, cache: &Cache) -> Vec<TokenItem> {
        let map = cache.local::<NamespaceMap>(&self.settings.map());
        let names = map.into_iter().flat_map(names);
        names
            .map(|it| TokenItem::Namespace(it.to_owned()))
            .collect()
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<TokenItem> {
        let namespace = self.namespaces.of_watch(id, &self.settings.peering);
        let items = namespace.map(|it| self.items_in(it, cache));

        Vec::from_iter(items.unwrap_or_default())
    }

    fn plan(&mut self, item: &TokenItem, cache: &Cache, env: &mut Env<'_>) -> Plan<TokenItem> {
        let known = self.take_known(item, cache, env.now);
        let view = View {
            cache,
            settings: &self.settings,
            namespaces: &self.namespaces,
        };
        match item {
            TokenItem::Namespace(namespace) => self.plan_namespace(namespace, cache),
            TokenItem::Pod(key) => plan::pod(&view, key, &mut self.issued, (known, env.now)),
            TokenItem::Secret(key) => plan::secret(&view, key),
        }
    }

    fn done(
        &mut self,
        item: &TokenItem,
        request: &Request,
        outcome: &Outcome,
        _cache: &Cache,
    ) -> Vec<TokenItem> {
        let can_proceed = match (item, request) {
            (TokenItem::Pod(pod), Request::Write(write)) => self.written(pod, write, outcome),
            (_, Request::Write(_) | Request::Read(_) | Request::Probe(_)) => false,
        };

        Vec::from_iter(can_proceed.then(|| item.clone()))
    }

    /// Namespaces take turns.
    fn queue(item: &TokenItem) -> Queue {
        Queue(item.namespace().to_owned())
    }

    fn item_kind(item: &TokenItem) -> &'static str {
        item.kind()
    }
}
