//! Writes the certificates into their Secret, and the authorities into the webhook configurations.

use super::certificates::{self, Data, SECRET, SERVICE, bundle, names};
use super::issue::Issue;
use control_api::{annotations, labels};
use control_runtime::{
    Action, Cache, Change, Cluster, Controller, Env, Event, Kept, Key, Plan, Ref, Registration,
    Scope, Write,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt as _};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// Name of both webhook configurations, as upstream's.
const CONFIGURATION: &str = "liqo-webhook";

/// Longest time until certificates are checked again, because the clock may change.
const CHECK_PERIOD_MAX: Duration = Duration::from_secs(86_400);

/// Why Applies take fields from other field managers.
const FORCE: &str =
    "only the manager writes caBundle; an earlier installation of upstream's may have written it";

/// Work item of the webhooks' controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The Secret.
    Certificates,
    /// The authorities in the MutatingWebhookConfiguration.
    Mutating,
    /// The authorities in the ValidatingWebhookConfiguration.
    Validating,
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificates => "certificates",
            Self::Mutating => "mutating_configuration",
            Self::Validating => "validating_configuration",
        })
    }
}

/// Plans certificates and their publication.
pub(crate) struct WebhookController {
    namespace: String,
    /// Owner of the Secret, so that an uninstallation removes it.
    installation: Option<OwnerReference>,
    issue: Issue,
}

impl WebhookController {
    /// Creates the controller with Liqo in `namespace`.
    pub(crate) fn new(
        namespace: String,
        installation: Option<OwnerReference>,
        issue: Issue,
    ) -> Self {
        Self {
            namespace,
            installation,
            issue,
        }
    }

    fn secret_key(&self) -> Key {
        Key::new(&*self.namespace, SECRET)
    }

