//! The commands `uplink`, `node`, `component` and `pod`, which cause faults.

use super::runtime;
use crate::cluster::Cluster;
use crate::fault::{self, Faults, Uplink};
use crate::node::{Node, control};
use crate::underlay::Underlay;
use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand, ValueEnum};
use std::time::Duration;

/// Impairs or restores the network between a cluster and other clusters.
#[derive(Args, Debug)]
pub(super) struct SetUplink {
    /// Name of the cluster.
    #[arg(value_name = "NAME")]
    name: String,

    #[command(subcommand)]
    kind: Kind,
}

#[derive(Subcommand, Debug)]
enum Kind {
    /// Restores the uplink.
    Plain,
    /// Disconnects the cluster.
    Down,
    /// Drops, delays or duplicates frames.
    Bad(Bad),
    /// Puts the cluster behind a router with source NAT.
    Nat {
        /// Time-out of an idle UDP flow, in seconds.
        #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..))]
        udp_timeout: u64,
    },
}

#[derive(Args, Debug)]
struct Bad {
    /// Fraction of frames that are lost, from 0 to 1.
    #[arg(long, default_value = "0", value_parser = share)]
    loss: f64,
    /// Fraction of frames that are duplicated, from 0 to 1.
    #[arg(long, default_value = "0", value_parser = share)]
    duplicate: f64,
    /// Fraction of frames that are reordered, from 0 to 1.
    #[arg(long, default_value = "0", value_parser = share)]
    reorder: f64,
    /// Delay of each frame, in milliseconds.
    #[arg(long, value_name = "MS", default_value = "0")]
    delay_ms: u64,
    /// Impair only the traffic with these clusters.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    towards: Vec<String>,
}

impl SetUplink {
    pub(super) fn run(&self) -> Result<()> {
        let cluster = Cluster::find(&self.name)?;
        let uplink = match &self.kind {
            Kind::Plain => Uplink::Plain,
            Kind::Down => Uplink::Down,
            Kind::Bad(bad) => Uplink::Relay {
                faults: faults(bad.loss, bad.duplicate, bad.reorder, bad.delay_ms),
                towards: bad
                    .towards
                    .iter()
                    .map(|name| Ok(Cluster::find(name)?.number))
                    .collect::<Result<_>>()?,
            },
            Kind::Nat { udp_timeout } => Uplink::Nat {
                udp_timeout: Duration::from_secs(*udp_timeout),
            },
        };
        fault::set_uplink(&cluster, &uplink)
    }
}

/// Relays and impairs the frames of an uplink.
#[derive(Args, Debug)]
pub(super) struct Relay {
    #[arg(long)]
    near: String,
    #[arg(long)]
    far: String,
    #[arg(long, value_parser = share)]
    loss: f64,
    #[arg(long, value_parser = share)]
    duplicate: f64,
    #[arg(long, value_parser = share)]
    reorder: f64,
    #[arg(long)]
    delay_ms: u64,
    /// Numbers of the affected clusters, separated by commas.
    #[arg(long)]
    towards: String,
}

impl Relay {
    pub(super) fn run(&self) -> Result<()> {
        let towards: Vec<u8> = self
            .towards
            .split(',')
            .filter(|number| !number.is_empty())
            .map(|number| number.parse().context("--towards contains no number"))
            .collect::<Result<_>>()?;
        let faults = faults(self.loss, self.duplicate, self.reorder, self.delay_ms);
        fault::run_relay(&self.near, &self.far, faults, &towards)
    }
}

fn faults(loss: f64, duplicate: f64, reorder: f64, delay_ms: u64) -> Faults {
    Faults {
        loss,
        duplicate,
        reorder,
        delay: Duration::from_millis(delay_ms),
        blocked: false,
    }
}

