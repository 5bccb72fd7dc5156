//! VirtualNode: a node of this cluster that stands for resources of a provider.

use crate::cluster::Cluster;
use crate::global::Global;
use crate::manifest::{self, OFFLOADING};
use crate::observed::Select;
use crate::output::{self, Format};
use crate::steps::{Lines, ObjectStep, Runner, lines};
use crate::verbs::delete::Delete;
use crate::verbs::{Action, Run, Verb};
use crate::wait::Deadline;
use crate::{parse, tenant};
use anyhow::{Context as _, Result};
use clap::Args;
use control_api::{Identity, ResourceSlice, VirtualNode, labels};
use kube::Api;
use serde_json::{Map, Value, json};
use std::time::Duration;

pub(crate) const ACTIONS: &[Action] = &[
    Action::new::<Create>(
        Verb::Create,
        "Creates a VirtualNode: a node that stands for resources of a provider.",
        "liqoctl create virtualnode more --remote-cluster-id milan --resource-slice-name milan",
    ),
    Action::new::<Delete<VirtualNode>>(
        Verb::Delete,
        "Deletes a VirtualNode.",
        "liqoctl delete virtualnode more -n liqo-tenant-milan",
    ),
];

/// Default limit of the command.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the step that waits for the VirtualNode of a ResourceSlice, which the controller manager creates.
pub(crate) fn step<'a>(
    cluster: &'a Cluster,
    namespace: &str,
    name: &str,
) -> ObjectStep<'a, VirtualNode, ()> {
    let lines = Lines {
        scope: cluster.side,
        apply: None,
        wait: lines(
            "Waiting for VirtualNode to be created",
            "VirtualNode created",
        ),
        goal: "creating the VirtualNode",
    };
    ObjectStep::wait(
        cluster,
        lines,
        namespace,
        Select::Name(name.to_owned()),
        |node: &VirtualNode| match node.spec.kubeconfig_secret_ref {
            Some(_) => Ok(()),
            None => Err("the VirtualNode has no kubeconfig".to_owned()),
        },
    )
}

/// Returns the step that writes a VirtualNode, and waits until the controller manager has accepted it.
fn creation<'a>(
    cluster: &'a Cluster,
    name: &str,
    object: Value,
) -> ObjectStep<'a, VirtualNode, ()> {
    let lines = Lines {
        scope: cluster.side,
        apply: lines("Creating virtual node", "Virtual node created"),
        wait: lines(
            "Waiting for virtual node to be processed",
            "Virtual node processed",
        ),
        goal: "processing the VirtualNode",
    };
    let select = Select::Name(name.to_owned());
    ObjectStep::write(
        cluster,
        lines,
        select,
        object,
        |node: &VirtualNode| match node
            .status
            .as_ref()
            .is_some_and(|it| !it.conditions.is_empty())
        {
            true => Ok(()),
            false => Err(
                "the VirtualNode has no conditions yet (does the controller-manager run?)"
                    .to_owned(),
            ),
        },
    )
}

/// Flags of `liqoctl create virtualnode`.
#[derive(Args, Debug)]
struct Create {
    /// The name of the object and of the Node.
    name: String,

    /// The cluster ID of the provider.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    remote_cluster_id: String,

    /// The ResourceSlice with the resources, the classes and the credentials.
    #[arg(long, value_name = "NAME", conflicts_with = "kubeconfig_secret_name")]
    resource_slice_name: Option<String>,

    /// The Secret with the kubeconfig for the provider.
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "resource_slice_name"
    )]
    kubeconfig_secret_name: Option<String>,

    #[command(flatten)]
    resources: Resources,

    #[command(flatten)]
    pods: Pods,

    #[command(flatten)]
    node: NodeFlags,

    /// Make the Node ready without a connection of the pod networks.
    #[arg(long)]
    disable_network_check: bool,

    /// Labels of the Node: key=value,...
    #[arg(long, value_delimiter = ',', value_parser = parse::pair, value_name = "KEY=VALUE")]
    labels: Vec<(String, String)>,

    /// The VkOptionsTemplate, as NAMESPACE/NAME. Default: that of the installation.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name)]
    vk_options_template: Option<(String, String)>,

    /// Print the object as json or yaml instead of creating it.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

switches! {
    /// Flags of the Node.
    struct NodeFlags {
        /// Whether a Node is created.
        create_node,
    }
}

/// Flags of the resources of a VirtualNode without ResourceSlice.
#[derive(Args, Debug)]
struct Resources {
    /// The amount of CPU.
    #[arg(long, default_value = "2", value_name = "QUANTITY", value_parser = parse::quantity)]
    cpu: String,

    /// The amount of memory.
    #[arg(long, default_value = "4Gi", value_name = "QUANTITY", value_parser = parse::quantity)]
    memory: String,

    /// The number of pods.
    #[arg(long, default_value = "110", value_name = "QUANTITY", value_parser = parse::quantity)]
    pods: String,