    fn plan_secret(&self, cache: &Cache, env: &Env<'_>) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        let key = self.secret_key();
        let secret = cache.local::<Secret>(&key);
        if secret.is_some_and(|it| it.metadata.deletion_timestamp.is_some()) {
            return plan;
        }
        let empty = Data::new();
        let data = secret.and_then(|it| it.data.as_ref()).unwrap_or(&empty);
        let names = names(&self.namespace);
        let is_published = is_published(cache, &self.namespace, data, env);
        let object = Ref::of::<Secret>(&Cluster::Local, &key);
        match certificates::decide(data, is_published, &names, env.now, self.issue) {
            Ok(decision) => {
                if !decision.data.is_empty() {
                    plan.writes.push(self.write(secret, &decision.data));
                    plan.events.push(issued(object, decision.reason));
                }
                let wait = decision.due.duration_since(env.now);
                let wait = Duration::try_from(wait).unwrap_or_default();
                let wait = wait.clamp(Duration::from_secs(1), CHECK_PERIOD_MAX);
                plan.requeue.push((wait, WorkItem::Certificates));
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

    fn write(&self, secret: Option<&Secret>, data: &Data) -> Write {
        let key = self.secret_key();
        let object = Ref::of::<Secret>(&Cluster::Local, &key);
        let annotations = json!({annotations::WEBHOOK_SERVICE_NAME: SERVICE});
        let Some(secret) = secret else {
            // If two leaders create it, one of them fails.
            return Write::new(
                object,
                Action::Create(json!({
                    "metadata": {
                        "name": key.name,
                        "namespace": key.namespace,
                        "annotations": annotations,
                        "labels": {labels::WEBHOOK: "true", labels::MANAGED: "true"},
                        "ownerReferences": Vec::from_iter(&self.installation),
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

    fn plan_configuration<K: Configuration>(&self, cache: &Cache, env: &Env<'_>) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        let key = Key::new("", CONFIGURATION);
        let secret = cache.local::<Secret>(&self.secret_key());
        let data = secret.and_then(|it| it.data.as_ref());
        let authorities = data.and_then(|data| bundle(data, env.now));
        let (Some(authorities), Some(configuration)) = (authorities, cache.local::<K>(&key)) else {
            return plan;
        };
        if !has_authorities(configuration, &self.namespace, authorities) {
            let webhooks = configuration.webhooks();
            let ours = webhooks.filter(|(_, client)| is_of_service(client, &self.namespace));
            let webhooks = ours
                .map(|(name, _)| json!({"name": name, "clientConfig": {"caBundle": authorities}}));
            let fields = json!({"webhooks": webhooks.collect::<Vec<Value>>()});
            plan.apply(Ref::of::<K>(&Cluster::Local, &key), fields);
            for write in &mut plan.writes {
                // An uninstallation may have removed the configuration.
                write.uid = configuration.meta().uid.clone();
            }
        }

        plan
    }
}

impl Controller for WebhookController {
    type Item = WorkItem;
    const NAME: &'static str = "webhook";
    const FIELD_MANAGER: &'static str = "webhook.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.namespace)
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<WorkItem> {
        let name = change.object.key.name.as_str();
        if change.is::<Secret>() && change.object.key == self.secret_key() {
            vec![
                WorkItem::Certificates,
                WorkItem::Mutating,
                WorkItem::Validating,
            ]
        } else if change.is::<MutatingWebhookConfiguration>() && name == CONFIGURATION {
            vec![WorkItem::Mutating, WorkItem::Certificates]
        } else if change.is::<ValidatingWebhookConfiguration>() && name == CONFIGURATION {
            vec![WorkItem::Validating, WorkItem::Certificates]
        } else {
            Vec::new()
        }
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        match item {
            WorkItem::Certificates => self.plan_secret(cache, env),
            WorkItem::Mutating => {
                self.plan_configuration::<MutatingWebhookConfiguration>(cache, env)
            }
            WorkItem::Validating => {
                self.plan_configuration::<ValidatingWebhookConfiguration>(cache, env)
            }
        }
    }

    /// The Secret may not exist, so no change reports it.
    fn started(&mut self, _: &Cache) -> Vec<WorkItem> {
        vec![WorkItem::Certificates]
    }
}

/// Returns the resources that the controller follows, and those that reviews read.
pub(crate) fn registrations(namespace: &str) -> Vec<Registration> {
    vec![
        Registration::whole::<Secret>(Scope::Namespace(namespace.to_owned()))
            .name(SECRET)
            .verbs(&["create", "patch"]),
        Registration::whole::<MutatingWebhookConfiguration>(Scope::All)
            .name(CONFIGURATION)
            .verbs(&["patch"])
            .force("", FORCE)
            .fields(&["webhooks"]),
        Registration::whole::<ValidatingWebhookConfiguration>(Scope::All)
            .name(CONFIGURATION)
            .verbs(&["patch"])
            .force("", FORCE)
            .fields(&["webhooks"]),
        Registration::whole::<control_api::NamespaceOffloading>(Scope::All),
    ]
}

/// A configuration of webhooks.
trait Configuration: Kept + Resource<DynamicType = ()> {
    /// Returns the names of its webhooks, and how the API server reaches them.
    fn webhooks(&self) -> impl Iterator<Item = (&str, &WebhookClientConfig)>;
}

impl Configuration for MutatingWebhookConfiguration {
    fn webhooks(&self) -> impl Iterator<Item = (&str, &WebhookClientConfig)> {
        let webhooks = self.webhooks.iter().flatten();
        webhooks.map(|it| (it.name.as_str(), &it.client_config))
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    fn webhooks(&self) -> impl Iterator<Item = (&str, &WebhookClientConfig)> {
        let webhooks = self.webhooks.iter().flatten();
        webhooks.map(|it| (it.name.as_str(), &it.client_config))
    }
}

/// Returns whether the API server trusts the authorities in the Secret. A configuration that does not exist needs none.
fn is_published(cache: &Cache, namespace: &str, data: &Data, env: &Env<'_>) -> bool {
    let Some(authorities) = bundle(data, env.now) else {
        return false;
    };
    let key = Key::new("", CONFIGURATION);
    let mutating = cache.local::<MutatingWebhookConfiguration>(&key);
    let validating = cache.local::<ValidatingWebhookConfiguration>(&key);

    mutating.is_none_or(|it| has_authorities(it, namespace, authorities))
        && validating.is_none_or(|it| has_authorities(it, namespace, authorities))
}

fn has_authorities(
    configuration: &impl Configuration,
    namespace: &str,
    authorities: &ByteString,
) -> bool {
    let mut ours = configuration
        .webhooks()
        .filter(|(_, client)| is_of_service(client, namespace));

    ours.all(|(_, client)| client.ca_bundle.as_ref() == Some(authorities))
}

/// Returns whether the API server reaches a webhook at the Service of this installation.
fn is_of_service(client: &WebhookClientConfig, namespace: &str) -> bool {
    let service = client.service.as_ref();
    service.is_some_and(|it| it.name == SERVICE && it.namespace == namespace)
}

fn issued(object: Ref, reason: &'static str) -> Event {
    Event {
        object,
        is_warning: false,
        reason,
        note: "issued certificates for the admission webhooks".to_owned(),
        is_repeated: true,
    }
}
