//! The loop between API server and planner: what a watch tells goes in, what a plan says goes out.

use crate::kind::{KINDS, Key, Kind};
use crate::metrics::Metrics;
use crate::plan::{Plan, Planner, Surroundings};
use crate::queue::Queue;
use crate::task::Task;
use crate::world::{Listing, Subject};
use crate::write::Write;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::DynamicObject;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

pub(crate) use state::State;
pub(crate) use terms::Manager;
pub(crate) use watch::Input;

mod api;
mod events;
mod installation;
mod lease;
mod state;
mod terms;
mod watch;

#[cfg(test)]
mod tests;

/// How long the loop rests at most, so that its health can be told.
const REST_MAX: Duration = Duration::from_secs(10);

/// What watches tell and nobody has taken yet; they wait when it is full.
const INPUTS_MAX: usize = 256;

/// How often a plan may ask for Secrets before it is put off.
const LOOKUPS_MAX: usize = 4;

/// The loop.
pub(crate) struct Shell {
    planner: Planner,
    queue: Queue,
    api: api::Api,
    events: events::Events,
    metrics: Metrics,
    state: Arc<State>,
    client: Client,
    sender: mpsc::Sender<Input>,
    inputs: mpsc::Receiver<Input>,
    /// Lists that are not complete yet; before they are, nothing is decided.
    unlisted: BTreeSet<Listing>,
    is_started: bool,
    /// The watches, which end with this.
    watches: JoinSet<()>,
    /// Those of the Secrets of tenant namespaces, by namespace.
    secret_watches: BTreeMap<String, AbortHandle>,
}

impl Shell {
    /// Starts the watches.
    pub(crate) fn new(
        planner: Planner,
        client: &Client,
        pod_name: &str,
        metrics: Metrics,
        state: Arc<State>,
    ) -> Self {
        let (sender, inputs) = mpsc::channel(INPUTS_MAX);
        let has_deployments = planner.settings.deployment_image.is_some();
        let kinds = KINDS.into_iter().filter(|kind| {
            // Secrets are watched where this manager has the right to.
            *kind != Kind::Secret && (*kind != Kind::Deployment || has_deployments)
        });
        let unlisted = BTreeSet::from_iter(kinds.map(Listing::all));
        let mut watches = JoinSet::new();
        for listing in &unlisted {
            let namespace = &planner.settings.namespace;
            let (listing, sender, metrics) = (listing.clone(), sender.clone(), metrics.clone());
            watch::start(&mut watches, client, listing, namespace, sender, metrics);
        }

        Self {
            planner,
            queue: Queue::default(),
            api: api::Api::new(client.clone()),
            events: events::Events::start(client.clone(), pod_name),
            metrics,
            state,
            client: client.clone(),
            sender,
            inputs,
            unlisted,
            is_started: false,
            watches,
            secret_watches: BTreeMap::new(),
        }
    }

    /// Runs until dropped.
    pub(crate) async fn run(mut self) {
        loop {
            self.state.beat();
            self.take_inputs();
            if self.is_started
                && let Some(task) = self.queue.pop(Instant::now())
            {
                self.work(task).await;
                // The Lease and the signals have their turn, however much work there is.
                tokio::task::yield_now().await;
                continue;
            }

            let now = Instant::now();
            let next_at = self.queue.next_at(now).filter(|_| self.is_started);
            let rest = next_at.map_or(REST_MAX, |at| at.saturating_duration_since(now));
            tokio::select! {
                input = self.inputs.recv() => match input {
                    Some(input) => self.take(input),
                    // The sender of this end is there.
                    None => return,
                },
                () = tokio::time::sleep(rest.min(REST_MAX)) => {}
            }
        }
    }

    /// Takes in all that has been told.
    fn take_inputs(&mut self) {
        while let Ok(input) = self.inputs.try_recv() {
            self.take(input);
        }
        let (networks, addresses) = self.planner.counts();
        self.metrics.allocated(networks, addresses);
        self.metrics.queue_length(self.queue.len());
    }

