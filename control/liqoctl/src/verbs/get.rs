//! `liqoctl get`: lists objects of peerings.

use super::Run;
use crate::cluster::Cluster;
use crate::global::Global;
use crate::objects::{self, Kind};
use crate::output::{self, Format};
use anyhow::{Result, bail};
use clap::Args;
use control_api::labels;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::marker::PhantomData;

/// Flags of `liqoctl get KIND`.
#[derive(Args, Debug)]
pub(crate) struct Get<K: Kind> {
    /// The name of an object. Default: all objects.
    name: Option<String>,

    /// The cluster ID of the peer to which the objects belong.
    #[arg(long, value_name = "ID")]
    remote_cluster_id: Option<String>,

    /// The output format, json or yaml. Default: a table.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,

    #[arg(skip)]
    kind: PhantomData<K>,
}

impl<K: Kind> Run for Get<K> {
    async fn run(self, global: &Global) -> Result<()> {
        let found: Vec<K> = self.find(global).await?;
        let Some(format) = self.output else {
            let rows: Vec<[String; 3]> = found.iter().map(row).collect();
            print!("{}", table(&rows));
            return Ok(());
        };
        let objects = found
            .iter()
            .map(with_kind)
            .collect::<Result<Vec<Value>>>()?;
        let value = match (objects.as_slice(), &self.name) {
            ([only], Some(_)) => only.clone(),
            _ => json!({"apiVersion": "v1", "kind": "List", "items": objects}),
        };
        output::print(format, &value)
    }
}

impl<K: Kind> Get<K> {
    /// Returns the selected objects. Not empty if the flags contain a name.
    async fn find(&self, global: &Global) -> Result<Vec<K>> {
        let cluster = Cluster::local(global).await?;
        let api = match &global.namespace {
            Some(namespace) => Api::<K>::namespaced(cluster.client.clone(), namespace),
            None => Api::<K>::all(cluster.client.clone()),
        };
        let peer = self.remote_cluster_id.as_deref();
        let selector = peer.map(objects::selector).unwrap_or_default();
        let mut found = cluster.list(&api, &K::plural(&()), &selector).await?;
        if let Some(name) = &self.name {
            found.retain(|object| object.name_any() == *name);
            if found.is_empty() {
                bail!("there is no {} {name} in {}", K::kind(&()), cluster.place());
            }
        }
        Ok(found)
    }
}

/// Returns an object with `apiVersion` and `kind`, which the items of a list lack.
fn with_kind<K: Kind>(object: &K) -> Result<Value> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = K::api_version(&()).into();
    value["kind"] = K::kind(&()).into();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Ok(value)
}

fn row<K: Kind>(object: &K) -> [String; 3] {
    let peer = object.labels().get(labels::REMOTE_CLUSTER_ID).cloned();
    [
        object.namespace().unwrap_or_default(),
        object.name_any(),
        peer.unwrap_or_default(),
    ]
}

fn table(rows: &[[String; 3]]) -> String {
    let head = ["NAMESPACE", "NAME", "CLUSTERID"].map(ToOwned::to_owned);
    let width = |column: usize| {
        let lengths = rows.iter().chain([&head]).map(|row| row[column].len());
        lengths.max().unwrap_or_default() + 3
    };
    let (first, second) = (width(0), width(1));
    let line = |row: &[String; 3]| format!("{:<first$}{:<second$}{}\n", row[0], row[1], row[2]);
    std::iter::once(&head).chain(rows).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [["liqo-tenant-milan".into(), "milan".into(), "milan".into()]];

        let expected = "NAMESPACE           NAME    CLUSTERID\nliqo-tenant-milan   milan   milan\n";
        assert_eq!(table(&rows), expected);
    }
}
