use super::*;
use crate::diff::diff;
use crate::plan::{Input, plan};
use crate::testing::{fabric, in_netns, ip, net, replica, run};
use crate::view::View;
use control_api::fabric::Fabric;
use ebpf_common::settings::OVERLAY_DEVICE;

#[test]
fn the_kernel_converges_on_the_plan_and_a_second_look_finds_nothing_to_do() {
    in_netns(async || {
        let mut node = Node::new();

        node.converge(&fabric(), &all_up()).await;

        let observed = node.kernel.observe().await.unwrap();
        assert_eq!(
            diff(&observed, &node.desired(&fabric(), &all_up(), &observed)),
            []
        );
        let mut successor = Node::new();
        let adopted = successor.kernel.observe().await.unwrap();
        assert_eq!(adopted, observed);
    });
}

/// An agent's view of its node.
struct Node {
    kernel: Kernel,
    settings: Settings,
}

impl Node {
    fn new() -> Self {
        let settings = Settings::default();
        Self {
            kernel: Kernel::open(settings.clone()).unwrap(),
            settings,
        }
    }

    fn desired(&self, fabric: &Fabric, view: &View, observed: &State) -> State {
        let input = Input {
            fabric,
            node: "rome-1",
            view,
            settings: &self.settings,
            underlay_mtu_bytes: None,
            observed,
        };

        plan(&input).unwrap().state
    }

    /// Makes the kernel obey; returns the changes that took.
    async fn converge(&mut self, fabric: &Fabric, view: &View) -> Vec<Op> {
        let mut state = self.kernel.observe().await.unwrap();
        let desired = self.desired(fabric, view, &state);
        let ops = diff(&state, &desired);
        for op in &ops {
            self.kernel.apply(op, &state).await.unwrap();
            state.apply(op);
        }

        assert_eq!(state, desired);
        assert_eq!(self.kernel.observe().await.unwrap(), desired);
        ops
    }
}

fn all_up() -> View {
    let mut view = View::default();
    for replica in ["gw-1", "gw-2"] {
        for cluster in ["milan", "turin"] {
            view.reaches(replica, cluster);
        }
    }

    view
}
