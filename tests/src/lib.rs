//! Laboratories for tests, demo and bench.
//!
//! A laboratory is a set of network namespaces on one machine: clusters with
//! nodes and pods, a routed underlay between them, and the project's own
//! binaries running where Kubernetes would run them. See [`lab`].

#![forbid(unsafe_code)]

pub mod lab;
