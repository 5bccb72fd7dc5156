//! Plans the requests: between all pairs of nodes, and to Services of a peer's pods.

use super::fixture::{Fixture, TestNode};
use super::objects::PORT;
use super::services::{external_ip, service};
use super::{NodePortNodes, Options, mapping};
use crate::objects as peer_objects;
use crate::pair::Side;
use crate::tenant;
use crate::wait::Deadline;
use anyhow::{Context as _, Result, anyhow};
use control_api::Configuration;
use std::net::Ipv4Addr;

/// The client of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Caller {
    /// Name of a pod of the test, and of its node.
    Pod(String, String),
    /// This process.
    Here,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Name of the check to which the request belongs.
    pub(crate) check: &'static str,
    /// The client.
    pub(crate) caller: Caller,
    /// Name of the server in the report.
    pub(crate) target: String,
    /// Address and port of the server.
    pub(crate) address: String,
}

/// Creates the Services for the options, and returns all requests of one direction.
///
/// # Errors
///
/// Returns an error if the two clusters are not connected, or if a Service gets no address.
pub(crate) async fn prepare(
    from: &Side,
    source: &Fixture,
    to: &Side,
    target: &Fixture,
    options: &Options,
    deadline: Deadline,
) -> Result<Vec<Call>> {
    let peer = &from.peer;
    let configuration = configuration(from).await?;
    let mapped = |address: Ipv4Addr| {
        mapping::map(&configuration, address)
            .map(|address| address.to_string())
            .map_err(|reason| anyhow!("peer {peer} in {}: {reason}", from.cluster.place()))
    };
    let mut servers = Vec::new();
    for pod in &target.pods {
        servers.push((format!("{peer}/{}", pod.node), mapped(pod.address)?));
    }
    let mut calls = pods_to_pods(source, &servers);
    if options.basic {
        return Ok(calls);
    }
    calls.extend(nodes_to_pods(source, &servers));
    let addresses: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
    let needed = [
        ("ClusterIP", true),
        ("NodePort", options.pod_np || options.np_ext),
        ("LoadBalancer", options.lb),
    ];
    for (type_, _) in needed.into_iter().filter(|(_, is_needed)| *is_needed) {
        let reached = service(from, type_, &addresses, deadline).await?;
        calls.extend(to_service(source, type_, &reached, options));
    }
    if options.ip {
        for (i, pod) in target.pods.iter().enumerate() {
            let external = external_ip(to, &format!("pod-{i}"), pod.address, deadline).await?;
            let name = format!("{peer}/{}", pod.node);
            let address = format!("{}:{PORT}", mapped(external)?);
            calls.extend(from_pods(
                source,
                "pod to remapped external IP",
                &name,
                &address,
            ));
        }
    }
    Ok(calls)
}

async fn configuration(from: &Side) -> Result<Configuration> {
    let namespace = tenant::find(&from.cluster, &from.peer).await?;
    let found = match &namespace {
        Some(namespace) => peer_objects::find(&from.cluster, namespace, &from.peer).await?,
        None => None,
    };
    found.with_context(|| {
        format!(
            "{} is not connected to {}: run `liqoctl network connect` first",
            from.cluster.place(),
            from.peer
        )
    })
}

fn pods_to_pods(source: &Fixture, servers: &[(String, String)]) -> Vec<Call> {
    let call = |(name, address): &(String, String)| {
        from_pods(source, "pod to pod", name, &format!("{address}:{PORT}"))
    };
    servers.iter().flat_map(call).collect()
}

fn nodes_to_pods(source: &Fixture, servers: &[(String, String)]) -> Vec<Call> {
    let mut calls = Vec::new();
    for (name, address) in servers {
        for caller in &source.on_nodes {
            calls.push(Call {
                check: "node to pod",
                caller: Caller::Pod(caller.name.clone(), caller.node.clone()),
                target: name.clone(),
                address: format!("{address}:{PORT}"),
            });
        }
    }
    calls
}

fn from_pods(source: &Fixture, check: &'static str, target: &str, address: &str) -> Vec<Call> {
    let call = |caller: &super::fixture::TestPod| Call {
        check,
        caller: Caller::Pod(caller.name.clone(), caller.node.clone()),
        target: target.to_owned(),
        address: address.to_owned(),
    };
    source.pods.iter().map(call).collect()
}

/// Returns the requests to a Service. `reached` is its address or, for a NodePort, its port.
fn to_service(source: &Fixture, type_: &str, reached: &str, options: &Options) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut here = |check, target: &str, address: String| {
        calls.push(Call {
            check,
            caller: Caller::Here,
            target: target.to_owned(),
            address,
        });
    };
    match type_ {
        "LoadBalancer" => {
            let address = format!("{reached}:{PORT}");
            here("external to LoadBalancer", "LoadBalancer", address);
        }
        "NodePort" => {
            let nodes = source
                .nodes
                .iter()
                .filter(|node| is_selected(node, options.np_nodes));
            let nodes: Vec<&TestNode> = nodes.collect();
            if options.np_ext {
                for node in &nodes {
                    let address = format!("{}:{reached}", node.address);
                    here("external to NodePort", &node.name, address);
                }
            }
            if options.pod_np {
                for node in &nodes {
                    let address = format!("{}:{reached}", node.address);
                    calls.extend(from_pods(source, "pod to NodePort", &node.name, &address));
                }
            }
        }
        _ => {
            let address = format!("{reached}:{PORT}");
            calls.extend(from_pods(source, "pod to ClusterIP", "ClusterIP", &address));
        }
    }
    calls
}

fn is_selected(node: &TestNode, nodes: NodePortNodes) -> bool {
    match nodes {
        NodePortNodes::All => true,
        NodePortNodes::Workers => !node.is_control_plane,
        NodePortNodes::ControlPlanes => node.is_control_plane,
    }
}

#[cfg(test)]
mod tests;