    fn take(&mut self, input: Input) {
        let may_bind = match &input {
            Input::Apply(kind, _) | Input::Delete(kind, ..) => self.is_started && is_binding(*kind),
            Input::EndList(listing) => is_binding(listing.kind),
            Input::BeginList(_) | Input::Failed(_) => false,
        };
        let tasks = match input {
            Input::Apply(kind, object) => self.put(kind, *object),
            Input::Delete(kind, key, uid) => self.planner.world.deleted(kind, &key, uid.as_deref()),
            Input::BeginList(listing) => {
                self.planner.world.begin_list(&listing);
                BTreeSet::new()
            }
            Input::EndList(listing) => {
                let tasks = self.planner.world.end_list(&listing);
                self.unlisted.remove(&listing);
                tasks
            }
            Input::Failed(listing) => {
                // One namespace without rights must not keep the others waiting.
                if listing.kind == Kind::Secret {
                    self.unlisted.remove(&listing);
                }
                BTreeSet::new()
            }
        };
        self.push(tasks);
        if may_bind {
            self.follow_bindings();
        }
        if !self.is_started {
            self.start_if_complete();
        }
    }

    /// Begins to decide once all objects are known.
    fn start_if_complete(&mut self) {
        let unlisted = self.unlisted.iter().map(|listing| &listing.kind);
        self.state.set_unknown(unlisted);
        if self.unlisted.is_empty() {
            self.is_started = true;
            let tasks = self.planner.start();
            tracing::info!(tasks = tasks.len(), "all objects are known");
            tasks.into_iter().for_each(|task| self.queue.push(task));
        }
    }

    /// Queues work; before all objects are known, any decision could be wrong, and all tasks come then.
    fn push(&mut self, tasks: BTreeSet<Task>) {
        if self.is_started {
            tasks.into_iter().for_each(|task| self.queue.push(task));
        }
    }

    /// Watches the Secrets of the namespaces where this manager has the right to, and of no others.
    fn follow_bindings(&mut self) {
        while self.watches.try_join_next().is_some() {} // Those that were aborted.
        let bound = self.planner.world.bound_namespaces();
        let left = self
            .secret_watches
            .extract_if(.., |namespace, _| !bound.contains(namespace));
        for (namespace, watch) in Vec::from_iter(left) {
            watch.abort();
            self.unlisted.remove(&Listing::secrets(&namespace));
            let tasks = self.planner.world.forget_secrets(&namespace);
            self.push(tasks);
        }
        for namespace in bound {
            if self.secret_watches.contains_key(&namespace) {
                continue;
            }
            let listing = Listing::secrets(&namespace);
            if !self.is_started {
                self.unlisted.insert(listing.clone());
            }
            let watch = watch::start(
                &mut self.watches,
                &self.client,
                listing,
                &self.planner.settings.namespace,
                self.sender.clone(),
                self.metrics.clone(),
            );
            self.secret_watches.insert(namespace, watch);
        }
    }

    fn put(&mut self, kind: Kind, object: DynamicObject) -> BTreeSet<Task> {
        let name = crate::world::key_of(&object.metadata);
        self.planner
            .world
            .put(kind, object)
            .unwrap_or_else(|error| {
                self.metrics.unreadable(kind);
                let error = anyhow::Error::new(error);
                tracing::warn!(%kind, %name, "ignored an object: {error:#}");
                BTreeSet::new()
            })
    }

    async fn work(&mut self, task: Task) {
        let began_at = Instant::now();
        let plan = self.plan(&task).await;
        let mut is_done = plan.is_some();
        for write in plan.iter().flat_map(|plan| &plan.writes) {
            is_done &= self.write(&task, write).await;
        }
        let plan = plan.unwrap_or_default();
        for notice in plan.notices {
            let meta = self.planner.world.reference(notice.kind, &notice.key);
            self.events.publish(meta, notice);
        }
        plan.again
            .into_iter()
            .for_each(|task| self.queue.push(task));
        self.metrics.reconciled(&task, is_done, began_at.elapsed());
        if is_done && !plan.retry {
            self.queue.done(&task);
        } else {
            self.queue.failed(task, Instant::now());
        }
    }

