//! Flags about the resources that this cluster grants to consumers.

use crate::authentication::Grants;
use clap::{ArgAction, Args};
use control_api::classes::{IngressClass, LoadBalancerClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Resources and classes that this cluster grants to consumers.
#[derive(Clone, Debug, Args)]
pub(super) struct GrantsArgs {
    /// Grant ResourceSlices of the default class what they request.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    default_resource_slice_class_enabled: bool,

    /// Amounts that a consumer gets if it requests none.
    #[arg(long, value_name = "RESOURCE=QUANTITY,...", value_delimiter = ',', value_parser = resource, default_value = "cpu=4,ephemeral-storage=20Gi,memory=8Gi,pods=110")]
    default_node_resources: Vec<(String, Quantity)>,

    /// Let consumers use the StorageClasses of this cluster.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    enable_storage: bool,

    /// StorageClass for claims of consumers that name none, if not that of this cluster.
    #[arg(long, value_name = "NAME", default_value = "")]
    real_storage_class_name: String,

    /// IngressClasses that consumers may use; `;default` marks the one for Ingresses that name none.
    #[arg(long, value_name = "NAME[;default],...", value_delimiter = ',')]
    ingress_classes: Vec<String>,

    /// Classes of load balancers that consumers may use; `;default` marks the one for Services that name none.
    #[arg(long, value_name = "NAME[;default],...", value_delimiter = ',')]
    load_balancer_classes: Vec<String>,
}

impl GrantsArgs {
    /// Returns the grants of a cluster with these labels.
    pub(super) fn grants(&self, labels: &[(String, String)]) -> Grants {
        let ingress = classes(&self.ingress_classes).map(|(name, default)| IngressClass {
            default,
            ingress_class_name: name,
        });
        let load_balancer =
            classes(&self.load_balancer_classes).map(|(name, default)| LoadBalancerClass {
                default,
                load_balancer_class_name: name,
            });

        Grants {
            is_default_class_enabled: self.default_resource_slice_class_enabled,
            defaults: BTreeMap::from_iter(self.default_node_resources.iter().cloned()),
            has_storage: self.enable_storage,
            storage_class: self.real_storage_class_name.clone(),
            ingress_classes: ingress.collect(),
            load_balancer_classes: load_balancer.collect(),
            node_labels: BTreeMap::from_iter(labels.iter().cloned()),
        }
    }
}

/// Returns the classes of a flag, and whether each is the default one.
fn classes(texts: &[String]) -> impl Iterator<Item = (String, Option<bool>)> {
    let texts = texts.iter().filter(|text| !text.is_empty());
    texts.map(|text| match text.split_once(';') {
        Some((name, mark)) => (name.to_owned(), (mark == "default").then_some(true)),
        None => (text.clone(), None),
    })
}

fn resource(text: &str) -> Result<(String, Quantity), String> {
    let pair = text.split_once('=').filter(|(name, quantity)| {
        !name.is_empty() && quantity.starts_with(|c: char| c.is_ascii_digit())
    });
    let pair = pair.map(|(name, quantity)| (name.to_owned(), Quantity(quantity.to_owned())));

    pair.ok_or_else(|| format!("`{text}` is not an amount: use RESOURCE=QUANTITY, such as cpu=4"))
}