fn share(text: &str) -> Result<f64> {
    let share: f64 = text.parse().context("not a number")?;
    ensure!((0.0..=1.0).contains(&share), "use a fraction from 0 to 1");

    Ok(share)
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum NodeVerb {
    /// Kills the node, like a power failure.
    Kill,
    /// Shuts the node down.
    Stop,
    /// Starts the node after `kill` or `stop`, with its data.
    Start,
    /// Disconnects the node from the underlay.
    Cut,
    /// Reconnects the node to the underlay.
    Heal,
}

/// Kills, stops, starts, disconnects or reconnects a node.
#[derive(Args, Debug)]
pub(super) struct SetNode {
    /// Name of the node, such as rome-worker.
    #[arg(value_name = "NODE")]
    node: String,

    /// Action on the node.
    verb: NodeVerb,
}

impl SetNode {
    pub(super) fn run(&self) -> Result<()> {
        let node = Node::find(&self.node)?;
        match self.verb {
            NodeVerb::Kill => node.kill(),
            NodeVerb::Stop => node.stop(),
            NodeVerb::Start => node.restart(),
            NodeVerb::Cut => port(&node, false),
            NodeVerb::Heal => port(&node, true),
        }
    }
}

fn port(node: &Node, up: bool) -> Result<()> {
    let underlay = Underlay::existing()?.context("the underlay is gone: run `up` again")?;
    underlay.set_port(node.plan()?.node.ip, up)
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ComponentVerb {
    /// Kills the component, which is restarted after a second.
    Kill,
    /// Stops the component, which is not restarted.
    Stop,
    /// Starts the component after `stop`.
    Start,
}

/// Kills, stops or starts a component of a node. Without a component, lists the components.
#[derive(Args, Debug)]
pub(super) struct SetComponent {
    /// Name of the node, such as rome-worker.
    #[arg(value_name = "NODE")]
    node: String,

    /// Name of the component, such as kubelet.
    #[arg(value_name = "COMPONENT", requires = "verb")]
    component: Option<String>,

    /// Action on the component.
    verb: Option<ComponentVerb>,
}

impl SetComponent {
    pub(super) fn run(&self) -> Result<()> {
        let node = Node::find(&self.node)?;
        let request = match (&self.component, self.verb) {
            (Some(name), Some(ComponentVerb::Kill)) => {
                control::Request::Signal(name.clone(), nix::libc::SIGKILL)
            }
            (Some(name), Some(ComponentVerb::Stop)) => control::Request::Stop(name.clone()),
            (Some(name), Some(ComponentVerb::Start)) => control::Request::Start(name.clone()),
            _ => control::Request::Status,
        };
        let states = control::send(node.name(), &request)?;
        if request == control::Request::Status {
            println!("{:<26} {:>8} {:>7}", "COMPONENT", "PID", "STARTS");
            for state in states {
                let pid = match state.pid {
                    Some(pid) => pid.to_string(),
                    None if state.stopped => "stopped".to_owned(),
                    None => "waits".to_owned(),
                };
                println!("{:<26} {pid:>8} {:>7}", state.name, state.starts);
            }
        }

        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PodVerb {
    /// Disconnects the pod.
    Cut,
    /// Reconnects the pod.
    Heal,
}

/// Disconnects or reconnects a pod.
#[derive(Args, Debug)]
pub(super) struct SetPod {
    /// Name of the cluster.
    #[arg(value_name = "NAME")]
    name: String,

    /// The pod, in the form NAMESPACE/NAME.
    #[arg(value_name = "POD")]
    pod: String,

    /// Action on the pod's network.
    verb: PodVerb,
}

impl SetPod {
    pub(super) fn run(&self) -> Result<()> {
        let cluster = Cluster::find(&self.name)?;
        let (namespace, name) = self.pod.split_once('/').unwrap_or(("default", &self.pod));
        let connected = self.verb == PodVerb::Heal;
        runtime()?.block_on(fault::set_pod_network(&cluster, namespace, name, connected))
    }
}
