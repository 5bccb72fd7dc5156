//! Clients of API servers: connections, kubeconfigs of peers, and leader election. Controllers define the
//! requests.
//!
//! | module | contents |
//! |---|---|
//! | [`object`] | names of clusters, resources and objects |
//! | [`clusters`] | one client per cluster, whose address and credentials can be replaced |
//! | [`transport`] | requests over shared HTTP/2 connections, with deadlines and limits, under a [`kube::Client`] |
//! | [`watch`] | lists of objects and their changes, as streams that never end |
//! | [`kubeconfig`] | kubeconfigs from Secrets, which may neither run a program nor read a file |
//! | [`election`] | which of several replicas holds a Lease |
//! | [`destination`] | addresses that this process connects to on behalf of a peer |
//! | [`backoff`], [`cause`] | delays before requests are repeated; causes of errors |

#![forbid(unsafe_code)]

pub mod backoff;
pub mod cause;
pub mod clusters;
pub mod destination;
pub mod election;
pub mod kubeconfig;
pub mod object;
pub mod transport;
pub mod watch;
