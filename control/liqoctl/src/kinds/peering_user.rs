//! Peering user: a user of this cluster, a provider, who may peer on behalf of one consumer.

mod credentials;
mod rights;

use crate::cluster::Cluster;
use crate::global::Global;
use crate::progress::{self, begin};
use crate::steps::Runner;
use crate::tenant::TenantNamespace;
use crate::verbs::{Action, Run, Verb};
use crate::wait::Deadline;
use crate::{manager, objects, parse, tenant};
use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use control_api::labels;
use control_credentials::{Access, ClusterKey, KeyType, Subject, kubeconfig};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::io::Write as _;
use std::time::Duration;

pub(crate) const ACTIONS: &[Action] = &[
    Action::new::<Generate>(
        Verb::Generate,
        "Creates a user who may peer with this cluster on behalf of a consumer, and prints the kubeconfig.",
        "liqoctl generate peering-user --consumer-cluster-id rome > milan-for-rome.yaml",
    ),
    Action::new::<Delete>(
        Verb::Delete,
        "Deletes the user who may peer with this cluster on behalf of a consumer. The credentials become invalid.",
        "liqoctl delete peering-user --consumer-cluster-id rome",
    ),
];

/// Limit of the command.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the name of the user's objects.
fn name(consumer: &str) -> String {
    format!("liqo-peer-user-{consumer}")
}

/// Flags of `liqoctl generate peering-user`.
#[derive(Args, Debug)]
struct Generate {
    /// The cluster ID of the consumer.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    consumer_cluster_id: String,

    /// Whether the key is RSA, which more clusters support. Default: as the installation.
    #[arg(long, default_value = "auto", value_name = "MODE")]
    tls_compatibility_mode: Compatibility,

    /// Create the user although it can read the key of this cluster, which a reverse peering keeps in the tenant
    /// namespace.
    #[arg(long)]
    allow_reverse_peering: bool,
}

/// Whether keys are of a type that old clusters support.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Compatibility {
    /// As the installation.
    Auto,
    /// RSA.
    True,
    /// Ed25519.
    False,
}

impl Run for Generate {
    async fn run(self, global: &Global) -> Result<()> {
        let cluster = Cluster::local(global).await?;
        let liqo = cluster.installation().await?.namespace;
        let consumer = &self.consumer_cluster_id;
        progress::warn("Note that this functionality is currently not supported in EKS clusters");
        progress::warn("Please take note of this kubeconfig as it is not stored.");
        progress::warn(format_args!(
            "Note that it can only be used to peer with this cluster from a cluster with ID {consumer}"
        ));
        let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
        let text = Runner::run(deadline, async |runner| {
            let step = TenantNamespace::new(&cluster, consumer);
            let namespace = runner.apply(&step, &()).await?;
            if !self.allow_reverse_peering {
                refuse_readable_keys(&cluster, &namespace, consumer).await?;
            }
            let generating = begin("", "Generating a user for peering with this cluster");
            let text = self.create(&cluster, &liqo, &namespace, deadline).await?;
            generating.done("User generated successfully");
            Ok(text)
        })
        .await?;
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(())
    }
}

impl Generate {
    /// Creates the user and returns its kubeconfig.
    async fn create(
        &self,
        cluster: &Cluster,
        liqo: &str,
        namespace: &str,
        deadline: Deadline,
    ) -> Result<String> {
        let consumer = &self.consumer_cluster_id;
        let manager = manager::find(cluster, liqo).await?;
        let subject = Subject::peering_user(consumer, random()?);
        let key = ClusterKey::generate(self.key_type(manager.as_ref()), random()?)
            .context("failed to generate the key")?;
        let server = match manager::api_server(cluster, manager.as_ref()).await {
            address if address.is_empty() => cluster.url.clone(),
            address => address,
        };
        let ca = credentials::authority(cluster, liqo, manager.as_ref()).await?;
        let roles = rights::roles(cluster, liqo).await?;
        let user = name(consumer);
        let certificate = credentials::issue(cluster, &user, &subject, &key, deadline).await?;
        rights::bind(
            cluster,
            &user,
            &subject.common_name,
            (liqo, namespace),
            roles,
            self.allow_reverse_peering,
        )
        .await?;
        kubeconfig(&Access {
            cluster: consumer,
            user: &format!("{consumer}-user"),
            server: &server,
            certificate_authority: ca.as_deref(),
            proxy_url: None,
            namespace: Some(namespace),
            client: Some((&certificate, key.to_pem().as_bytes())),
        })
        .context("failed to write the kubeconfig")
    }

