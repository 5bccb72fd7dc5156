//! Reads the status documents of gateways and route agents from their status sockets.

use super::wait;
use super::{Lab, cluster::Cluster};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

impl Lab {
    /// Returns the status document of the gateway replica with this number. Numbers start at 1.
    ///
    /// # Errors
    ///
    /// Returns an error if the gateway does not reply in time.
    pub fn gateway_status(&self, cluster: &str, number: usize) -> Result<Value> {
        self.status(&self.gateway_instance(cluster, number))
    }

    /// Returns the status document of the route agent on the node with this number. Numbers start
    /// at 1.
    ///
    /// # Errors
    ///
    /// Returns an error if the route agent does not reply in time.
    pub fn agent_status(&self, cluster: &str, node: usize) -> Result<Value> {
        self.status(&self.agent_instance(cluster, node))
    }

    fn status(&self, instance: &str) -> Result<Value> {
        read(&self.socket_dir(), instance)
    }

    /// Waits until all clusters are connected.
    ///
    /// In a connected laboratory, every ready gateway has a live session with every ready replica
    /// of every peer. Every route agent routes to the ready gateways on its node, and to all ready
    /// gateways of its cluster if there is none.
    ///
    /// # Errors
    ///
    /// Returns an error that names the missing sessions and nexthops after the time-out.
    pub fn wait_until_connected(&self, timeout: Duration) -> Result<()> {
        let mut missing = Vec::new();
        let outcome = wait::until(timeout, "all clusters to be connected", || {
            missing = self.missing();
            Ok(missing.is_empty())
        });

        outcome.with_context(|| format!("missing: {}", missing.join("; ")))
    }

    /// Returns a line for each missing session and each missing nexthop.
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for cluster in self.clusters.values() {
            let name = cluster.name();
            for number in ready_gateways(cluster) {
                let label = format!("{name} gateway {number}");
                match self.gateway_status(name, number) {
                    Ok(status) => missing.extend(
                        self.missing_sessions(name, &status)
                            .into_iter()
                            .map(|session| format!("{label}: no session with {session}")),
                    ),
                    Err(error) => missing.push(format!("{label}: {error:#}")),
                }
            }
            for number in (1..=cluster.nodes.len()).filter(|&n| cluster.node(n).alive) {
                let label = format!("{name} node {number}");
                match self.agent_status(name, number) {
                    Ok(status) => missing.extend(
                        self.missing_hops(cluster, number, &status)
                            .into_iter()
                            .map(|hop| format!("{label}: no nexthop {hop}")),
                    ),
                    Err(error) => missing.push(format!("{label}: {error:#}")),
                }
            }
        }

        missing
    }

    /// Returns the remote replicas with which a gateway has no live session, in the form
    /// `cluster/replica`. `cluster` is the gateway's own cluster.
    fn missing_sessions(&self, cluster: &str, status: &Value) -> Vec<String> {
        let live = live_sessions(status);
        self.peerings
            .iter()
            .filter_map(|peering| peering.remote_of(cluster))
            .flat_map(|remote| {
                let remote = self.cluster(remote);
                ready_gateways(remote).into_iter().map(|number| {
                    (
                        remote.name().to_owned(),
                        remote.gateway(number).pod.name.clone(),
                    )
                })
            })
            .filter(|session| !live.contains(session))
            .map(|(remote, replica)| format!("{remote}/{replica}"))
            .collect()
    }

    /// Returns the gateway replicas of `cluster` that the route agent of a node should use for a peer, but does not, in
    /// the form `replica for peer`.
    fn missing_hops(&self, cluster: &Cluster, node: usize, status: &Value) -> Vec<String> {
        let serving = serving_replicas(status);
        let (here, elsewhere): (Vec<_>, Vec<_>) = ready_gateways(cluster)
            .into_iter()
            .partition(|&number| cluster.gateway(number).pod.node == cluster.node(node).name);
        let expected = if here.is_empty() { elsewhere } else { here };
        self.peerings
            .iter()
            .filter_map(|peering| peering.remote_of(cluster.name()))
            .flat_map(|remote| {
                expected
                    .iter()
                    .map(move |&number| (remote, &cluster.gateway(number).pod.name))
            })
            .filter(|(remote, replica)| {
                !serving.contains(&((*remote).to_owned(), (*replica).clone()))
            })
            .map(|(remote, replica)| format!("{replica} for {remote}"))
            .collect()
    }
}

