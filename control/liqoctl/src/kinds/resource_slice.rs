//! ResourceSlice: resources that this cluster requests of a provider.

use crate::cluster::Cluster;
use crate::global::Global;
use crate::manifest::{self, AUTHENTICATION};
use crate::observed::Select;
use crate::output::{self, Format};
use crate::progress;
use crate::steps::{Lines, ObjectStep, Progress, Runner, lines};
use crate::verbs::{Action, Run, Verb};
use crate::wait::Deadline;
use crate::{parse, tenant};
use anyhow::Result;
use clap::Args;
use control_api::authentication::resource_slice::{
    REPLICATION_FORBIDDEN, ResourceSlice, ResourceSliceCondition, ResourceSliceConditionStatus,
    ResourceSliceConditionType,
};
use control_api::{annotations, labels};
use serde_json::{Map, Value, json};
use std::time::Duration;

mod cordon;

pub(crate) const ACTIONS: &[Action] = &[
    Action::new::<Create>(
        Verb::Create,
        "Creates a ResourceSlice: resources that this cluster requests of a provider.",
        "liqoctl create resourceslice more --remote-cluster-id milan --cpu 4 --memory 8Gi --pods 30",
    ),
    Action::new::<cordon::Cordon>(
        Verb::Cordon,
        "Cordons a ResourceSlice of a consumer: no further pods of it are accepted.",
        "liqoctl cordon resourceslice more --remote-cluster-id rome",
    ),
    Action::new::<cordon::Uncordon>(
        Verb::Uncordon,
        "Uncordons a ResourceSlice of a consumer.",
        "liqoctl uncordon resourceslice more --remote-cluster-id rome",
    ),
];

/// Class of the resources that the provider's controller manager grants.
pub(crate) const DEFAULT_CLASS: &str = "default";

/// Default limit of the command.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Flags of the requested amounts.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Amounts {
    /// The amount of CPU, such as 4 or 500m. Default: that of the provider.
    #[arg(long, value_name = "QUANTITY", value_parser = parse::quantity)]
    cpu: Option<String>,

    /// The amount of memory, such as 8Gi. Default: that of the provider.
    #[arg(long, value_name = "QUANTITY", value_parser = parse::quantity)]
    memory: Option<String>,

    /// The number of pods. Default: that of the provider.
    #[arg(long, value_name = "QUANTITY", value_parser = parse::quantity)]
    pods: Option<String>,

    /// Amounts of other resources, such as nvidia.com/gpu=2,...
    #[arg(long, value_delimiter = ',', value_parser = parse::resource, value_name = "RESOURCE=QUANTITY")]
    resource: Vec<(String, String)>,
}

impl Amounts {
    fn value(&self) -> Map<String, Value> {
        let named = [
            ("cpu", &self.cpu),
            ("memory", &self.memory),
            ("pods", &self.pods),
        ];
        let named = named
            .into_iter()
            .filter_map(|(name, amount)| Some((name.to_owned(), amount.clone()?.into())));
        let others = self.resource.iter();
        let others = others.map(|(name, amount)| (name.clone(), amount.as_str().into()));
        named.chain(others).collect()
    }
}

/// A request of resources.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Name of the ResourceSlice and of its VirtualNode.
    pub(crate) name: String,
    /// Class of the resources.
    pub(crate) class: String,
    /// Requested amounts.
    pub(crate) amounts: Amounts,
    /// Whether the controller manager of this cluster creates a VirtualNode.
    pub(crate) with_virtual_node: bool,
}

impl Request {
    /// Returns the ResourceSlice.
    fn manifest(&self, namespace: &str, provider: &str) -> Value {
        let mut spec = json!({"class": self.class, "providerClusterID": provider});
        let amounts = self.amounts.value();
        if !amounts.is_empty() {
            spec["resources"] = amounts.into();
        }
        let kind = (AUTHENTICATION, "ResourceSlice");
        let mut object = manifest::object_of(kind, &self.name, Some(namespace), provider, spec);
        let metadata = &mut object["metadata"];
        metadata["labels"][labels::REPLICATION] = "true".into();
        metadata["labels"][labels::REMOTE_ID] = provider.into();
        let with_virtual_node = self.with_virtual_node.to_string();
        metadata["annotations"] = json!({annotations::CREATE_VIRTUAL_NODE: with_virtual_node});
        object
    }