    fn key_type(&self, manager: Option<&Deployment>) -> KeyType {
        let setting = manager.and_then(|it| manager::argument(it, "--tls-compatibility-mode"));
        let is_compatible = match self.tls_compatibility_mode {
            Compatibility::Auto => setting.is_some_and(|it| it == "true"),
            Compatibility::True => true,
            Compatibility::False => false,
        };
        match is_compatible {
            true => KeyType::Rsa,
            false => KeyType::Ed25519,
        }
    }
}

/// Refuses a user who could read the key of this cluster: upstream's role may list Secrets, and the kubeconfigs of a
/// reverse peering contain that key.
async fn refuse_readable_keys(cluster: &Cluster, namespace: &str, peer: &str) -> Result<()> {
    let selector = format!("{},{}", objects::selector(peer), labels::IDENTITY_TYPE);
    let secrets: Vec<Secret> = objects::select(cluster, namespace, &selector).await?;
    if secrets.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = secrets.iter().map(|it| it.name_any()).collect();
    bail!(
        "the user could read the key of this cluster: this cluster is a consumer of {peer}, and Secrets in namespace {namespace} contain that key ({}); add --allow-reverse-peering to create the user nevertheless",
        names.join(", ")
    )
}

/// Returns random bytes of the operating system.
fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| anyhow!("the operating system provides no random bytes"))?;
    Ok(bytes)
}

/// Flags of `liqoctl delete peering-user`.
#[derive(Args, Debug)]
struct Delete {
    /// The cluster ID of the consumer.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    consumer_cluster_id: String,
}

impl Run for Delete {
    async fn run(self, global: &Global) -> Result<()> {
        let cluster = Cluster::local(global).await?;
        let liqo = cluster.installation().await?.namespace;
        let consumer = &self.consumer_cluster_id;
        let user = name(consumer);
        let namespace = tenant::find(&cluster, consumer).await?;
        // Without its bindings, the user has no rights.
        rights::remove(&cluster, &user, (&liqo, namespace.as_deref())).await?;
        credentials::remove(&cluster, &user).await?;
        if let Some(namespace) = namespace {
            tenant::removal::delete(&cluster, &namespace, None).await?;
        }
        progress::info(format_args!(
            "Peering user for cluster with ID \"{consumer}\" deleted successfully"
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manager(argument: &str) -> Deployment {
        serde_json::from_value(json!({
            "spec": {"selector": {}, "template": {"spec": {"containers": [
                {"name": "controller-manager", "args": [argument]},
            ]}}},
        }))
        .unwrap()
    }

    #[test]
    fn the_type_of_the_key_follows_the_installation_unless_a_flag_names_it() {
        let key_type = |mode, argument: &str| {
            let flags = Generate {
                consumer_cluster_id: "rome".to_owned(),
                tls_compatibility_mode: mode,
                allow_reverse_peering: false,
            };
            flags.key_type(Some(&manager(argument)))
        };
        let enabled = "--tls-compatibility-mode=true";
        let disabled = "--tls-compatibility-mode=false";

        assert_eq!(key_type(Compatibility::Auto, enabled), KeyType::Rsa);
        assert_eq!(key_type(Compatibility::Auto, disabled), KeyType::Ed25519);
        assert_eq!(key_type(Compatibility::True, disabled), KeyType::Rsa);
        assert_eq!(key_type(Compatibility::False, enabled), KeyType::Ed25519);
    }

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random::<32>().unwrap(), random::<32>().unwrap());
    }
}
