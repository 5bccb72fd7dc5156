//! Nonce: the text that a consumer signs to prove to this cluster, its provider, that it holds its key.

use crate::cluster::Cluster;
use crate::global::Global;
use crate::observed::Select;
use crate::output::{self, Format};
use crate::parse;
use crate::steps::{Lines, ObjectStep, Runner, lines};
use crate::tenant::{self, TenantNamespace};
use crate::verbs::{Action, Run, Verb};
use crate::wait::Deadline;
use crate::{manifest, objects};
use anyhow::{Context as _, Result};
use clap::Args;
use control_api::labels;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::Duration;

pub(crate) const ACTIONS: &[Action] = &[
    Action::new::<Create>(
        Verb::Create,
        "Creates a nonce, which a consumer signs to authenticate to this cluster.",
        "liqoctl create nonce --remote-cluster-id rome",
    ),
    Action::new::<Get>(
        Verb::Get,
        "Prints the nonce of a consumer.",
        "liqoctl get nonce --remote-cluster-id rome",
    ),
];

/// Name of the Secret with the nonce, in the provider's tenant namespace.
const NAME: &str = "liqo-nonce";

/// Key of the nonce in the Secrets of both sides.
pub(crate) const NONCE: &str = "nonce";

/// Default limit of the command.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the Secret that the controller manager of the provider fills.
fn manifest(namespace: &str, peer: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": NAME,
            "namespace": namespace,
            "labels": {labels::NONCE: "true", labels::REMOTE_CLUSTER_ID: peer},
        },
    })
}

/// Returns the labels of the nonce of a consumer.
pub(crate) fn selector(peer: &str) -> String {
    format!("{},{}=true", objects::selector(peer), labels::NONCE)
}

/// Returns the nonce in a Secret, if it has one.
pub(crate) fn text(secret: &Secret) -> Option<&[u8]> {
    let value = secret.data.as_ref()?.get(NONCE)?;
    (!value.0.is_empty()).then_some(value.0.as_slice())
}

/// Returns the step that creates the nonce of a consumer, and returns its text.
pub(crate) fn step<'a>(
    cluster: &'a Cluster,
    namespace: &str,
    peer: &str,
) -> ObjectStep<'a, Secret, Vec<u8>> {
    let lines = Lines {
        scope: cluster.side,
        apply: lines("Ensuring nonce secret", "Nonce secret ensured"),
        wait: lines(
            "Waiting for nonce to be generated",
            "Nonce generated successfully",
        ),
        goal: "generating the nonce",
    };
    let select = Select::Labels(selector(peer));
    let output = |secret: &Secret| {
        let text = text(secret).map(<[u8]>::to_vec);
        text.ok_or_else(|| {
            "the nonce is empty (does the controller-manager run, with the chart's value authentication.enabled?)"
                .to_owned()
        })
    };
    ObjectStep::write(cluster, lines, select, manifest(namespace, peer), output)
}

/// Flags of `liqoctl create nonce`.
#[derive(Args, Debug)]
struct Create {
    /// The cluster ID of the consumer.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    remote_cluster_id: String,

    /// Print the objects as json or yaml instead of creating them.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

impl Run for Create {
    async fn run(self, global: &Global) -> Result<()> {
        let peer = &self.remote_cluster_id;
        if let Some(format) = self.output {
            return preview(global, peer, format);
        }
        let cluster = Cluster::local(global).await?;
        let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
        Runner::run(deadline, async |runner| {
            let namespace = match &global.namespace {
                Some(namespace) => namespace.clone(),
                None => {
                    let step = TenantNamespace::new(&cluster, peer);
                    runner.apply(&step, &()).await?
                }
            };
            runner.apply(&step(&cluster, &namespace, peer), &()).await?;
            Ok(())
        })
        .await
    }
}

/// Prints the tenant namespace and the Secret. No API server is needed.
fn preview(global: &Global, peer: &str, format: Format) -> Result<()> {
    let default = tenant::default_name(peer);
    let namespace = global.namespace.as_deref();
    let mut objects = match namespace {
        Some(_) => Vec::new(),
        None => vec![tenant::manifest(peer)],
    };
    objects.push(manifest(namespace.unwrap_or(&default), peer));
    for object in &mut objects {
        manifest::add_metadata(object, &global.global_labels, &global.global_annotations);
    }
    output::print_all(format, &objects)
}

/// Flags of `liqoctl get nonce`.
#[derive(Args, Debug)]
struct Get {
    /// The cluster ID of the consumer.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    remote_cluster_id: String,
}

impl Run for Get {
    async fn run(self, global: &Global) -> Result<()> {
        let cluster = Cluster::local(global).await?;
        let peer = &self.remote_cluster_id;
        let namespace = tenant::named_or_default(&cluster, global, peer).await?;
        let selector = selector(peer);
        let found: Vec<Secret> = objects::select(&cluster, &namespace, &selector).await?;
        let nonce = found.iter().find_map(text).with_context(|| {
            format!(
                "there is no nonce of {peer} in namespace {namespace} of {}: run `liqoctl create nonce --remote-cluster-id {peer}`",
                cluster.place()
            )
        })?;
        // Bare, so that a script can pass it on.
        std::io::stdout().write_all(nonce)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_equals_upstreams() {
        let text = output::text(Format::Yaml, &manifest("liqo-tenant-milan", "milan")).unwrap();

        assert_eq!(
            text,
            "\
apiVersion: v1
kind: Secret
metadata:
  labels:
    liqo.io/nonce: \"true\"
    liqo.io/remote-cluster-id: milan
  name: liqo-nonce
  namespace: liqo-tenant-milan
"
        );
    }

    #[test]
    fn an_empty_nonce_is_no_nonce() {
        let secret =
            |data: Value| -> Secret { serde_json::from_value(json!({"data": data})).unwrap() };

        assert_eq!(text(&secret(json!({"nonce": "Zm9v"}))), Some(&b"foo"[..]));
        assert_eq!(text(&secret(json!({"nonce": ""}))), None);
        assert_eq!(text(&secret(json!({}))), None);
    }
}
