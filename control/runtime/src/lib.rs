#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "simulation")]
pub mod simulation;

mod cache;
mod carried;
mod controller;
mod digest;
mod entry;
mod event;
mod execute;
mod finalizer;
mod in_flight;
mod injector;
mod managed_fields;
mod merge_patch;
mod metrics;
mod queue;
mod registration;
mod restores;
mod rights;
mod round_robin;
mod runtime;
mod status;
mod worker;

pub use cache::{Cache, CacheLimits, CacheReader, Change, Changed, Objects};
pub use carried::Carried;
pub use control_client::clusters::Clients;
pub use control_client::destination::Destinations;
pub use control_client::election::{LeaseSettings, Timing};
pub use control_client::kubeconfig::{KubeconfigError, RemoteConfig};
pub use control_client::object::{Cluster, Key, Ref, Resource, key_of};
pub use control_client::transport;
pub use control_client::watch::{Selector, WatchId};
pub use controller::{
    Action, Answer, ClusterChange, Controller, Env, Event, Gate, Outcome, Plan, Probe, Queue,
    Request, WatchChange, Write,
};
pub use digest::{Digest, Digested};
pub use entry::{DecodeError, Entry, Kept, Source};
pub use finalizer::{CLEANUP_TIMED_OUT, Finalizer, Protection};
pub use injector::Injector;
pub use merge_patch::merge_patch;
pub use metrics::Metrics;
pub use registration::{Registration, RegistrationError, Scope};
pub use restores::Restores;
pub use rights::rules;
pub use runtime::{Replicas, Runtime, Settings};
pub use status::RuntimeStatus;
