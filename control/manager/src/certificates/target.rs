//! Objects by which API servers know the authorities of a server.

use control_runtime::{Cache, Change, Kept, Key, Registration, Scope};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Resource;
use serde_json::{Value, json};
use std::fmt;

/// Why Applies take fields from other field managers.
const FORCE: &str =
    "only the manager writes caBundle; an earlier installation of upstream's may have written it";

/// An object that states the authorities of a server, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A MutatingWebhookConfiguration.
    Mutating(&'static str),
    /// A ValidatingWebhookConfiguration.
    Validating(&'static str),
    /// An APIService.
    ApiService(&'static str),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mutating(name) => write!(f, "MutatingWebhookConfiguration {name}"),
            Self::Validating(name) => write!(f, "ValidatingWebhookConfiguration {name}"),
            Self::ApiService(name) => write!(f, "APIService {name}"),
        }
    }
}

impl Target {
    /// Returns the resource that the controller follows and writes.
    pub(super) fn registration(self) -> Registration {
        match self {
            Self::Mutating(name) => registration::<MutatingWebhookConfiguration>(name),
            Self::Validating(name) => registration::<ValidatingWebhookConfiguration>(name),
            Self::ApiService(name) => registration::<APIService>(name),
        }
    }

    /// Returns whether a change is one of the object.
    pub(super) fn is(self, change: &Change<'_>) -> bool {
        let is_of_type = match self {
            Self::Mutating(_) => change.is::<MutatingWebhookConfiguration>(),
            Self::Validating(_) => change.is::<ValidatingWebhookConfiguration>(),
            Self::ApiService(_) => change.is::<APIService>(),
        };
        is_of_type && change.object.key == self.key()
    }

    /// Returns the key of the object.
    pub(super) fn key(self) -> Key {
        let (Self::Mutating(name) | Self::Validating(name) | Self::ApiService(name)) = self;
        Key::new("", name)
    }

    /// Returns whether API servers trust these authorities at the Service. An object that does not exist needs none.
    pub(super) fn has(self, cache: &Cache, service: &Key, authorities: &ByteString) -> bool {
        match self {
            Self::Mutating(_) => {
                has::<MutatingWebhookConfiguration>(cache, self, service, authorities)
            }
            Self::Validating(_) => {
                has::<ValidatingWebhookConfiguration>(cache, self, service, authorities)
            }
            Self::ApiService(_) => has::<APIService>(cache, self, service, authorities),
        }
    }
}

/// A type of objects that state authorities.
pub(super) trait Publication: Kept + Resource<DynamicType = ()> {
    /// Fields that the controller applies.
    const FIELDS: &'static [&'static str];

    /// Returns whether each part of the object about the Service states these authorities.
    fn states(&self, service: &Key, authorities: &ByteString) -> bool;

    /// Returns the fields to apply, so that it does.
    fn fields(&self, service: &Key, authorities: &ByteString) -> Value;
}

impl Publication for MutatingWebhookConfiguration {
    const FIELDS: &'static [&'static str] = &["webhooks"];

    fn states(&self, service: &Key, authorities: &ByteString) -> bool {
        let webhooks = self.webhooks.iter().flatten();
        webhooks_state(webhooks.map(|it| &it.client_config), service, authorities)
    }

    fn fields(&self, service: &Key, authorities: &ByteString) -> Value {
        let webhooks = self.webhooks.iter().flatten();
        let webhooks = webhooks.map(|it| (it.name.as_str(), &it.client_config));
        webhook_fields(webhooks, service, authorities)
    }
}

impl Publication for ValidatingWebhookConfiguration {
    const FIELDS: &'static [&'static str] = &["webhooks"];

    fn states(&self, service: &Key, authorities: &ByteString) -> bool {
        let webhooks = self.webhooks.iter().flatten();
        webhooks_state(webhooks.map(|it| &it.client_config), service, authorities)
    }

    fn fields(&self, service: &Key, authorities: &ByteString) -> Value {
        let webhooks = self.webhooks.iter().flatten();
        let webhooks = webhooks.map(|it| (it.name.as_str(), &it.client_config));
        webhook_fields(webhooks, service, authorities)
    }
}

impl Publication for APIService {
    const FIELDS: &'static [&'static str] = &["spec.caBundle", "spec.insecureSkipTLSVerify"];

    fn states(&self, service: &Key, authorities: &ByteString) -> bool {
        let spec = self.spec.as_ref();
        let ours = spec.filter(|spec| {
            let found = spec.service.as_ref();
            found.is_some_and(|it| is(it.name.as_deref(), it.namespace.as_deref(), service))
        });
        ours.is_none_or(|spec| {
            spec.ca_bundle.as_ref() == Some(authorities)
                && !spec.insecure_skip_tls_verify.unwrap_or(false)
        })
    }

    fn fields(&self, _: &Key, authorities: &ByteString) -> Value {
        // Upstream's has `insecureSkipTLSVerify`, which the API server refuses beside `caBundle`.
        json!({"spec": {"caBundle": authorities, "insecureSkipTLSVerify": false}})
    }
}

fn registration<K: Publication + control_runtime::Source>(name: &str) -> Registration {
    Registration::whole::<K>(Scope::All)
        .name(name)
        .verbs(&["patch"])
        .force("", FORCE)
        .fields(K::FIELDS)
}

fn has<K: Publication>(
    cache: &Cache,
    target: Target,
    service: &Key,
    authorities: &ByteString,
) -> bool {
    let object = cache.local::<K>(&target.key());
    object.is_none_or(|object| object.states(service, authorities))
}

fn webhooks_state<'a>(
    mut webhooks: impl Iterator<Item = &'a WebhookClientConfig>,
    service: &Key,
    authorities: &ByteString,
) -> bool {
    webhooks.all(|client| {
        !is_of_service(client, service) || client.ca_bundle.as_ref() == Some(authorities)
    })
}

fn webhook_fields<'a>(
    webhooks: impl Iterator<Item = (&'a str, &'a WebhookClientConfig)>,
    service: &Key,
    authorities: &ByteString,
) -> Value {
    let ours = webhooks.filter(|(_, client)| is_of_service(client, service));
    let webhooks =
        ours.map(|(name, _)| json!({"name": name, "clientConfig": {"caBundle": authorities}}));

    json!({"webhooks": webhooks.collect::<Vec<Value>>()})
}

/// Returns whether the API server reaches a webhook at a Service.
fn is_of_service(client: &WebhookClientConfig, service: &Key) -> bool {
    let found = client.service.as_ref();
    found.is_some_and(|it| is(Some(&it.name), Some(&it.namespace), service))
}

fn is(name: Option<&str>, namespace: Option<&str>, service: &Key) -> bool {
    name == Some(&*service.name) && namespace == Some(&*service.namespace)
}