    /// Amounts of other resources, such as nvidia.com/gpu=2,...
    #[arg(long, value_delimiter = ',', value_parser = parse::resource, value_name = "RESOURCE=QUANTITY")]
    resource: Vec<(String, String)>,

    /// The IngressClasses of the provider. The first one is the default one.
    #[arg(long, value_delimiter = ',', value_name = "CLASS")]
    ingress_classes: Vec<String>,

    /// The classes of load balancers of the provider. The first one is the default one.
    #[arg(long, value_delimiter = ',', value_name = "CLASS")]
    load_balancer_classes: Vec<String>,

    /// The StorageClasses of the provider. The first one is the default one.
    #[arg(long, value_delimiter = ',', value_name = "CLASS")]
    storage_classes: Vec<String>,
}

/// Flags that change offloaded pods.
#[derive(Args, Debug)]
struct Pods {
    /// Labels of the provider's nodes that run offloaded pods: key=value,...
    #[arg(long, value_delimiter = ',', value_parser = parse::pair, value_name = "KEY=VALUE")]
    node_selector: Vec<(String, String)>,

    /// The RuntimeClass of offloaded pods at the provider.
    #[arg(long, value_name = "NAME")]
    runtime_class_name: Option<String>,
}

impl Run for Create {
    async fn run(self, global: &Global) -> Result<()> {
        let peer = &self.remote_cluster_id;
        let cluster = Cluster::local(global).await?;
        let namespace = tenant::named_or_default(&cluster, global, peer).await?;
        let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
        Runner::run(deadline, async |runner| {
            let source = match &self.resource_slice_name {
                Some(slice) => of_slice(runner, &cluster, &namespace, slice).await?,
                None => self.of_flags(),
            };
            let object = cluster.with_metadata(self.manifest(&namespace, source));
            if let Some(format) = self.output {
                return output::print(format, &manifest::printed(object));
            }
            runner
                .apply(&creation(&cluster, &self.name, object), &())
                .await
        })
        .await
    }
}

impl Create {
    /// Returns the fields of the spec that come from the provider: credentials, resources and classes.
    fn of_flags(&self) -> Value {
        let Resources {
            cpu,
            memory,
            pods,
            resource,
            ..
        } = &self.resources;
        let mut hard = json!({"cpu": cpu, "memory": memory, "pods": pods});
        for (name, amount) in resource {
            hard[name] = amount.as_str().into();
        }
        let mut spec = json!({
            "kubeconfigSecretRef": {"name": self.kubeconfig_secret_name},
            "resourceQuota": {"hard": hard},
        });
        for (field, name, classes) in [
            (
                "ingressClasses",
                "ingressClassName",
                &self.resources.ingress_classes,
            ),
            (
                "loadBalancerClasses",
                "loadBalancerClassName",
                &self.resources.load_balancer_classes,
            ),
            (
                "storageClasses",
                "storageClassName",
                &self.resources.storage_classes,
            ),
        ] {
            if !classes.is_empty() {
                spec[field] = list(name, classes);
            }
        }
        spec
    }

    /// Returns the VirtualNode with the fields of `spec` and of the flags.
    fn manifest(&self, namespace: &str, mut spec: Value) -> Value {
        let peer = &self.remote_cluster_id;
        spec["clusterID"] = peer.as_str().into();
        spec["createNode"] = self.node.create_node.into();
        spec["disableNetworkCheck"] = self.disable_network_check.into();
        spec["labels"][labels::REMOTE_CLUSTER_ID] = peer.as_str().into();
        for (key, value) in &self.labels {
            spec["labels"][key] = value.as_str().into();
        }
        for (key, value) in &self.pods.node_selector {
            spec["offloadingPatch"]["nodeSelector"][key] = value.as_str().into();
        }
        if let Some(name) = &self.pods.runtime_class_name {
            spec["offloadingPatch"]["runtimeClassName"] = name.as_str().into();
        }
        if let Some((namespace, name)) = &self.vk_options_template {
            spec["vkOptionsTemplateRef"] = json!({"name": name, "namespace": namespace});
        }
        let kind = (OFFLOADING, "VirtualNode");
        manifest::object_of(kind, &self.name, Some(namespace), peer, spec)
    }
}

/// Returns classes as a list of objects, the first of which is the default one.
fn list(name: &str, classes: &[String]) -> Value {
    let class = |(index, class): (usize, &String)| {
        let mut item = Map::new();
        item.insert(name.to_owned(), class.as_str().into());
        if index == 0 {
            item.insert("default".to_owned(), true.into());
        }
        Value::from(item)
    };
    classes.iter().enumerate().map(class).collect()
}

