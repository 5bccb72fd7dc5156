//! Ingress -> Ingress of the provider.

use super::metadata::reflected;
use super::peering::Peering;
use k8s_openapi::api::networking::v1::{Ingress, IngressSpec};
use std::collections::BTreeMap;

/// Annotation with the class of an Ingress, which the field `spec.ingressClassName` has replaced.
const CLASS: &str = "kubernetes.io/ingress.class";

/// Returns the reflected Ingress. `class` is the class of the provider's Ingresses, if the VirtualNode offers one. Without it, the
/// default class of the provider applies: the classes of the two clusters have no names in common.
pub(crate) fn remote(local: &Ingress, peering: &Peering, class: Option<&str>) -> Ingress {
    let mut metadata = reflected(&local.metadata, peering);
    let annotations = metadata.annotations.take();
    metadata.annotations = annotations.map(without_class).filter(|it| !it.is_empty());
    let mut spec = content(local);
    spec.ingress_class_name = class.map(str::to_owned);
    Ingress {
        metadata,
        spec: Some(spec),
        // The ingress controller of the provider writes it.
        status: None,
    }
}

/// Returns the annotations of an Ingress, or their digests, but that of its class.
pub(super) fn without_class<V>(mut annotations: BTreeMap<String, V>) -> BTreeMap<String, V> {
    annotations.remove(CLASS);
    annotations
}

/// Returns the fields that an Ingress and the reflected one have in common.
pub(super) fn content(ingress: &Ingress) -> IngressSpec {
    let spec = ingress.spec.clone().unwrap_or_default();
    IngressSpec {
        default_backend: spec.default_backend,
        rules: spec.rules,
        tls: spec.tls,
        ingress_class_name: None,
    }
}