fn ready_gateways(cluster: &Cluster) -> Vec<usize> {
    (1..=cluster.gateways.len())
        .filter(|&number| cluster.gateway(number).ready)
        .collect()
}

/// Reads the status document of the process with the instance name `instance` from its status
/// socket in `directory`.
///
/// This function does not start a `status` command. Many such processes would load the machine
/// while tests measure failovers.
///
/// # Errors
///
/// Returns an error if the process does not reply in time.
pub fn read(directory: &Path, instance: &str) -> Result<Value> {
    let path = directory.join(format!("{instance}.sock"));
    let mut document = String::new();
    UnixStream::connect(&path)
        .and_then(|mut socket| {
            socket.set_read_timeout(Some(STATUS_TIMEOUT))?;
            socket.read_to_string(&mut document)
        })
        .with_context(|| format!("failed to read the status of {instance}"))?;

    serde_json::from_str(&document).with_context(|| format!("the status of {instance} is not JSON"))
}

/// Returns the live sessions in a gateway's status, as pairs of remote cluster and remote replica.
pub fn live_sessions(status: &Value) -> BTreeSet<(String, String)> {
    let mut live = BTreeSet::new();
    for peer in find(status, "peers") {
        let cluster = text(&peer["clusterId"]);
        for session in peer["sessions"].as_array().into_iter().flatten() {
            if session["state"] == "live" {
                live.insert((cluster.clone(), text(&session["replica"])));
            }
        }
    }

    live
}

/// Returns the number of peers in a gateway's status.
pub fn peer_count(status: &Value) -> usize {
    find(status, "peers").len()
}

/// Returns the gateway replicas that a route agent uses, as pairs of remote cluster and replica.
pub fn serving_replicas(status: &Value) -> BTreeSet<(String, String)> {
    let mut serving = BTreeSet::new();
    for peer in find(status, "peers") {
        let cluster = text(&peer["clusterId"]);
        for replica in peer["gateways"].as_array().into_iter().flatten() {
            serving.insert((cluster.clone(), text(replica)));
        }
    }

    serving
}

/// Returns the sessions with all peers in a gateway's status.
pub fn sessions(status: &Value) -> Vec<&Value> {
    find(status, "peers")
        .iter()
        .filter_map(|peer| peer["sessions"].as_array())
        .flatten()
        .collect()
}

/// Returns the sum of all drop counters in a status document.
pub fn all_drops(status: &Value) -> u64 {
    let drops = status["drops"].as_object();
    drops
        .into_iter()
        .flat_map(|drops| drops.values())
        .filter_map(Value::as_u64)
        .sum()
}

/// Returns the number of packets dropped for a reason, or 0 if the status document does not contain
/// the reason.
pub fn drops(status: &Value, reason: &str) -> u64 {
    fn search(value: &Value, reason: &str) -> u64 {
        match value {
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| match value.as_u64() {
                    Some(count) if name == reason => count,
                    _ => search(value, reason),
                })
                .sum(),
            Value::Array(values) => values.iter().map(|value| search(value, reason)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }

    search(status, reason)
}

/// Returns the first list with this key, at any depth of `value`.
fn find<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    match value {
        Value::Object(fields) => match fields.get(name) {
            Some(Value::Array(list)) => list,
            _ => fields
                .values()
                .map(|value| find(value, name))
                .find(|list| !list.is_empty())
                .unwrap_or_default(),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => &[],
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Time-out of reading a status document, long enough for a busy machine.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
