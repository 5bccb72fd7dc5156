//! The controller of tokens, with an API server that issues them.

use super::peering;
use super::side::{TENANT, local};
use crate::pod::forge::ApiServerSupport;
use crate::reflection::tokens::awaited::{Awaited, Waiting, missing, pods_of};
use crate::reflection::tokens::controller::TokenController;
use crate::reflection::tokens::settings::TokenSettings;
use control_runtime::{
    Action, Answer, Cache, Change, Controller, Env, Outcome, Plan, Registration, Request, WatchId,
};
use k8s_openapi::api::core::v1::Pod;
use kube::core::Status;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// State of the API server of this cluster, which the simulation lacks: it issues tokens.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) issued: u32,
    /// Longest lifetime in seconds.
    pub(crate) lifetime: i64,
    pub(crate) is_refusing: bool,
    /// Objects that the pod `web` waits for.
    pub(crate) missing: Vec<Awaited>,
    /// Pods that may no longer wait.
    pub(crate) waiting: Vec<Waiting>,
}

impl Server {
    pub(crate) fn new() -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            issued: 0,
            lifetime: 100_000,
            is_refusing: false,
            missing: Vec::new(),
            waiting: Vec::new(),
        }))
    }
}

/// Returns responses to the requests of the controller for tokens.
pub(crate) struct Issuing {
    pub(crate) controller: TokenController,
    pub(crate) server: Arc<Mutex<Server>>,
}

impl Controller for Issuing {
    type Item = <TokenController as Controller>::Item;
    const NAME: &'static str = TokenController::NAME;
    const FIELD_MANAGER: &'static str = TokenController::FIELD_MANAGER;

    fn resources(&self) -> Vec<Registration> {
        self.controller.resources()
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<Self::Item> {
        let settings = settings();
        let mut server = self.server.lock().unwrap();
        server.waiting.extend(pods_of(change, &settings));
        let pod = cache.local::<Pod>(&local("web"));
        let missing = pod.map(|it| missing(cache, &settings, (it, "shop-rome")));
        server.missing = missing.unwrap_or_default();
        drop(server);
        self.controller.observe(change, cache)
    }

    fn plan(&mut self, item: &Self::Item, cache: &Cache, env: &mut Env<'_>) -> Plan<Self::Item> {
        let mut plan = self.controller.plan(item, cache, env);
        let is_post = |action: &Action| matches!(action, Action::Post(_));
        let posts: Vec<_> = plan
            .writes
            .extract_if(.., |it| is_post(&it.action))
            .collect();
        for post in posts {
            let mut server = self.server.lock().unwrap();
            let Action::Post(body) = &post.action else {
                panic!("no request for a token");
            };
            let seconds = body["spec"]["expirationSeconds"]
                .as_i64()
                .unwrap()
                .min(server.lifetime);
            let expiration = env.now + Duration::from_secs(seconds.try_into().unwrap());
            let outcome = if server.is_refusing {
                let status = Status::failure("no", "Forbidden").with_code(403);
                plan.is_incomplete = true;
                Outcome::Refused(Box::new(status))
            } else {
                server.issued += 1;
                let token = format!("token-{}", server.issued);
                Outcome::Answer(Answer(
                    json!({"status": {"token": token, "expirationTimestamp": expiration.to_string()}}),
                ))
            };
            let items = self
                .controller
                .done(item, &Request::Write(post), &outcome, cache);
            plan.requeue
                .extend(items.into_iter().map(|it| (Duration::ZERO, it)));
        }
        plan
    }

    fn started(&mut self, cache: &Cache) -> Vec<Self::Item> {
        self.controller.started(cache)
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<Self::Item> {
        self.controller.listed(id, cache)
    }

    fn done(
        &mut self,
        item: &Self::Item,
        request: &Request,
        outcome: &Outcome,
        cache: &Cache,
    ) -> Vec<Self::Item> {
        self.controller.done(item, request, outcome, cache)
    }
}

pub(crate) fn settings() -> TokenSettings {
    TokenSettings {
        peering: peering(),
        tenant_namespace: TENANT.to_owned(),
        node: "milan".to_owned(),
        api_server_support: ApiServerSupport::TokenApi,
        reflects_root_ca: true,
    }
}
