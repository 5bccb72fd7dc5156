//! The resources of the network controller.

use super::FIELD_MANAGER;
use crate::network::kind::{KINDS, Kind, ReachedService};
use crate::network::local::{Stored, keep, with_indexes};
use crate::network::settings::Settings;
use control_api::{
    Configuration, Connection, GatewayClient, GatewayServer, IP, Network, PublicKey,
};
use control_runtime::{Registration, Scope};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::RoleBinding;

/// Why an Apply takes fields from other field managers.
const FORCE: &str = "only the manager creates these objects, so another field manager is a mistake";

/// Why an Apply takes fields of a status from other field managers.
const FORCE_STATUS: &str = "only the manager writes these statuses; a user may have edited one";

/// Returns the resources that the controller follows with these settings.
pub(crate) fn registrations(settings: &Settings) -> Vec<Registration> {
    let has_deployments = settings.deployment_image.is_some();
    let kinds = KINDS.into_iter();
    let kinds = kinds.filter(|kind| *kind != Kind::Deployment || has_deployments);
    kinds.map(|kind| registration(kind, settings)).collect()
}

/// Returns the registration of a kind.
pub(crate) fn registration(kind: Kind, settings: &Settings) -> Registration {
    let scope = match kind {
        Kind::Pod | Kind::ConfigMap | Kind::GatewayKeys | Kind::ProxyService => {
            Scope::Namespace(settings.namespace.clone())
        }
        Kind::ApiServerService => Scope::Namespace(
            ReachedService::ApiServer
                .key(&settings.namespace)
                .namespace
                .to_string(),
        ),
        // Secrets are watched only in namespaces where the manager may read them.
        Kind::Secret => Scope::Planned,
        Kind::Network
        | Kind::Ip
        | Kind::Configuration
        | Kind::GatewayServer
        | Kind::GatewayClient
        | Kind::PublicKey
        | Kind::Connection
        | Kind::Node
        | Kind::Namespace
        | Kind::RoleBinding
        | Kind::Service
        | Kind::EndpointSlice
        | Kind::Deployment => Scope::All,
    };
    let mut registration = typed(kind, scope).verbs(kind.verbs());
    // This manager creates objects by POST, and earlier releases wrote statuses by merge patches.
    if kind.verbs().contains(&"patch") {
        registration = registration.adopt(FIELD_MANAGER);
    }
    if kind.verbs().contains(&"create") {
        registration = registration.force("", FORCE);
    }
    // The gateways write the state of a Connection. The manager sets the initial state only.
    if kind != Kind::Connection {
        registration = registration.force("status", FORCE_STATUS);
    }
    registration = registration.fields(kind.applied_fields());
    for (subresource, verb) in kind.subresources() {
        registration = registration.subresource(subresource, verb);
    }
    if kind == Kind::Deployment {
        // These kinds are written in tenant namespaces only, and watched by label in all namespaces.
        registration = registration.written_in(Scope::Planned);
    }
    if let Some(selector) = kind.selector() {
        registration = registration.labels(selector);
    }
    if let Some(name) = kind.name() {
        registration = registration.name(name);
    }

    registration
}

fn typed(kind: Kind, scope: Scope) -> Registration {
    fn of<K: Stored>(scope: Scope) -> Registration {
        with_indexes::<K>(Registration::of(scope, keep::<K>))
    }
    match kind {
        Kind::Network => of::<Network>(scope),
        Kind::Ip => of::<IP>(scope),
        Kind::Configuration => of::<Configuration>(scope),
        Kind::GatewayServer => of::<GatewayServer>(scope),
        Kind::GatewayClient => of::<GatewayClient>(scope),
        Kind::PublicKey => of::<PublicKey>(scope),
        Kind::Connection => of::<Connection>(scope),
        Kind::Node => of::<Node>(scope),
        Kind::Pod => of::<Pod>(scope),
        Kind::Namespace => of::<Namespace>(scope),
        Kind::ConfigMap => of::<ConfigMap>(scope),
        Kind::Secret | Kind::GatewayKeys => of::<Secret>(scope),
        Kind::RoleBinding => of::<RoleBinding>(scope),
        Kind::Service | Kind::ApiServerService | Kind::ProxyService => of::<Service>(scope),
        Kind::EndpointSlice => of::<EndpointSlice>(scope),
        Kind::Deployment => of::<Deployment>(scope),
    }
}
