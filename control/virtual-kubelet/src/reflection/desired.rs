//! The object that the provider should have for one of this cluster.

use super::endpointslice::{Endpoints, Location};
use super::item::WorkItem;
use super::kind::Kind;
use super::metadata::{reflected_annotations, reflected_labels};
use super::registrations::{BY_SPEC, service_of};
use super::settings::Settings;
use super::summary::{Fingerprint, Summary, keep};
use super::{configmap, endpointslice, ingress, other, secret, service};
use control_api::annotations::REMOTE_POD_CIDRS;
use control_api::offloading::policy::{ContradictionError, Marks};
use control_api::root_ca::reflected_name;
use control_api::{IP, labels};
use control_runtime::{Cache, Carried, Cluster, Key, Objects};
use ipam::Remap;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// Desired state of a reflected object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Desired {
    /// It must not exist.
    Absent(Option<Exclusion>),
    /// It must exist.
    Present {
        fingerprint: Box<Fingerprint>,
        /// Its content; `None` if the object of this cluster must be read.
        object: Option<Value>,
    },
}

/// Why an object of this cluster is not reflected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exclusion {
    /// The policy of its kind, or annotations.
    Policy,
    /// Annotations of its namespace.
    Namespace,
    /// Its kind or name is never reflected.
    Never,
    /// Its annotations contradict each other.
    Contradiction,
    /// The reflected root CA has its name.
    ReservedName,
    /// It is reflected from another cluster.
    Replica,
}

/// The objects of this cluster, and the full ones that travel with work items.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) cache: &'a Cache,
    pub(super) settings: &'a Settings,
    pub(super) carried: &'a Carried<WorkItem>,
}

