//! The objects of the fabric, as the cache keeps them and [`Resolver`](control_fabric::Resolver) takes them.

use crate::blocks::{CalicoBlock, CiliumNode};
use control_api::{Configuration, GatewayClient, GatewayServer, IP, Network, PublicKey};
use control_fabric::{Blocks, Changes, Object, ObjectKey};
use control_runtime::{Cache, Change, Cluster, Kept, Resource};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::marker::PhantomData;
use std::sync::Arc;

/// An object of the kind `K`, shared between cache and resolver.
pub(crate) struct Followed<K> {
    object: Arc<Object>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Into<Object>> Followed<K> {
    pub(crate) fn new(object: K) -> Self {
        Self {
            object: Arc::new(object.into()),
            kind: PhantomData,
        }
    }
}

impl<K> PartialEq for Followed<K> {
    fn eq(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

impl<K: kube::Resource<DynamicType = ()> + 'static> Kept for Followed<K> {
    fn resource() -> Resource {
        Resource::of::<K>()
    }
}

/// Calls a generic function for each kind of the fabric.
macro_rules! for_each_kind {
    ($function:ident($($argument:expr),*)) => {
        $function::<ConfigMap>($($argument),*);
        $function::<Node>($($argument),*);
        $function::<EndpointSlice>($($argument),*);
        $function::<Network>($($argument),*);
        $function::<IP>($($argument),*);
        $function::<Configuration>($($argument),*);
        $function::<GatewayServer>($($argument),*);
        $function::<GatewayClient>($($argument),*);
        $function::<PublicKey>($($argument),*);
    };
}

/// Adds the change of an object; a later change replaces an earlier one of the same object.
pub(crate) fn add(changes: &mut Changes, change: &Change<'_>) {
    for_each_kind!(add_object(changes, change));
    if change.is::<Namespace>() {
        let metadata = change.after::<Namespace>().map(|it| it.metadata.clone());
        let name = change.object.key.name.clone();
        changes.namespaces.insert(name, metadata);
    }
    if change.is::<CalicoBlock>() {
        let blocks = change.after::<CalicoBlock>();
        add_blocks(changes, change, blocks.and_then(|it| it.0.clone()));
    }
    if change.is::<CiliumNode>() {
        let blocks = change.after::<CiliumNode>();
        add_blocks(changes, change, blocks.and_then(|it| it.0.clone()));
    }
}

/// Adds all objects of the cache.
pub(crate) fn add_all(changes: &mut Changes, cache: &Cache) {
    for_each_kind!(add_objects(changes, cache));
    for (key, namespace) in cache.objects::<Namespace>(&Cluster::Local).iter() {
        let metadata = Some(namespace.metadata.clone());
        changes.namespaces.insert(key.name.clone(), metadata);
    }
    for (key, block) in cache.objects::<CalicoBlock>(&Cluster::Local).iter() {
        let name = blocks_key(&CalicoBlock::resource(), &key.name);
        changes.blocks.insert(name, block.0.clone());
    }
    for (key, node) in cache.objects::<CiliumNode>(&Cluster::Local).iter() {
        let name = blocks_key(&CiliumNode::resource(), &key.name);
        changes.blocks.insert(name, node.0.clone());
    }
}

fn add_objects<K: kube::Resource<DynamicType = ()> + 'static>(
    changes: &mut Changes,
    cache: &Cache,
) {
    for (_, followed) in cache.objects::<Followed<K>>(&Cluster::Local).iter() {
        let key = ObjectKey::of(&followed.object);
        changes.objects.insert(key, Some(followed.object.clone()));
    }
}

fn add_object<K: kube::Resource<DynamicType = ()> + 'static>(
    changes: &mut Changes,
    change: &Change<'_>,
) {
    let (before, after) = (change.before::<Followed<K>>(), change.after());
    if let Some(followed) = after.or(before) {
        let key = ObjectKey::of(&followed.object);
        let object = after.map(|followed| followed.object.clone());
        changes.objects.insert(key, object);
    }
}

fn add_blocks(changes: &mut Changes, change: &Change<'_>, blocks: Option<Blocks>) {
    let key = blocks_key(&change.object.resource, &change.object.key.name);
    changes.blocks.insert(key, blocks);
}

fn blocks_key(resource: &Resource, name: &str) -> String {
    format!("{resource}/{name}")
}