    /// Plans, after looking up what the plan asks for; `None` if that fails.
    async fn plan(&mut self, task: &Task) -> Option<Plan> {
        for _ in 0..LOOKUPS_MAX {
            let mut random = api::random;
            let mut surroundings = Surroundings {
                now: Timestamp::now(),
                random: &mut random,
            };
            let plan = self.planner.plan(task, &mut surroundings);
            if plan.lookups.is_empty() {
                self.planner.world.looked_up.clear();
                return Some(plan);
            }
            for key in plan.lookups {
                match self.api.secret(&key).await {
                    Ok(secret) => {
                        self.planner.world.looked_up.insert(key, secret);
                    }
                    Err(error) => {
                        tracing::warn!(%task, secret = %key, "failed to look up a Secret: {error:#}");
                        self.planner.world.looked_up.clear();
                        return None;
                    }
                }
            }
        }
        self.planner.world.looked_up.clear();

        None
    }

    /// Writes, takes in the answer and returns whether all is well.
    async fn write(&mut self, task: &Task, write: &Write) -> bool {
        let result = self.api.write(write).await;
        self.metrics.written(write);
        let verb = write.action.word();
        let (kind, name) = (write.kind, &write.key);
        match result {
            Ok(api::Answer::Present(object)) => {
                tracing::debug!(%task, %kind, %name, "there already");
                let tasks = self.put(kind, object);
                tasks.into_iter().for_each(|task| self.queue.push(task));
                // It may be somebody else's: the plan is to decide again, but not in haste.
                false
            }
            Ok(answer) => {
                tracing::info!(%kind, %name, verb, "written");
                self.refuse_service(task, write, None);
                if let api::Answer::Written(object) = answer {
                    let tasks = self.put(kind, object);
                    tasks.into_iter().for_each(|task| self.queue.push(task));
                }
                if is_binding(kind) {
                    self.follow_bindings();
                }
                true
            }
            Err(error) if error.is_of_dying_namespace() => {
                tracing::debug!(%task, %kind, %name, verb, "not written: {error:#}");
                false
            }
            Err(error) => {
                tracing::warn!(%task, %kind, %name, verb, "failed to write: {error:#}");
                self.refuse_service(task, write, Some(error.refusal()));
                false
            }
        }
    }

    /// Remembers why the API server does not take a Service of the gateway, for those who asked for it.
    fn refuse_service(&mut self, task: &Task, write: &Write, refusal: Option<Option<String>>) {
        let Task::Service(hash) = task else {
            return;
        };
        if write.kind != Kind::Service {
            return;
        }
        let refused = &mut self.planner.world.refused_services;
        let old = refused.get(hash).cloned();
        let new = refusal.flatten();
        match &new {
            Some(message) => refused.insert(hash.clone(), message.clone()),
            None => refused.remove(hash),
        };
        if old != new {
            let subject = Subject::Service(hash.clone());
            let peers: Vec<_> = self.planner.world.peers_linked(&subject).collect();
            peers.into_iter().for_each(|task| self.queue.push(task));
        }
    }
}

/// Returns whether objects of a kind decide where this manager may read Secrets.
fn is_binding(kind: Kind) -> bool {
    matches!(kind, Kind::Namespace | Kind::RoleBinding)
}

/// Returns what an Event needs to know of the object it is about.
impl crate::world::World {
    fn reference(&self, kind: Kind, key: &Key) -> k8s_openapi::api::core::v1::ObjectReference {
        let resource = kind.resource();
        k8s_openapi::api::core::v1::ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            name: Some(key.name.clone()),
            namespace: (!key.namespace.is_empty()).then(|| key.namespace.clone()),
            uid: self.uid(kind, key),
            ..Default::default()
        }
    }
}
