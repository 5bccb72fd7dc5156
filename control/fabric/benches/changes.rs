//! A resolver with the objects of a cluster of any size, and changes of one object. The benchmarks of
//! gateway and route agent include this file.

use super::file;
use control_api::{Configuration, labels};
use control_fabric::{Changes, Fabric, Object, ObjectKey, Objects, Resolver, parse, plan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::sync::Arc;

/// The kinds of the changed objects.
pub(crate) const KINDS: [&str; 4] = ["Node", "IP", "Configuration", "PublicKey"];

/// All objects of a cluster, and their resolution.
pub(crate) struct LargeCluster {
    objects: Objects,
    resolver: Resolver,
}

/// Two changes that undo each other.
pub(crate) struct Pair {
    old: Arc<Object>,
    new: Arc<Object>,
    is_new: bool,
}

impl LargeCluster {
    pub(crate) fn new(size: file::Size) -> Self {
        let text = file::of(size) + &file::outside(size) + &file::replicas();
        let mut objects: Objects = parse(&text).expect("it is well-formed");
        plan(&mut objects).expect("it is right, and has room");
        let mut resolver = Resolver::new("liqo", &[]);
        let mut changes = Changes::default();
        for namespace in tenant_namespaces(&objects) {
            let name = namespace.name.clone().unwrap_or_default();
            changes.namespaces.insert(name, Some(namespace));
        }
        for object in objects.iter() {
            let object = Arc::new(object.clone());
            let key = ObjectKey::of(&object);
            changes.objects.insert(key, Some(object));
        }
        assert!(resolver.apply(changes).fabric.is_ok());

        Self { objects, resolver }
    }

    /// Returns the fabric after the last change.
    pub(crate) fn fabric(&self) -> Fabric {
        let fabric = &self.resolver.resolution().fabric;

        fabric.clone().expect("the changes are valid")
    }

    /// Resolves a change.
    pub(crate) fn apply(&mut self, changes: Changes) -> Fabric {
        let fabric = &self.resolver.apply(changes).fabric;

        fabric.clone().expect("the changes are valid")
    }

    /// Returns a change of one object of this kind.
    pub(crate) fn changes(&self, kind: &str) -> Pair {
        let of_kind = |object: &&Object| {
            let name = object.metadata().name.as_deref().unwrap_or_default();
            object.kind() == kind && (kind != "IP" || !name.starts_with("node-"))
        };
        let object = self.objects.iter().filter(of_kind).nth(7);
        let old = object.expect("there are ten of each kind").clone();

        Pair {
            new: Arc::new(changed(old.clone())),
            old: Arc::new(old),
            is_new: false,
        }
    }
}

impl Pair {
    pub(crate) fn next(&mut self) -> Changes {
        self.is_new = !self.is_new;
        let object = if self.is_new { &self.new } else { &self.old };
        let mut changes = Changes::default();
        let key = ObjectKey::of(object);
        changes.objects.insert(key, Some(object.clone()));

        changes
    }
}

/// Returns the object with a change that changes the fabric.
fn changed(mut object: Object) -> Object {
    match &mut object {
        Object::Node(node) => {
            let status = node.status.as_mut().expect("it has addresses");
            let conditions = status.conditions.as_mut().expect("it is ready");
            conditions[0].status = "False".to_owned();
        }
        Object::IP(ip) => {
            let status = ip.status.as_mut().expect("it is planned");
            status.ip = Some("10.70.255.250".to_owned());
        }
        Object::Configuration(configuration) => {
            let status = configuration.status.as_mut().expect("it is planned");
            let remote = status.remote.as_mut().expect("it is planned");
            remote.cidr.pod[0] = "100.64.0.0/24".to_owned();
        }
        Object::PublicKey(key) => {
            let key = key.spec.public_key.as_mut().expect("it has a key");
            key.0[0] = 99;
        }
        Object::ConfigMap(_)
        | Object::EndpointSlice(_)
        | Object::Network(_)
        | Object::GatewayServer(_)
        | Object::GatewayClient(_)
        | Object::Connection(_) => unreachable!("only the kinds above are measured"),
    }

    object
}

/// Returns the tenant namespaces of the peers.
pub(crate) fn tenant_namespaces(objects: &Objects) -> Vec<ObjectMeta> {
    let configurations = objects.of::<Configuration>();
    let namespaces = configurations.map(|configuration| {
        let mut labels = configuration.metadata.labels.clone().unwrap_or_default();
        labels.insert(labels::TENANT_NAMESPACE.to_owned(), "true".to_owned());
        ObjectMeta {
            name: configuration.metadata.namespace.clone(),
            labels: Some(labels),
            ..ObjectMeta::default()
        }
    });

    namespaces.collect()
}
