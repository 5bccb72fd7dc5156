//! `liqoctl get`: lists objects of peerings.

use crate::cli::Global;
use crate::cluster::Cluster;
use crate::kinds::Kind;
use crate::output::{self, Format};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use control_api::{Configuration, GatewayClient, GatewayServer, PublicKey, labels};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};

/// What to get.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Lists Configurations.
    ///
    /// Example: liqoctl get configuration -o yaml
    Configuration(Which),
    /// Lists GatewayServers.
    ///
    /// Example: liqoctl get gatewayserver --remote-cluster-id rome
    Gatewayserver(Which),
    /// Lists GatewayClients.
    ///
    /// Example: liqoctl get gatewayclient -n liqo-tenant-milan
    Gatewayclient(Which),
    /// Lists PublicKeys.
    ///
    /// Example: liqoctl get publickey
    Publickey(Which),
}

/// Which objects.
#[derive(Args, Debug)]
struct Which {
    /// The name of one. Without this, all.
    name: Option<String>,

    /// The id of the peer that they are about.
    #[arg(long, value_name = "ID")]
    remote_cluster_id: Option<String>,

    /// As json or yaml. Without this, a table.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error if the API server fails, or if there is none of that name.
pub(crate) async fn run(global: &Global, options: Options) -> Result<()> {
    match options.command {
        Command::Configuration(which) => list::<Configuration>(global, &which).await,
        Command::Gatewayserver(which) => list::<GatewayServer>(global, &which).await,
        Command::Gatewayclient(which) => list::<GatewayClient>(global, &which).await,
        Command::Publickey(which) => list::<PublicKey>(global, &which).await,
    }
}

async fn list<K: Kind + Serialize>(global: &Global, which: &Which) -> Result<()> {
    let cluster = Cluster::local(global).await?;
    let api = match &global.namespace {
        Some(namespace) => Api::<K>::namespaced(cluster.client.clone(), namespace),
        None => Api::<K>::all(cluster.client.clone()),
    };
    let selector = match &which.remote_cluster_id {
        Some(id) => crate::kinds::about(id),
        None => String::new(),
    };
    let mut found = cluster.list(&api, &K::plural(&()), &selector).await?;
    if let Some(name) = &which.name {
        found.retain(|object| object.name_any() == *name);
        if found.is_empty() {
            bail!("there is no {} {name} in {}", K::kind(&()), cluster.place());
        }
    }
    if let Some(format) = which.output {
        let objects = found
            .iter()
            .map(with_kind)
            .collect::<Result<Vec<Value>>>()?;
        let value = match (objects.as_slice(), &which.name) {
            ([only], Some(_)) => only.clone(),
            _ => json!({"apiVersion": "v1", "kind": "List", "items": objects}),
        };
        return output::print(format, &value);
    }
    let rows: Vec<[String; 3]> = found.iter().map(row).collect();
    print!("{}", table(&rows));
    Ok(())
}

/// A list's items lack what they are.
fn with_kind<K: Kind + Serialize>(object: &K) -> Result<Value> {
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
