//! What a process needs to talk to an API server, without anything that it says: connections,
//! credentials that a peer has written, and the election of a leader.
//!
//! | module | contents |
//! |---|---|
//! | [`transport`] | requests over shared HTTP/2 connections, with deadlines and limits, under a [`kube::Client`] |
//! | [`kubeconfig`] | kubeconfigs from Secrets, which may neither run a program nor read a file |
//! | [`election`] | which of several replicas holds a Lease |

#![forbid(unsafe_code)]

pub mod election;
pub mod kubeconfig;
pub mod transport;
