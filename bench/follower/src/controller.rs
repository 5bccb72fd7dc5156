//! A controller without writes: it looks up and compares as a reflector does.

use crate::kept::{KeptPod, KeptSlice};
use control_api::labels::TENANT_NAMESPACE;
use control_runtime::{
    Cache, Change, Cluster, Controller, Env, Key, Plan, Registration, Resource, Scope, Selector,
    WatchChange, WatchId,
};
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::fmt;
use tokio::sync::mpsc::UnboundedSender;

/// Index of EndpointSlices by Service. The names of Services are unique in the benchmark.
const BY_SERVICE: &str = "service";

/// Index of Pods by node.
const BY_NODE: &str = "node";

/// Follows Pods, EndpointSlices and the Secrets of tenant namespaces.
pub(crate) struct Reflection {
    /// Tenant namespaces whose Secrets are not listed yet.
    unlisted: usize,
    reports: UnboundedSender<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    Tenant(String),
    Pod(Key),
    Slice(Key),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(name) => f.write_str(name),
            Self::Pod(key) | Self::Slice(key) => key.fmt(f),
        }
    }
}

impl Reflection {
    /// Creates a controller that sends a report when the Secrets of `tenants` namespaces are listed,
    /// and for each marker.
    pub(crate) fn new(tenants: usize, reports: UnboundedSender<String>) -> Self {
        Self {
            unlisted: tenants,
            reports,
        }
    }

    fn report(&self, report: String) {
        // The receiver ends with the process only.
        let _ = self.reports.send(report);
    }

    /// Compares an EndpointSlice with the others of its Service.
    fn slice(&self, key: &Key, cache: &Cache) {
        let slices = cache.objects::<KeptSlice>(&Cluster::Local);
        let Some(slice) = slices.get(key) else { return };
        let siblings = slices.indexed(BY_SERVICE, &slice.service);
        let ready = siblings.flat_map(|(_, slice)| slice.endpoints.iter());
        let ready = ready.filter(|endpoint| endpoint.is_ready).count();
        if let Some(marker) = &slice.marker {
            self.report(format!("seen {marker}, {ready} endpoints are ready"));
        }
    }
}

impl Controller for Reflection {
    type Item = Item;
    const NAME: &'static str = "reflection";
    const FIELD_MANAGER: &'static str = "reflection";

    fn resources(&self) -> Vec<Registration> {
        let pods = Registration::of(Scope::All, |pod: Pod| KeptPod::from(pod));
        let pods = pods.index(BY_NODE, |pod: &KeptPod| vec![pod.node.to_string()]);
        let slices = Registration::of(Scope::All, |it: EndpointSlice| KeptSlice::from(it));
        let slices = slices.index(BY_SERVICE, |slice: &KeptSlice| {
            vec![slice.service.to_string()]
        });
        let tenants = Registration::of(Scope::All, |it: Namespace| it);
        let secrets = Registration::of(Scope::Planned, |it: Secret| it);
        vec![pods, slices, tenants.labels(TENANT_NAMESPACE), secrets]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<Item> {
        let (key, resource) = (change.object.key.clone(), &change.object.resource);
        if *resource == Resource::of::<Namespace>() {
            vec![Item::Tenant(key.name)]
        } else if *resource == Resource::of::<Pod>() {
            vec![Item::Pod(key)]
        } else if *resource == Resource::of::<EndpointSlice>() {
            vec![Item::Slice(key)]
        } else {
            Vec::new()
        }
    }

    fn listed(&mut self, id: &WatchId, _: &Cache) -> Vec<Item> {
        if id.resource == Resource::of::<Secret>() {
            self.unlisted = self.unlisted.saturating_sub(1);
            if self.unlisted == 0 {
                self.report("listed".to_owned());
            }
        }
        Vec::new()
    }

    fn plan(&mut self, item: &Item, cache: &Cache, _: &mut Env<'_>) -> Plan<Item> {
        let mut plan = Plan::default();
        match item {
            Item::Tenant(namespace) => plan.watches.push(WatchChange::Add(secrets(namespace))),
            Item::Slice(key) => self.slice(key, cache),
            // Its index is what costs memory. Only EndpointSlices are changed.
            Item::Pod(_) => {}
        }

        plan
    }
}

fn secrets(namespace: &str) -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource: Resource::of::<Secret>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector::default(),
    }
}
