//! Configuration: the CIDRs of a peer, before remapping.

use crate::cidrs::Cidrs;
use crate::cluster::Cluster;
use crate::global::Global;
use crate::manifest;
use crate::output::{self, Format};
use crate::parse;
use crate::verbs::create::{Build, Common, Namespaces};
use crate::verbs::delete::Delete;
use crate::verbs::get::Get;
use crate::verbs::{Action, Run, Verb};
use anyhow::{Result, anyhow};
use clap::Args;
use control_api::networking::configuration::{Configuration, NETWORK_CIDRS_CONFIGURED};
use control_api::{Network, labels};
use ipnet::Ipv4Net;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

pub(crate) const ACTIONS: &[Action] = &[
    Action::new::<Create>(
        Verb::Create,
        "Creates a Configuration: the CIDRs of a peer.",
        "liqoctl create configuration milan -n liqo-tenant-milan --remote-cluster-id milan --pod-cidr 10.244.0.0/16 --external-cidr 10.70.0.0/16",
    ),
    Action::new::<Generate>(
        Verb::Generate,
        "Prints the Configuration of this cluster, which a peer applies.",
        "liqoctl generate configuration | kubectl --kubeconfig milan.yaml apply -n liqo-tenant-rome -f -",
    ),
    Action::new::<Get<Configuration>>(
        Verb::Get,
        "Lists Configurations.",
        "liqoctl get configuration -o yaml",
    ),
    Action::new::<Delete<Configuration>>(
        Verb::Delete,
        "Deletes a Configuration.",
        "liqoctl delete configuration milan -n liqo-tenant-milan",
    ),
];

/// Returns a Configuration with the CIDRs of `peer`.
pub(crate) fn manifest(name: &str, namespace: Option<&str>, peer: &str, cidrs: &Cidrs) -> Value {
    let Cidrs { pod, external } = cidrs;
    let spec = json!({"remote": {"cidr": {"pod": pod, "external": external}}});
    manifest::object("Configuration", name, namespace, peer, spec)
}

/// Checks that the controller manager has applied the current generation.
///
/// # Errors
///
/// Returns the missing condition, or the manager's reason.
pub(crate) fn is_applied(configuration: &Configuration) -> Result<(), String> {
    let name = configuration.name_any();
    let conditions = configuration
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    let Some(condition) = conditions
        .iter()
        .find(|condition| condition.type_ == NETWORK_CIDRS_CONFIGURED)
    else {
        return Err(format!(
            "Configuration {name} has no condition {NETWORK_CIDRS_CONFIGURED} (does the controller-manager run?)"
        ));
    };
    if condition.observed_generation != configuration.metadata.generation {
        return Err(format!(
            "the controller-manager has not processed the last change of Configuration {name}"
        ));
    }
    if condition.status != "True" {
        return Err(format!(
            "Configuration {name} is not applied: {}: {}",
            condition.reason, condition.message
        ));
    }
    Ok(())
}

/// Flags of `liqoctl create configuration`.
#[derive(Args, Debug)]
struct Create {
    #[command(flatten)]
    common: Common,

    /// The pod CIDRs of the peer.
    #[arg(long, required = true, value_delimiter = ',', value_name = "CIDR", value_parser = parse::cidr)]
    pod_cidr: Vec<Ipv4Net>,

    /// The external CIDR of the peer.
    #[arg(long, required = true, value_delimiter = ',', value_name = "CIDR", value_parser = parse::cidr)]
    external_cidr: Vec<Ipv4Net>,

    /// Wait until the Configuration is applied.
    #[arg(long)]
    wait: bool,
}

impl Build for Create {
    type Object = Configuration;

    fn common(&self) -> &Common {
        &self.common
    }

    fn manifest(&self, namespaces: Namespaces<'_>) -> Value {
        let Common {
            name,
            remote_cluster_id,
            ..
        } = &self.common;
        let cidrs = Cidrs {
            pod: manifest::texts(&self.pod_cidr),
            external: manifest::texts(&self.external_cidr),
        };
        manifest(name, Some(namespaces.object), remote_cluster_id, &cidrs)
    }

    fn wait(&self) -> bool {
        self.wait
    }

    fn is_ready(object: &Configuration) -> Result<(), String> {
        is_applied(object)
    }
}

/// Flags of `liqoctl generate configuration`.
#[derive(Args, Debug)]
struct Generate {
    /// The output format, json or yaml.
    #[arg(long, short, default_value = "yaml", value_name = "FORMAT")]
    output: Format,
}

impl Run for Generate {
    async fn run(self, global: &Global) -> Result<()> {
        let cluster = Cluster::local(global).await?;
        let installation = cluster.installation().await?;
        let api = Api::<Network>::namespaced(cluster.client.clone(), &installation.namespace);
        let networks = cluster.list(&api, "Networks", labels::NETWORK_TYPE).await?;
        let cidrs = Cidrs::of(&networks)
            .map_err(|missing| anyhow!("{missing} in namespace {}", installation.namespace))?;
        let id = &installation.cluster_id;
        let object = manifest(id, global.namespace.as_deref(), id, &cidrs);
        output::print(self.output, &manifest::printed(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(generation: i64, observed: i64, status: &str) -> Configuration {
        serde_json::from_value(json!({
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": "Configuration",
            "metadata": {"name": "milan", "generation": generation},
            "spec": {},
            "status": {"conditions": [{
                "type": "NetworkCIDRsConfigured", "status": status, "reason": "R", "message": "M",
                "observedGeneration": observed, "lastTransitionTime": "2026-11-21T08:15:18Z",
            }]},
        }))
        .unwrap()
    }

    #[test]
    fn a_condition_is_valid_only_for_its_generation() {
        assert!(is_applied(&configured(2, 2, "True")).is_ok());
        assert!(
            is_applied(&configured(2, 1, "True"))
                .unwrap_err()
                .contains("last change")
        );
        assert!(
            is_applied(&configured(2, 2, "False"))
                .unwrap_err()
                .contains("R: M")
        );
    }

    #[test]
    fn the_manifest_equals_upstreams() {
        let cidrs = Cidrs {
            pod: vec!["10.244.0.0/16".to_owned()],
            external: vec!["10.70.0.0/16".to_owned()],
        };

        let text = manifest::yaml(manifest("rome", None, "rome", &cidrs));

        assert_eq!(
            text,
            "\
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata:
  labels:
    liqo.io/remote-cluster-id: rome
  name: rome
spec:
  remote:
    cidr:
      external:
      - 10.70.0.0/16
      pod:
      - 10.244.0.0/16
status: {}
"
        );
    }
}
