//! All input and output of the gateway: sockets, devices, threads, files and the API server.
//!
//! `start` starts a gateway. First, `datapath_setup` creates devices and loads the eBPF programs.
//! Then `privilege` drops the capabilities that only this step needs. Last, the threads of the
//! `lanes` start to forward packets.
//!
//! `control` applies the desired state and reports the status. It runs on the main thread, which
//! may block because it forwards no packets.

mod connections;
mod control;
pub(crate) mod datapath_setup;
pub(crate) mod desired;
pub(crate) mod keys;
mod lane;
pub(crate) mod lanes;
mod links;
mod metrics;
mod netns;
mod outbox;
pub(crate) mod privilege;
pub(crate) mod start;
mod state;
mod tap;
mod udp;
