//! Writes the certificates of each server into its Secret, and their authorities into the objects that state them.

use super::decision::{self, Data, bundle};
use super::issue::Issue;
use super::server::Server;
use super::target::{Publication, Target};
use control_api::labels;
use control_runtime::{
    Action, Cache, Change, Cluster, Controller, Env, Event, Key, Plan, Ref, Registration, Scope,
    Write,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};
use std::fmt;
use std::time::Duration;

/// Longest time until certificates are checked again, because the clock may change.
const CHECK_PERIOD_MAX: Duration = Duration::from_secs(86_400);

/// Work item of the controller. Servers are named by their Secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The Secret of a server.
    Certificates(&'static str),
    /// The authorities of a server in an object.
    Authorities(&'static str, Target),
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificates(secret) => write!(f, "certificates of {secret}"),
            Self::Authorities(secret, target) => write!(f, "authorities of {secret} in {target}"),
        }
    }
}

/// Settings of the controller.
pub(crate) struct Settings {
    /// Namespace of Liqo.
    pub(crate) namespace: String,
    /// Owner of the Secrets, so that an uninstallation removes them.
    pub(crate) installation: Option<OwnerReference>,
    /// The servers, with Secrets of different names.
    pub(crate) servers: Vec<&'static Server>,
    /// Resources that the servers in this process read.
    pub(crate) further: Vec<Registration>,
    /// Creates keys and certificates.
    pub(crate) issue: Issue,
}

/// Plans certificates and the publication of their authorities.
pub(crate) struct CertificateController {
    settings: Settings,
}

impl CertificateController {
    /// Creates the controller.
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings }
    }

    fn secret_key(&self, server: &Server) -> Key {
        Key::new(&*self.settings.namespace, server.secret)
    }

    fn service_key(&self, server: &Server) -> Key {
        Key::new(&*self.settings.namespace, server.service)
    }

    fn server(&self, secret: &str) -> Option<&'static Server> {
        let mut servers = self.settings.servers.iter();
        servers.find(|it| it.secret == secret).copied()
    }

    fn plan_secret(&self, server: &'static Server, cache: &Cache, env: &Env<'_>) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        let key = self.secret_key(server);
        let secret = cache.local::<Secret>(&key);
        if secret.is_some_and(|it| it.metadata.deletion_timestamp.is_some()) {
            return plan;
        }
        let empty = Data::new();
        let data = secret.and_then(|it| it.data.as_ref()).unwrap_or(&empty);
        let names = server.names(&self.settings.namespace);
        let is_published = self.is_published(server, cache, data, env);
        let object = Ref::of::<Secret>(&Cluster::Local, &key);
        match decision::decide(data, is_published, &names, env.now, self.settings.issue) {
            Ok(decision) => {
                if !decision.data.is_empty() {
                    plan.writes.push(self.write(server, secret, &decision.data));
                    plan.events.push(issued(object, server, decision.reason));
                }
                let wait = decision.due.duration_since(env.now);
                let wait = Duration::try_from(wait).unwrap_or_default();
                let wait = wait.clamp(Duration::from_secs(1), CHECK_PERIOD_MAX);
                let item = WorkItem::Certificates(server.secret);
                plan.requeue.push((wait, item));
            }
            Err(error) => {
                plan.events.push(Event {
                    object,
                    is_warning: true,
                    reason: "CertificateNotIssued",
                    note: format!("{error}: delete Secret {key}, so that it is created again"),
                    is_repeated: false,
                });
                plan.is_incomplete = true;
            }
        }

        plan
    }

    /// Returns whether API servers trust the authorities in the Secret.
    fn is_published(&self, server: &Server, cache: &Cache, data: &Data, env: &Env<'_>) -> bool {
        let service = self.service_key(server);
        let mut targets = server.targets.iter();
        bundle(data, env.now)
            .is_some_and(|authorities| targets.all(|it| it.has(cache, &service, authorities)))
    }

    fn write(&self, server: &Server, secret: Option<&Secret>, data: &Data) -> Write {
        let key = self.secret_key(server);
        let object = Ref::of::<Secret>(&Cluster::Local, &key);
        let annotations = map(server.annotations);
        let Some(secret) = secret else {
            let mut labels = map(server.labels);
            labels.insert(labels::MANAGED.to_owned(), "true".into());
            // If two leaders create it, one of them fails.
            return Write::new(
                object,
                Action::Create(json!({
                    "metadata": {
                        "name": key.name,
                        "namespace": key.namespace,
                        "annotations": annotations,
                        "labels": labels,
                        "ownerReferences": Vec::from_iter(&self.settings.installation),
                    },
                    "type": "Opaque",
                    "data": data,
                })),
            );
        };
        let patch = json!({"metadata": {"annotations": annotations}, "data": data});
        let mut write = Write::new(object, Action::Merge(patch));
        write.uid = secret.uid();
        // Another leader may have issued other certificates since.
        write.resource_version = secret.resource_version();
        write
    }

    fn plan_target(
        &self,
        server: &Server,
        target: Target,
        cache: &Cache,
        env: &Env<'_>,
    ) -> Plan<WorkItem> {
        let secret = cache.local::<Secret>(&self.secret_key(server));
        let data = secret.and_then(|it| it.data.as_ref());
        let Some(authorities) = data.and_then(|data| bundle(data, env.now)) else {
            return Plan::default();
        };
        let service = self.service_key(server);
        match target {
            Target::Mutating(_) => {
                publish::<MutatingWebhookConfiguration>(cache, target, &service, authorities)
            }
            Target::Validating(_) => {
                publish::<ValidatingWebhookConfiguration>(cache, target, &service, authorities)
            }
            Target::ApiService(_) => publish::<APIService>(cache, target, &service, authorities),
        }
    }
}

