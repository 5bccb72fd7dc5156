//! Connects the pods of ShadowPods to the runtime.

use super::accounts::Accounts;
use super::item::WorkItem;
use super::memory::Memory;
use super::objects::{Local, Standing, group_of_quota};
use super::plan::Planner;
use super::registrations::registrations;
use super::settings::Settings;
use control_api::{Quota, ShadowPod};
use control_runtime::{
    Cache, Change, Controller, Env, Outcome, Plan, Queue, Registration, Request, Resource,
};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;
use std::time::Duration;

/// Creates the pods of ShadowPods.
pub(crate) struct ShadowPodController {
    settings: Settings,
    accounts: Accounts,
}

impl ShadowPodController {
    /// Creates the controller.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            accounts: Accounts::default(),
        }
    }
}

impl Controller for ShadowPodController {
    type Item = WorkItem;
    const NAME: &'static str = "shadow_pod";
    const FIELD_MANAGER: &'static str = "shadow-pod";

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.settings.namespace)
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        let local = Local::new(cache, &self.settings);
        let accounts = &mut self.accounts;
        let mut names = accounts.names_of(change, &local);
        let mut claimed = accounts.assess(&local, &names);
        if change.is::<Quota>() && accounts.is_started {
            let states = [change.before::<Quota>(), change.after::<Quota>()];
            let groups = states.map(|quota| Some(group_of_quota(&change.object.key, quota?)));
            let groups: BTreeSet<_> = groups.into_iter().flatten().collect();
            groups
                .iter()
                .for_each(|group| accounts.ledger.reconsider(group));
            claimed.extend(accounts.decide(&local, groups));
        }
        names.extend(claimed);

        names.into_iter().map(WorkItem).collect()
    }

    /// A new leader computes the accounts from the objects: claims of an earlier leader have ended or become pods.
    fn started(&mut self, cache: &Cache) -> Vec<WorkItem> {
        self.accounts = Accounts::started();
        let local = Local::new(cache, &self.settings);
        let names = local.shadow_pods.iter().map(|(key, _)| key);
        let names = names.chain(local.pods.iter().map(|(key, _)| key));
        let names = names.cloned().collect();
        let claimed = self.accounts.assess(&local, &names);

        claimed.into_iter().map(WorkItem).collect()
    }

    fn plan(
        &mut self,
        WorkItem(key): &WorkItem,
        cache: &Cache,
        env: &mut Env<'_>,
    ) -> Plan<WorkItem> {
        let local = Local::new(cache, &self.settings);
        let mut claimed = Vec::new();
        if let Standing::Waits(group, ..) = local.standing(key) {
            self.accounts.ledger.retry(key);
            claimed = self.accounts.decide(&local, [group]);
        }
        let mut planner = Planner {
            local: &local,
            ledger: &mut self.accounts.ledger,
            memories: &mut self.accounts.memories,
            key,
        };
        let mut plan = planner.plan(env);
        claimed.retain(|other| other != key);
        let others = claimed
            .into_iter()
            .map(|other| (Duration::ZERO, WorkItem(other)));
        plan.requeue.extend(others);

        plan
    }

    fn done(
        &mut self,
        WorkItem(key): &WorkItem,
        request: &Request,
        outcome: &Outcome,
        cache: &Cache,
    ) -> Vec<WorkItem> {
        let local = Local::new(cache, &self.settings);
        let accounts = &mut self.accounts;
        let is_of_pod = request.object().map(|it| &it.resource) == Some(&Resource::of::<Pod>());
        let mut names = match request {
            Request::Write(write) if is_of_pod => accounts.wrote(&local, key, write, outcome),
            Request::Write(_) | Request::Probe(_) => return Vec::new(),
            Request::Read(_) if is_of_pod => {
                let mut names = BTreeSet::from([key.clone()]);
                let mut was_resizing = false;
                if matches!(outcome, Outcome::Stored(_) | Outcome::Gone) {
                    accounts.memories.change(key, |memory| {
                        memory.sent = None;
                        was_resizing = memory.resizing.take().is_some();
                    });
                }
                let claimed = accounts.assess(&local, &names);
                names.retain(|_| was_resizing);
                names.extend(claimed);
                names.into_iter().collect()
            }
            Request::Read(_) => {
                if let Outcome::Stored(entry) = outcome {
                    let read = entry.full::<ShadowPod>();
                    accounts.memories.change(key, |memory| memory.read = read);
                    vec![key.clone()]
                } else {
                    Vec::new()
                }
            }
        };
        let memory = accounts.memories.get(key);
        let is_news = |it: &Memory| {
            let mut refusals = it.refusals.values();
            it.is_created
                || it.unlabelled.is_some()
                || refusals.any(|refusal| refusal.retry_at.is_none())
        };
        if memory.is_some_and(is_news) {
            names.push(key.clone());
        }

        names.into_iter().map(WorkItem).collect()
    }

    /// The namespaces of a consumer take turns with those of others.
    fn queue(WorkItem(key): &WorkItem) -> Queue {
        Queue(key.namespace.clone())
    }

    fn item_kind(_: &WorkItem) -> &'static str {
        "shadow_pod"
    }
}
