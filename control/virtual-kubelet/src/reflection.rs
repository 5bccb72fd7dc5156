//! Reflection of this cluster's objects into the namespaces of a provider.
//!
//! ```text
//! this cluster                                             provider
//! Service, ConfigMap, Secret   --controller-->             the same kind
//! EndpointSlice, Node, IP      --controller-->             ShadowEndpointSlice
//! Pod, ServiceAccount          --tokens-->                 Secret with the tokens of the pod
//! NamespaceMap: status of the provider, selects the namespaces
//! ```
//!
//! The modules of the kinds are pure: they compute the remote object of a local one. `summary` is the form in which the
//! cache keeps objects of both clusters, `verdict` compares them. An object of the provider without the labels of
//! [`Peering::markers`] is never changed.

#![expect(dead_code, reason = "the process of the virtual kubelet follows")]

mod configmap;
mod controller;
mod desired;
mod endpointslice;
mod events;
mod item;
mod kind;
mod memory;
mod metadata;
mod namespaces;
mod observe;
mod peering;
mod plan;
mod policy;
mod present;
mod registrations;
mod secret;
mod service;
mod settings;
mod summary;
mod token;

#[cfg(test)]
mod tests;