impl Controller for CertificateController {
    type Item = WorkItem;
    const NAME: &'static str = "certificates";
    const FIELD_MANAGER: &'static str = "certificates.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        let Settings {
            namespace, servers, ..
        } = &self.settings;
        let mut registrations = registrations(namespace, servers);
        registrations.extend(self.settings.further.iter().cloned());
        registrations
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<WorkItem> {
        let mut items = Vec::new();
        for server in &self.settings.servers {
            let certificates = WorkItem::Certificates(server.secret);
            let authorities = |target: &Target| WorkItem::Authorities(server.secret, *target);
            if change.is::<Secret>() && change.object.key == self.secret_key(server) {
                items.push(certificates);
                items.extend(server.targets.iter().map(authorities));
            }
            for target in server.targets.iter().filter(|it| it.is(change)) {
                items.extend([authorities(target), certificates]);
            }
        }
        items
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        let (WorkItem::Certificates(secret) | WorkItem::Authorities(secret, _)) = item;
        match (item, self.server(secret)) {
            (WorkItem::Certificates(_), Some(server)) => self.plan_secret(server, cache, env),
            (WorkItem::Authorities(_, target), Some(server)) => {
                self.plan_target(server, *target, cache, env)
            }
            (_, None) => Plan::default(),
        }
    }

    /// A Secret may not exist, so no change reports it.
    fn started(&mut self, _: &Cache) -> Vec<WorkItem> {
        let servers = self.settings.servers.iter();
        servers
            .map(|it| WorkItem::Certificates(it.secret))
            .collect()
    }
}

/// Returns the resources that the controller follows for these servers.
pub(crate) fn registrations(namespace: &str, servers: &[&Server]) -> Vec<Registration> {
    let of_server = |server: &&Server| {
        let secret = Registration::whole::<Secret>(Scope::Namespace(namespace.to_owned()))
            .name(server.secret)
            .verbs(&["create", "patch"]);
        let targets = server.targets.iter().map(|it| it.registration());
        std::iter::once(secret).chain(targets).collect::<Vec<_>>()
    };

    servers.iter().flat_map(of_server).collect()
}

fn publish<K: Publication>(
    cache: &Cache,
    target: Target,
    service: &Key,
    authorities: &ByteString,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let key = target.key();
    let Some(object) = cache.local::<K>(&key) else {
        return plan;
    };
    if !object.states(service, authorities) {
        let fields = object.fields(service, authorities);
        plan.apply(Ref::of::<K>(&Cluster::Local, &key), fields);
        for write in &mut plan.writes {
            // An uninstallation may have removed the object.
            write.uid = object.meta().uid.clone();
        }
    }

    plan
}

fn map(pairs: &[(&str, &str)]) -> Map<String, Value> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).into()))
        .collect()
}

fn issued(object: Ref, server: &Server, reason: &'static str) -> Event {
    Event {
        object,
        is_warning: false,
        reason,
        note: format!("issued certificates for {}", server.purpose),
        is_repeated: true,
    }
}