    /// Returns the step that writes the ResourceSlice, and waits for the decisions of the provider. Returns the
    /// decision on the resources; other classes than the default one are decided by controllers of the user, which
    /// are not waited for.
    pub(crate) fn step<'a>(
        &self,
        consumer: &'a Cluster,
        namespace: &str,
        provider: &str,
    ) -> ObjectStep<'a, ResourceSlice, Option<ResourceSliceCondition>> {
        let lines = Lines {
            scope: consumer.side,
            apply: lines("Creating ResourceSlice", "ResourceSlice created"),
            wait: lines(
                "Waiting for ResourceSlice authentication to be accepted",
                "ResourceSlice authentication: Accepted",
            ),
            goal: "accepting the ResourceSlice",
        };
        let is_default = self.class == DEFAULT_CLASS;
        let select = Select::Name(self.name.clone());
        let object = self.manifest(namespace, provider);
        let output = move |slice: &ResourceSlice| decision(slice, is_default);
        ObjectStep::write(consumer, lines, select, object, output)
    }
}

/// Returns the decision on the resources of a ResourceSlice.
fn decision(
    slice: &ResourceSlice,
    needs_resources: bool,
) -> Progress<Option<ResourceSliceCondition>> {
    use ResourceSliceConditionType::{Authentication, Resources};

    let authentication = condition(slice, Authentication);
    let resources = condition(slice, Resources);
    for denied in [&authentication, &resources].into_iter().flatten() {
        if denied.status == ResourceSliceConditionStatus::Denied {
            return Progress::Refused(refusal(denied));
        }
    }
    match (authentication, resources) {
        (None, _) => Progress::Missing(
            "the provider has not decided on the ResourceSlice (do the controller-managers of both clusters run?)"
                .to_owned(),
        ),
        (Some(_), None) if needs_resources => Progress::Missing(
            "the provider has not decided on the resources of the ResourceSlice".to_owned(),
        ),
        (Some(_), resources) => Progress::Done(resources),
    }
}

/// Returns whether the provider refuses the requests of this cluster, so that it does not know the ResourceSlice.
pub(crate) fn is_forbidden(slice: &ResourceSlice) -> bool {
    let resources = condition(slice, ResourceSliceConditionType::Resources);
    resources.is_some_and(|it| it.reason.as_deref() == Some(REPLICATION_FORBIDDEN))
}

fn condition(
    slice: &ResourceSlice,
    type_: ResourceSliceConditionType,
) -> Option<ResourceSliceCondition> {
    let conditions = slice.status.iter().flat_map(|it| &it.conditions);
    conditions.into_iter().find(|it| it.type_ == type_).cloned()
}

