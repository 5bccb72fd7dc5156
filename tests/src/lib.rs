//! Laboratories for tests, demo and bench.
//!
//! A laboratory is a set of network namespaces on one machine: clusters with
//! nodes and pods, a routed underlay between them, and the project's own
//! binaries running where Kubernetes would run them. [`lab`] builds it,
//! [`traffic`] uses it, [`fault`] breaks it, and [`stall`] detects that the machine was
//! suspended while a test measured time.

#![forbid(unsafe_code)]

pub mod fault;
pub mod lab;
pub mod packet;
pub mod stall;
pub mod traffic;
pub mod upstream;
pub mod wireguard;
