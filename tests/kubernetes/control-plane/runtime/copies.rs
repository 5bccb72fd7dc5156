//! A controller that copies values of ConfigMaps to Secrets and ServiceAccounts.

use crate::fixture::{Deadline, Fixture, SOON, until};
use anyhow::{Context as _, Result, ensure};
use control_runtime::{
    Action, Cache, Change, Cluster, Controller, Env, Kept, Key, Plan, Queue, Ref, Registration,
    Scope, Write,
};
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

/// The label of the ConfigMaps to copy.
pub(super) const LABEL: &str = "test.liqo.io/copy";

/// The annotation of a copy that has the value.
pub(super) const VALUE: &str = "test.liqo.io/value";

/// Copies the values of each ConfigMap with the label to objects of the same name.
pub(super) struct Copies {
    pub(super) namespace: String,
}

impl Controller for Copies {
    type Item = String; // Name of a ConfigMap.
    const NAME: &'static str = "copies";
    const FIELD_MANAGER: &'static str = "copies";

    fn resources(&self) -> Vec<Registration> {
        let scope = Scope::Namespace(self.namespace.clone());
        let inputs = Registration::of(scope.clone(), |it: ConfigMap| it);
        let secrets = Registration::of(scope.clone(), |it: Secret| it);
        let accounts = Registration::of(scope, |it: ServiceAccount| it);
        vec![inputs.labels(LABEL), secrets, accounts]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<String> {
        vec![change.object.key.name.clone()]
    }

    fn plan(&mut self, name: &String, cache: &Cache, _: &mut Env<'_>) -> Plan<String> {
        let key = Key::new(&self.namespace, name);
        let input = cache.local::<ConfigMap>(&key);
        let data = input.and_then(|input| input.data.as_ref());
        let value = |field| data.and_then(|data| data.get(field));
        let mut plan = Plan::default();
        copy::<Secret>(&mut plan, &key, cache, value("secret"), |it| &it.metadata);
        copy::<ServiceAccount>(&mut plan, &key, cache, value("account"), |it| &it.metadata);

        plan
    }

    fn queue(item: &String) -> Queue {
        Queue(item.clone())
    }
}

/// Writes `value` to the copy, unless it has the value. The write conflicts with that of another writer.
fn copy<K: Kept + kube::Resource<DynamicType = ()>>(
    plan: &mut Plan<String>,
    key: &Key,
    cache: &Cache,
    value: Option<&String>,
    metadata: fn(&K) -> &ObjectMeta,
) {
    let Some(value) = value else { return };
    let present = cache.local::<K>(key).map(metadata);
    if present.and_then(annotated) == Some(value) {
        return;
    }
    let fields = json!({"metadata": {"annotations": {VALUE: value}}});
    let object = Ref::of::<K>(&Cluster::Local, key);
    let mut write = Write::new(object, Action::Apply(fields));
    write.resource_version = present.and_then(|it| it.resource_version.clone());
    plan.writes.push(write);
}

fn annotated(metadata: &ObjectMeta) -> Option<&String> {
    metadata.annotations.as_ref()?.get(VALUE)
}

/// Creates or changes ConfigMaps to copy. `fields` are `secret`, `account`, or both.
pub(super) async fn put(
    client: &Client,
    namespace: &str,
    names: &[String],
    fields: &[&str],
    value: &str,
) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let data: serde_json::Map<_, _> = fields
        .iter()
        .map(|&it| (it.to_owned(), value.into()))
        .collect();
    let params = PatchParams::apply("test").force();
    try_join_all(names.iter().map(|name| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {LABEL: ""}}, "data": data,
        });
        let (api, params) = (&api, &params);
        async move { api.patch(name, params, &Patch::Apply(object)).await }
    }))
    .await
    .context("failed to write the ConfigMaps")?;

    Ok(())
}

/// Waits until a Secret with `value` exists for each name.
pub(super) async fn until_copied(
    fixture: &Fixture,
    namespace: &str,
    names: &[String],
    value: &str,
) -> Result<()> {
    until(Deadline::after(SOON), "the copies", async || {
        check(fixture, namespace, names, value).await
    })
    .await
}

/// Checks that a Secret with `value` exists for each name.
pub(super) async fn check(
    fixture: &Fixture,
    namespace: &str,
    names: &[String],
    value: &str,
) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(fixture.control_plane.client().await?, namespace);
    let list = api.list(&ListParams::default()).await?;
    let has_value = |it: &&Secret| annotated(&it.metadata).is_some_and(|found| found == value);
    let copied: Vec<_> = list.iter().filter(has_value).collect();
    let is_copied = |name: &String| {
        copied
            .iter()
            .any(|it| it.metadata.name.as_ref() == Some(name))
    };
    let count = names.iter().filter(|name| is_copied(name)).count();
    ensure!(
        count == names.len(),
        "{count} of {} have {value}",
        names.len()
    );

    Ok(())
}

/// Returns the names of `count` ConfigMaps.
pub(super) fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|it| format!("{prefix}-{it}")).collect()
}