/// Returns the fields of the spec that a ResourceSlice and its Identity determine. Waits for the credentials of the
/// provider.
async fn of_slice(
    runner: &Runner,
    cluster: &Cluster,
    namespace: &str,
    name: &str,
) -> Result<Value> {
    let api = Api::<ResourceSlice>::namespaced(cluster.client.clone(), namespace);
    let read = async || {
        let slice = cluster.get(&api, "ResourceSlice", name).await?;
        slice.with_context(|| {
            format!(
                "there is no ResourceSlice {name} in namespace {namespace} of {}",
                cluster.place()
            )
        })
    };
    read().await?;
    let lines = Lines {
        scope: cluster.side,
        apply: None,
        wait: None,
        goal: "obtaining the credentials of the ResourceSlice",
    };
    let selector = Select::Labels(format!("{}={name}", labels::RESOURCE_SLICE_NAME));
    let secret = |identity: &Identity| {
        let status = identity.status.as_ref();
        let secret = status.and_then(|status| status.kubeconfig_secret_ref.as_ref());
        let missing = || "the Identity has no kubeconfig yet".to_owned();
        secret.map(|secret| secret.name.clone()).ok_or_else(missing)
    };
    let credentials = ObjectStep::wait(cluster, lines, namespace, selector, secret);
    let secret = runner.apply(&credentials, &()).await?;
    // The provider writes the resources together with the credentials.
    let slice = read().await?;

    Ok(spec_of(&slice, &secret))
}

fn spec_of(slice: &ResourceSlice, secret: &str) -> Value {
    let status = slice.status.clone().unwrap_or_default();
    let mut spec = json!({
        "kubeconfigSecretRef": {"name": secret},
        "labels": status.node_labels,
        "resourceQuota": {"hard": status.resources},
    });
    for (field, list) in [
        ("ingressClasses", json!(status.ingress_classes)),
        ("loadBalancerClasses", json!(status.load_balancer_classes)),
        ("storageClasses", json!(status.storage_classes)),
    ] {
        if list != json!([]) {
            spec[field] = list;
        }
    }
    if !status.node_selector.is_empty() {
        spec["offloadingPatch"]["nodeSelector"] = json!(status.node_selector);
    }
    spec
}

fn namespaced_name(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("write it as NAMESPACE/NAME".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        create: Create,
    }

    fn parse(arguments: &[&str]) -> Create {
        let common = ["test", "vn-extra", "--remote-cluster-id", "milan"];
        Command::parse_from(common.iter().chain(arguments)).create
    }

    #[test]
    fn a_virtual_node_of_a_slice_equals_upstreams() {
        let slice: ResourceSlice = serde_json::from_value(json!({
            "apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice",
            "metadata": {"name": "milan"}, "spec": {},
            "status": {
                "nodeLabels": {"provider": "AWS", "region": "B"},
                "resources": {
                    "cpu": "20", "ephemeral-storage": "20Gi", "memory": "20Gi", "pods": "200",
                },
                "storageClasses": [
                    {"storageClassName": "liqo"}, {"default": true, "storageClassName": "standard"},
                ],
            },
        }))
        .unwrap();
        let create = parse(&["--resource-slice-name", "milan"]);

        let spec = spec_of(&slice, "kubeconfig-resourceslice-milan");

        assert_eq!(
            manifest::yaml(create.manifest("liqo-tenant-milan", spec)),
            "\
apiVersion: offloading.liqo.io/v1beta1
kind: VirtualNode
metadata:
  labels:
    liqo.io/remote-cluster-id: milan
  name: vn-extra
  namespace: liqo-tenant-milan
spec:
  clusterID: milan
  createNode: true
  disableNetworkCheck: false
  kubeconfigSecretRef:
    name: kubeconfig-resourceslice-milan
  labels:
    liqo.io/remote-cluster-id: milan
    provider: AWS
    region: B
  resourceQuota:
    hard:
      cpu: \"20\"
      ephemeral-storage: 20Gi
      memory: 20Gi
      pods: \"200\"
  storageClasses:
  - storageClassName: liqo
  - default: true
    storageClassName: standard
status: {}
"
        );
    }

    #[test]
    fn flags_replace_a_slice() {
        let create = parse(&[
            "--kubeconfig-secret-name=milan",
            "--create-node=false",
            "--storage-classes=a,b",
            "--resource=nvidia.com/gpu=2",
            "--node-selector=c=d",
            "--vk-options-template=liqo/custom",
        ]);

        let spec = create.manifest("a", create.of_flags())["spec"].clone();

        assert_eq!(
            spec,
            json!({
                "clusterID": "milan",
                "createNode": false,
                "disableNetworkCheck": false,
                "kubeconfigSecretRef": {"name": "milan"},
                "labels": {"liqo.io/remote-cluster-id": "milan"},
                "offloadingPatch": {"nodeSelector": {"c": "d"}},
                "resourceQuota": {"hard": {
                    "cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "2", "pods": "110",
                }},
                "storageClasses": [
                    {"default": true, "storageClassName": "a"}, {"storageClassName": "b"},
                ],
                "vkOptionsTemplateRef": {"name": "custom", "namespace": "liqo"},
            })
        );
    }

    #[test]
    fn a_virtual_node_needs_a_slice_or_a_secret() {
        let common = ["test", "a", "--remote-cluster-id=milan"];

        assert!(Command::try_parse_from(common).is_err());
    }
}
