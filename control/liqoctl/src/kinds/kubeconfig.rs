//! Kubeconfig: the credentials of an Identity.

use crate::cluster::Cluster;
use crate::global::Global;
use crate::verbs::{Action, Run, Verb};
use crate::{parse, tenant};
use anyhow::{Context as _, Result};
use clap::Args;
use control_api::Identity;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use std::io::Write as _;

pub(crate) const ACTIONS: &[Action] = &[Action::new::<Get>(
    Verb::Get,
    "Prints the kubeconfig of an Identity.",
    "liqoctl get kubeconfig controlplane-milan --remote-cluster-id milan",
)];

/// Entry of the Secret.
const KUBECONFIG: &str = "kubeconfig";

/// Flags of `liqoctl get kubeconfig`.
#[derive(Args, Debug)]
struct Get {
    /// The name of the Identity.
    name: String,

    /// The cluster ID of the provider.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    remote_cluster_id: String,
}

impl Run for Get {
    async fn run(self, global: &Global) -> Result<()> {
        let cluster = Cluster::local(global).await?;
        let name = &self.name;
        let namespace = tenant::named_or_default(&cluster, global, &self.remote_cluster_id).await?;
        let api = Api::<Identity>::namespaced(cluster.client.clone(), &namespace);
        let identity = cluster.get(&api, "Identity", name).await?;
        let identity = identity.with_context(|| {
            format!(
                "there is no Identity {name} in namespace {namespace} of {}",
                cluster.place()
            )
        })?;
        let secret = identity
            .status
            .and_then(|status| status.kubeconfig_secret_ref)
            .with_context(|| {
                format!("Identity {name} has no kubeconfig yet: wait for the controller-manager")
            })?
            .name;
        let api = Api::<Secret>::namespaced(cluster.client.clone(), &namespace);
        let read = cluster.get(&api, "Secret", &secret).await?;
        let text = read.and_then(|secret| secret.data?.remove(KUBECONFIG));
        let text = text.with_context(|| {
            format!("Secret {namespace}/{secret} of Identity {name} has no {KUBECONFIG}")
        })?;
        let mut out = std::io::stdout();
        out.write_all(&text.0)?;
        out.write_all(b"\n")?;
        Ok(())
    }
}