impl View<'_> {
    /// Returns the desired state of the reflected object of `key`.
    pub(super) fn desired(&self, kind: Kind, key: &Key) -> Desired {
        match kind {
            Kind::Service => self.service(key),
            Kind::EndpointSlice => self.slice(key),
            Kind::Ingress => self.ingress(key),
            Kind::ConfigMap => self.config_map(key),
            Kind::Secret => self.secret(key),
            Kind::Other(_) => self.other(kind, key),
        }
    }

    /// Returns whether an object of this cluster is reflected from another one. It is not reflected on, so no ring of clusters
    /// reflects an object for ever.
    pub(super) fn is_replica(&self, kind: Kind, key: &Key) -> bool {
        let origin = match self.labels(kind, key) {
            Some(labels) => labels.get(labels::ORIGIN),
            None => None,
        };
        origin.is_some_and(|it| *it != self.settings.peering.origin)
    }

    /// Returns the labels of an object of this cluster.
    fn labels(&self, kind: Kind, key: &Key) -> Option<&BTreeMap<String, String>> {
        let labels = match kind {
            Kind::Service => &self.summary::<Service>(key)?.fingerprint.labels,
            Kind::ConfigMap => &self.summary::<ConfigMap>(key)?.fingerprint.labels,
            Kind::Secret => &self.summary::<Secret>(key)?.fingerprint.labels,
            Kind::Ingress => &self.summary::<Ingress>(key)?.fingerprint.labels,
            Kind::EndpointSlice => {
                let slices = self.cache.objects::<EndpointSlice>(&Cluster::Local);
                slices.get(key)?.metadata.labels.as_ref()?
            }
            Kind::Other(_) => &self.unstructured(kind, key)?.fingerprint.labels,
        };

        Some(labels)
    }

    fn service(&self, key: &Key) -> Desired {
        let Some(summary) = self.summary::<Service>(key) else {
            return Desired::Absent(None);
        };
        if service::is_api_server(&key.namespace, &key.name) {
            return Desired::Absent(Some(Exclusion::Never));
        }
        let class = self.settings.load_balancer_class.as_deref();
        let mut fingerprint = self.fingerprint(summary);
        fingerprint.class = service::class(summary.service_type.as_deref(), class);
        let object = |local: &Service| json!(service::remote(local, &self.settings.peering, class));
        self.of_kind((Kind::Service, key), summary.marks, fingerprint, object)
    }

    fn ingress(&self, key: &Key) -> Desired {
        let Some(summary) = self.summary::<Ingress>(key) else {
            return Desired::Absent(None);
        };
        let class = self.settings.ingress_class.as_deref();
        let mut fingerprint = self.fingerprint(summary);
        fingerprint.annotations = ingress::without_class(fingerprint.annotations);
        fingerprint.class = class.map(str::to_owned);
        let object = |local: &Ingress| json!(ingress::remote(local, &self.settings.peering, class));
        self.of_kind((Kind::Ingress, key), summary.marks, fingerprint, object)
    }

    fn config_map(&self, key: &Key) -> Desired {
        let Some(summary) = self.summary::<ConfigMap>(key) else {
            return Desired::Absent(None);
        };
        if key.name == reflected_name(&self.settings.peering.origin) {
            return Desired::Absent(Some(Exclusion::ReservedName));
        }
        let fingerprint = self.fingerprint(summary);
        let object = |local: &ConfigMap| json!(configmap::remote(local, &self.settings.peering));
        self.of_kind((Kind::ConfigMap, key), summary.marks, fingerprint, object)
    }

    fn secret(&self, key: &Key) -> Desired {
        let Some(summary) = self.summary::<Secret>(key) else {
            return Desired::Absent(None);
        };
        let mut fingerprint = self.fingerprint(summary);
        let Some(type_) = secret::remote_type(fingerprint.class.as_deref()) else {
            return Desired::Absent(Some(Exclusion::Never));
        };
        fingerprint.class = Some(type_.to_owned());
        let object = |local: &Secret| {
            let remote = secret::remote(local, &self.settings.peering);
            json!(remote.unwrap_or_default())
        };
        self.of_kind((Kind::Secret, key), summary.marks, fingerprint, object)
    }

    fn other(&self, kind: Kind, key: &Key) -> Desired {
        let Some(summary) = self.unstructured(kind, key) else {
            return Desired::Absent(None);
        };
        let effective = summary.marks.or(self.namespace(&key.namespace));
        if !effective.is_reflected(self.settings.policy(kind)) {
            return Desired::Absent(Some(self.exclusion(summary.marks, &key.namespace)));
        }
        let item = WorkItem::Object(kind, key.clone());
        let full = self.carried.get::<DynamicObject>(&item);
        Desired::Present {
            fingerprint: Box::new(self.fingerprint(summary)),
            object: full.and_then(|it| other::remote(it, &self.settings.peering)),
        }
    }

    /// Returns an object of this cluster of a kind that a flag names.
    fn unstructured(&self, kind: Kind, key: &Key) -> Option<&Summary<DynamicObject>> {
        let objects = self.cache.dynamic(&Cluster::Local, &kind.local());
        objects.get(key)
    }

    /// Returns the name of a kind, as objects have it.
    pub(super) fn kind_name(&self, kind: Kind, key: &Key) -> Cow<'static, str> {
        if !kind.is_other() {
            return kind.local().kind;
        }
        let summary = self.unstructured(kind, key);
        let state = summary.and_then(|it| it.other.as_deref());
        let name = state.map(|it| it.kind.to_string());
        name.unwrap_or_default().into()
    }

    fn slice(&self, key: &Key) -> Desired {
        let slices = self.cache.objects::<EndpointSlice>(&Cluster::Local);
        let Some(slice) = slices.get(key) else {
            return Desired::Absent(None);
        };
        if service::is_api_server(&key.namespace, &key.name) || endpointslice::is_from_peer(slice) {
            return Desired::Absent(Some(Exclusion::Never));
        }
        let service = service_of(slice).map(|name| Key::new(&*key.namespace, name));
        let service = service.and_then(|it| self.summary::<Service>(&it));
        let marks = Marks::of(slice.metadata.annotations.as_ref());
        let policy = self.settings.policy(Kind::EndpointSlice);
        let namespace = self.namespace(&key.namespace);
        let of_service = service.map_or(namespace, |it| it.marks.or(namespace));
        match marks.is_slice_reflected(Some(of_service), policy) {
            Ok(true) => {}
            Ok(false) => {
                let own = service.map_or(marks, |it| marks.or(it.marks));
                return Desired::Absent(Some(self.exclusion(own, &key.namespace)));
            }
            Err(ContradictionError) => return Desired::Absent(Some(Exclusion::Contradiction)),
        }
        let nodes = self.cache.objects::<Node>(&Cluster::Local);
        let context = Endpoints {
            pod_cidrs: &self.settings.pod_cidrs,
            locate: &|name| location(&nodes, name),
            own_address: &|node, address| own_address(&nodes, node, address),
            translate: &|address| self.translate(&key.namespace, address),
            is_direct: service.is_some_and(|it| it.is_direct),
        };
        let remote = endpointslice::remote(slice, &self.settings.peering, &context);
        let object = json!(remote);

        Desired::Present {
            fingerprint: Box::new(keep(remote).fingerprint),
            object: Some(object),
        }
    }

    fn summary<K>(&self, key: &Key) -> Option<&Summary<K>>
    where
        K: kube::Resource<DynamicType = ()> + PartialEq + Send + Sync + 'static,
    {
        self.cache.local::<Summary<K>>(key)
    }

    /// Returns the fingerprint of the reflected object of a summary.
    fn fingerprint<K>(&self, local: &Summary<K>) -> Fingerprint {
        let Fingerprint {
            labels,
            annotations,
            class,
            is_headless,
            content,
        } = &local.fingerprint;
        Fingerprint {
            labels: reflected_labels(labels, &self.settings.peering),
            annotations: reflected_annotations(annotations, &self.settings.peering),
            class: class.clone(),
            is_headless: *is_headless,
            content: *content,
        }
    }

    fn of_kind<K: std::any::Any + Send + Sync>(
        &self,
        (kind, key): (Kind, &Key),
        marks: Marks,
        fingerprint: Fingerprint,
        object: impl Fn(&K) -> Value,
    ) -> Desired {
        let effective = marks.or(self.namespace(&key.namespace));
        if !effective.is_reflected(self.settings.policy(kind)) {
            return Desired::Absent(Some(self.exclusion(marks, &key.namespace)));
        }
        let item = WorkItem::Object(kind, key.clone());
        Desired::Present {
            fingerprint: Box::new(fingerprint),
            object: self.carried.get::<K>(&item).map(object),
        }
    }

    /// Returns the annotations of a namespace about the reflection of its objects.
    fn namespace(&self, name: &str) -> Marks {
        let namespace = self.cache.local::<Namespace>(&Key::cluster(name));
        let annotations = namespace.and_then(|it| it.metadata.annotations.as_ref());

        Marks::of(annotations)
    }

    /// Returns why an object with these annotations is excluded.
    fn exclusion(&self, own: Marks, namespace: &str) -> Exclusion {
        let namespace = self.namespace(namespace);
        if own == own.or(namespace) {
            Exclusion::Policy
        } else {
            Exclusion::Namespace
        }
    }

    /// Returns the address of an IP object of a namespace for an address.
    fn translate(&self, namespace: &str, address: &str) -> Option<String> {
        let ips = self.cache.objects::<IP>(&Cluster::Local);
        let mut ips = ips
            .indexed(BY_SPEC, address)
            .filter(|(key, _)| key.namespace == namespace);
        ips.find_map(|(_, ip)| {
            let translated = ip.status.as_ref()?.ip.as_ref()?;
            translated.parse::<IpAddr>().ok().map(|it| it.to_string())
        })
    }
}

/// Returns the cluster of a Node. A Node is virtual only by its type: physical ones may have the label of a cluster, too.
pub(super) fn location<'a>(nodes: &Objects<'a, Node>, name: &str) -> Location<'a> {
    let Some(node) = nodes.get(&Key::cluster(name)) else {
        return Location::Unknown;
    };
    let label = |key| {
        let labels = node.metadata.labels.as_ref();
        labels.and_then(|it| it.get(key)).map(String::as_str)
    };
    if label(labels::NODE_TYPE) != Some(labels::NODE_TYPE_VIRTUAL) {
        return Location::Local;
    }
    label(labels::REMOTE_CLUSTER_ID).map_or(Location::Unknown, Location::Remote)
}

/// Returns the address that a pod of a virtual node has in the cluster of its provider; `None` without the CIDRs of that cluster.
fn own_address(nodes: &Objects<'_, Node>, node: &str, address: Ipv4Addr) -> Option<Ipv4Addr> {
    let node = nodes.get(&Key::cluster(node))?;
    let pairs = node.metadata.annotations.as_ref()?.get(REMOTE_POD_CIDRS)?;
    let mut remaps = Remap::parse_list(pairs);

    remaps.find_map(|it| it.inverse().apply(address))
}
