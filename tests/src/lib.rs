//! Laboratories for integration tests, the demo and benchmarks.
//!
//! A laboratory is a set of network namespaces on one machine. They form clusters with nodes and
//! pods, and a routed network between the clusters. The project's programs run in the namespaces of
//! pods and nodes, as they would in Kubernetes.
//!
//! - [`lab`] builds a laboratory.
//! - [`traffic`] generates and measures traffic in a laboratory.
//! - [`fault`] injects network faults.
//! - [`stall`] detects that the machine was suspended while a test measured time.
//! - [`upstream`] and [`wireguard`] are peers with other implementations.

#![forbid(unsafe_code)]

pub mod fault;
pub mod lab;
pub mod packet;
pub mod stall;
pub mod traffic;
pub mod upstream;
pub mod wireguard;
