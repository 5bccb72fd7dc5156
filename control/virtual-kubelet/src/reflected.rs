//! Metrics of reflected objects, with the names and labels of upstream's.

use control_runtime::{Outcome, Request};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Prefix of the kinds of objects that the provider turns into others.
const SHADOW: &str = "Shadow";

type Labels = [(&'static str, String); 4];

/// The numbers of writes of reflected objects, and of those that failed. Clones share them.
///
/// They are gauges, because the library would append `_total` to the names of counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reflected {
    /// Name of the VirtualNode.
    node: String,
    /// Cluster ID of the provider.
    provider: String,
    items: Family<Labels, Gauge>,
    errors: Family<Labels, Gauge>,
}

impl Reflected {
    /// Creates the metrics in a registry.
    pub(crate) fn new(registry: &mut Registry, node: &str, provider: &str) -> Self {
        let reflected = Self {
            node: node.to_owned(),
            provider: provider.to_owned(),
            ..Self::default()
        };
        registry.register(
            "reflection_item_counter",
            "Writes of reflected objects",
            reflected.items.clone(),
        );
        registry.register(
            "reflection_error_counter",
            "Writes of reflected objects that failed or were refused",
            reflected.errors.clone(),
        );

        reflected
    }

    /// Counts a request about an object of a namespace of this cluster, if it is a write.
    pub(crate) fn count(&self, namespace: &str, request: &Request, outcome: &Outcome) {
        let Request::Write(write) = request else {
            return;
        };
        let counter = match outcome {
            Outcome::Stored(_) | Outcome::Answer(_) | Outcome::Gone => &self.items,
            Outcome::Refused(_)
            | Outcome::TimedOut
            | Outcome::Failed(_)
            | Outcome::Untrusted(_) => &self.errors,
            // Nothing was written, and the object is planned again.
            Outcome::AlreadyExists(_) | Outcome::Conflict(_) | Outcome::NotLeader => return,
        };
        let resource = &write.object.resource;
        let kind = resource.kind.strip_prefix(SHADOW);
        let kind = kind.unwrap_or(&resource.kind);
        let labels = [
            ("namespace", namespace.to_owned()),
            ("reflector_resource", kind.to_owned()),
            ("cluster_id", self.provider.clone()),
            ("node_name", self.node.clone()),
        ];
        counter.get_or_create_owned(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_api::ShadowPod;
    use control_runtime::{Action, Cluster, Key, Ref, Write};
    use prometheus_client::encoding::text::encode;

    #[test]
    fn the_metrics_have_the_names_and_labels_of_upstreams() {
        let mut registry = Registry::with_prefix("liqo_virtual_kubelet");
        let reflected = Reflected::new(&mut registry, "milan-2", "milan");
        let object = Ref::of::<ShadowPod>(&Cluster::remote("milan"), &Key::new("shop-rome", "web"));
        let request = Request::Write(Write::new(object.clone(), Action::Delete));

        reflected.count("shop", &request, &Outcome::Gone);
        reflected.count("shop", &request, &Outcome::TimedOut);
        reflected.count("shop", &request, &Outcome::NotLeader);
        reflected.count("shop", &Request::Read(object), &Outcome::Gone);

        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let labels = r#"{namespace="shop",reflector_resource="Pod",cluster_id="milan",node_name="milan-2"} 1"#;
        for name in ["item", "error"] {
            let line = format!("liqo_virtual_kubelet_reflection_{name}_counter{labels}\n");
            assert!(text.contains(&line), "{text}");
        }
    }
}
