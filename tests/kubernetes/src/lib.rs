//! Real Kubernetes clusters on a single machine, without Docker and without a registry.
//!
//! A node is a set of Linux namespaces with containerd, a kubelet and kube-proxy. The nodes of all
//! clusters share an Ethernet segment, the [`underlay`]. [`cluster`] creates and removes clusters,
//! [`node`] starts and stops nodes, and [`fault`] impairs networks.
//!
//! A [`control_plane`] is a cluster without nodes: etcd, an API server and a controller manager. It
//! is ready in about three seconds.

#![forbid(unsafe_code)]

pub mod cleanup;
pub mod cli;
pub mod cluster;
pub mod containers;
pub mod control_plane;
pub mod diagnosis;
pub mod fault;
pub mod image;
pub mod liqo;
pub mod manifest;
pub mod metrics_server;
pub mod namespace;
pub mod node;
pub mod pki;
pub mod place;
pub mod pod;
pub mod spec;
pub mod suite;
pub mod underlay;
pub mod wait;

mod addons;
mod cgroup;
mod host;
mod kernel_settings;
mod kind;
mod load_balancer;
mod seed;
