//! Tests of offloading with upstream's counterpart: upstream's virtual kubelet at a provider of this project, and the virtual
//! kubelet of this project at a provider of upstream's.

mod consumer;
mod controllers;
mod endpoints;
mod ends;
mod golden;
mod kubelet;
pub(crate) mod node;
pub(crate) mod process;
mod provider;
mod reflected;
pub(crate) mod requests;
mod scene;
pub(crate) mod turin;
mod virtual_node;

use crate::fixture::{Suite, serial};
use consumer::upstreams_virtual_kubelet_runs_pods_at_a_provider;
use provider::a_virtual_kubelet_runs_pods_at_upstreams_provider;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        upstreams_virtual_kubelet_runs_pods_at_a_provider,
        a_virtual_kubelet_runs_pods_at_upstreams_provider,
    );
}