fn refusal(denied: &ResourceSliceCondition) -> String {
    let (subject, remedy) = match denied.type_ {
        ResourceSliceConditionType::Authentication => (
            "authentication",
            format!("; {}", super::tenant::REINSTALLED),
        ),
        ResourceSliceConditionType::Resources => ("resources", String::new()),
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!(
        "ResourceSlice {subject}: Denied ({}: {}){remedy}",
        text(&denied.reason),
        text(&denied.message)
    )
}

/// Prints the decision on the resources.
pub(crate) fn report(class: &str, resources: Option<&ResourceSliceCondition>) {
    match resources {
        Some(_) => progress::info("ResourceSlice resources: Accepted"),
        None => progress::warn(format_args!(
            "ResourceSlice resources: no controller of the provider has decided on class {class} yet"
        )),
    }
}

/// Flags of `liqoctl create resourceslice`.
#[derive(Args, Debug)]
struct Create {
    /// The name of the object.
    #[arg(value_parser = parse::slice_name)]
    name: String,

    /// The cluster ID of the provider.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    remote_cluster_id: String,

    /// The class of the resources, which selects the controller that decides at the provider.
    #[arg(long, default_value = DEFAULT_CLASS, value_name = "CLASS")]
    class: String,

    #[command(flatten)]
    amounts: Amounts,

    /// Do not create a VirtualNode for the ResourceSlice.
    #[arg(long)]
    no_virtual_node: bool,

    /// Print the object as json or yaml instead of creating it.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

impl Run for Create {
    async fn run(self, global: &Global) -> Result<()> {
        let peer = &self.remote_cluster_id;
        let request = Request {
            name: self.name,
            class: self.class,
            amounts: self.amounts,
            with_virtual_node: !self.no_virtual_node,
        };
        if let Some(format) = self.output {
            let default = tenant::default_name(peer);
            let namespace = global.namespace.as_deref().unwrap_or(&default);
            let mut object = request.manifest(namespace, peer);
            manifest::add_metadata(
                &mut object,
                &global.global_labels,
                &global.global_annotations,
            );
            return output::print(format, &manifest::printed(object));
        }
        let cluster = Cluster::local(global).await?;
        let namespace = tenant::named_or_default(&cluster, global, peer).await?;
        let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
        Runner::run(deadline, async |runner| {
            let step = request.step(&cluster, &namespace, peer);
            let resources = runner.apply(&step, &()).await?;
            report(&request.class, resources.as_ref());
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(amounts: Amounts) -> Request {
        Request {
            name: "extra".to_owned(),
            class: DEFAULT_CLASS.to_owned(),
            amounts,
            with_virtual_node: true,
        }
    }

    #[test]
    fn the_manifest_equals_upstreams() {
        let object = request(Amounts::default()).manifest("liqo-tenant-milan", "milan");

        assert_eq!(
            manifest::yaml(object),
            "\
apiVersion: authentication.liqo.io/v1beta1
kind: ResourceSlice
metadata:
  annotations:
    liqo.io/create-virtual-node: \"true\"
  labels:
    liqo.io/remote-cluster-id: milan
    liqo.io/remoteID: milan
    liqo.io/replication: \"true\"
  name: extra
  namespace: liqo-tenant-milan
spec:
  class: default
  providerClusterID: milan
status: {}
"
        );
    }

    #[test]
    fn only_named_amounts_are_requested() {
        let amounts = Amounts {
            cpu: Some("4".to_owned()),
            resource: vec![("nvidia.com/gpu".to_owned(), "2".to_owned())],
            ..Amounts::default()
        };

        let object = request(amounts).manifest("a", "milan");

        let expected = json!({"cpu": "4", "nvidia.com/gpu": "2"});
        assert_eq!(object["spec"]["resources"], expected);
    }

    fn slice(conditions: &[(&str, &str)]) -> ResourceSlice {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status)| {
                json!({"type": type_, "status": status, "reason": "R", "message": "M"})
            })
            .collect();
        serde_json::from_value(json!({
            "apiVersion": AUTHENTICATION, "kind": "ResourceSlice", "metadata": {"name": "a"},
            "spec": {}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn both_decisions_are_waited_for_in_the_default_class_only() {
        let accepted = slice(&[("Authentication", "Accepted")]);
        let both = slice(&[("Authentication", "Accepted"), ("Resources", "Accepted")]);

        assert!(matches!(decision(&slice(&[]), false), Progress::Missing(_)));
        assert!(matches!(decision(&accepted, true), Progress::Missing(_)));
        assert!(matches!(decision(&accepted, false), Progress::Done(None)));
        assert!(matches!(decision(&both, true), Progress::Done(Some(_))));
    }

    #[test]
    fn a_denial_ends_the_wait_with_its_message() {
        let denied = slice(&[("Authentication", "Accepted"), ("Resources", "Denied")]);

        let Progress::Refused(reason) = decision(&denied, true) else {
            panic!("a denial must end the wait");
        };
        assert_eq!(reason, "ResourceSlice resources: Denied (R: M)");
    }
}
