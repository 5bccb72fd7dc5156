//! The ShadowPod controller: the pods that consumers request in their namespaces of this cluster.
//!
//! ```text
//! ShadowPod --policy, quota--> Pod of the same name
//! ShadowPod <------phase------ Pod
//! ```
//!
//! Consumers write ShadowPods with their own credentials, so each is checked here whatever has written it: `policy` by the
//! TenantPolicy, `quota` by the Quota of the user that has created it. `requirement` is what the Quota requires of containers.
//! `change` is about ephemeral containers and resizes of a pod that exists.

#[cfg(test)]
pub(crate) use registrations::registrations;

pub(crate) use controller::ShadowPodController;
pub(crate) use settings::Settings;

#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "the controller calls it once it keeps an account of existing pods"
    )
)]
mod change;
mod controller;
mod objects;
mod plan;
mod policy;
mod quota;
mod registrations;
mod requirement;
mod settings;

#[cfg(test)]
mod tests;
