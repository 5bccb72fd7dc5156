//! Reflection of this cluster's objects into the namespaces of a provider.
//!
//! ```text
//! this cluster                                             provider
//! Service, Ingress, ConfigMap,  --controller-->             the same kind
//! Secret
//! kinds that flags name        --controller-->             the same kind
//!   their status              <--controller--
//! EndpointSlice, Node, IP      --controller-->             ShadowEndpointSlice
//! Pod, ServiceAccount          --tokens-->                 Secret with the tokens of the pod
//! Event                       <--event--               Event about the object, the pod or its ShadowPod
//! NamespaceMap: status of the provider, selects the namespaces
//! ```
//!
//! The modules of the kinds are pure: they compute the remote object of a local one. `summary` is the form in which the
//! cache keeps objects of both clusters, `plan` compares them. An object of the provider without the labels of
//! [`peering::Peering::markers`] is never changed.

pub(crate) mod controller;
pub(crate) mod event;
pub(crate) mod kind;
pub(crate) mod peering;
pub(crate) mod secret;
pub(crate) mod settings;
pub(crate) mod token;
pub(crate) mod tokens;

mod configmap;
pub(crate) mod conflicts;
mod desired;
mod endpointslice;
mod events;
mod idle;
mod ingress;
mod item;
mod memory;
mod metadata;
pub(crate) mod namespaces;
mod observe;
mod observed;
pub(crate) mod omitted;
pub(crate) mod other;
mod plan;
mod present;
mod refusals;
mod registrations;
mod service;
mod status;
pub(crate) mod summary;

#[cfg(test)]
pub(crate) mod tests;
