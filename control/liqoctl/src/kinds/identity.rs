//! Identity: the credentials that a provider issued to this cluster.

use super::tenant::Granted;
use crate::cluster::Cluster;
use crate::global::Global;
use crate::manifest::{self, AUTHENTICATION};
use crate::observed::Select;
use crate::output::{self, Format};
use crate::steps::{Lines, ObjectStep, lines};
use crate::verbs::{Action, Run, Verb};
use crate::{objects, parse, tenant};
use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use control_api::{Identity, Tenant};
use serde_json::{Value, json};

pub(crate) const ACTIONS: &[Action] = &[Action::new::<Generate>(
    Verb::Generate,
    "Prints the Identity of a consumer, which the consumer applies.",
    "liqoctl generate identity --remote-cluster-id rome | kubectl --kubeconfig rome.yaml apply -n liqo-tenant-milan -f -",
)];

/// Returns the name of the Identity with which the control plane of this cluster authenticates to `provider`.
pub(crate) fn control_plane(provider: &str) -> String {
    format!("controlplane-{provider}")
}

/// Returns the Identity for the provider.
fn manifest(provider: &str, namespace: Option<&str>, granted: &Granted) -> Value {
    let spec = json!({
        "authParams": granted.auth_params,
        "clusterID": provider,
        "namespace": granted.namespace,
        "type": "ControlPlane",
    });
    let name = control_plane(provider);
    manifest::object_of(
        (AUTHENTICATION, "Identity"),
        &name,
        namespace,
        provider,
        spec,
    )
}

/// Returns the step that writes the Identity in the cluster of the consumer.
pub(crate) fn step<'a>(
    consumer: &'a Cluster,
    namespace: &str,
    provider: &str,
    granted: &Granted,
) -> ObjectStep<'a, Identity, ()> {
    let lines = Lines {
        scope: consumer.side,
        apply: lines(
            "Applying identity on consumer cluster",
            "Identity correctly applied on consumer cluster",
        ),
        wait: lines(
            "Waiting for identity status to be filled",
            "Identity status is filled",
        ),
        goal: "storing the credentials",
    };
    let select = Select::Name(control_plane(provider));
    let object = manifest(provider, Some(namespace), granted);
    ObjectStep::write(consumer, lines, select, object, |identity: &Identity| {
        let status = identity.status.as_ref();
        match status.and_then(|status| status.kubeconfig_secret_ref.as_ref()) {
            Some(_) => Ok(()),
            None => Err(
                "the Identity has no kubeconfig yet (does the controller-manager run?)".to_owned(),
            ),
        }
    })
    .optional("/spec/authParams", "proxyURL")
}

/// Flags of `liqoctl generate identity`.
#[derive(Args, Debug)]
struct Generate {
    /// The cluster ID of the consumer.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    remote_cluster_id: String,

    /// The tenant namespace of this cluster at the consumer. Default: that of `kubectl apply`.
    #[arg(long, value_name = "NAMESPACE")]
    remote_tenant_namespace: Option<String>,

    /// The output format, json or yaml.
    #[arg(long, short, default_value = "yaml", value_name = "FORMAT")]
    output: Format,
}

impl Run for Generate {
    async fn run(self, global: &Global) -> Result<()> {
        let cluster = Cluster::local(global).await?;
        let liqo = cluster.installation().await?;
        let peer = &self.remote_cluster_id;
        let namespace = tenant::named_or_default(&cluster, global, peer).await?;
        let tenant: Option<Tenant> = objects::find(&cluster, &namespace, peer).await?;
        let tenant = tenant.with_context(|| {
            format!(
                "there is no Tenant of {peer} in namespace {namespace} of {}: apply the output of `liqoctl generate tenant` first",
                cluster.place()
            )
        })?;
        let granted = Granted::of(&tenant).map_err(|missing| anyhow!(missing))?;
        let namespace = self.remote_tenant_namespace.as_deref();
        let mut object = manifest(&liqo.cluster_id, namespace, &granted);
        manifest::add_metadata(
            &mut object,
            &global.global_labels,
            &global.global_annotations,
        );
        output::print(self.output, &manifest::printed(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::authentication::auth_params::AuthParams;
    use k8s_openapi::ByteString;

    #[test]
    fn the_manifest_equals_upstreams() {
        let granted = Granted {
            auth_params: AuthParams {
                api_server: Some("https://172.18.2.2:6443".to_owned()),
                ca: Some(ByteString(b"ca".to_vec())),
                signed_crt: Some(ByteString(b"crt".to_vec())),
                ..AuthParams::default()
            },
            namespace: "liqo-tenant-rome".to_owned(),
        };

        assert_eq!(
            manifest::yaml(manifest("milan", None, &granted)),
            "\
apiVersion: authentication.liqo.io/v1beta1
kind: Identity
metadata:
  labels:
    liqo.io/remote-cluster-id: milan
  name: controlplane-milan
spec:
  authParams:
    apiServer: https://172.18.2.2:6443
    ca: Y2E=
    signedCRT: Y3J0
  clusterID: milan
  namespace: liqo-tenant-rome
  type: ControlPlane
status: {}
"
        );
    }
}
