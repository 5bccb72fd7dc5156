//! The virtual kubelets of VirtualNodes: one Deployment each, with its rights in this cluster.
//!
//! ```text
//! source       the objects that determine a virtual kubelet
//! options      VkOptionsTemplate, within limits
//! arguments    flags of the container
//! overrides    values that a user has written into spec.template
//! template     spec of the VirtualNode, with spec.template
//! deployment   Deployment `vk-NAME`
//! rights       ServiceAccount, ClusterRoleBinding, RoleBindings
//! serving      approval of requests for serving certificates
//! access       watches in tenant namespaces
//! drain        the end of a Node
//! ending       the end of a VirtualNode
//! image        images of this project and upstream's
//! ```
//!
//! Upstream fills `spec.template` in a webhook. Here the controller does, so that its absence blocks no VirtualNode.

use super::bounds::Bounds;
use super::item::WorkItem;
use super::objects::{Local, Refusal};
use access::Access;
use control_api::offloading::virtual_node::VirtualNodeConditionStatus as Status;
use control_api::{VirtualNode, VirtualNodeSpec};
use control_runtime::{Env, Key, Plan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use source::Source;

pub(super) use access::{Watches, offloaded_pods};
pub(super) use ending::{FINALIZER, States, is_draining, plan_leftovers, refuse};
pub(super) use options::key_of as options_key;
pub(super) use rights::{AUTHENTICATION_ROLE, LEASE_ROLE, TENANT_ROLE, bound, bound_by_cluster};
pub(super) use serving::{items_of as requests_of, plan as plan_request, waiting_requester};
pub(crate) use source::Kubelets;
pub(super) use source::secret_of;

mod access;
mod arguments;
mod deployment;
mod drain;
mod ending;
mod image;
mod options;
mod overrides;
mod rights;
mod serving;
mod source;
mod template;

/// Default of `spec.createNode`, that of upstream's VkOptionsTemplate.
const CREATE_NODE: bool = true;

/// Default of `spec.disableNetworkCheck`, likewise.
const DISABLE_NETWORK_CHECK: bool = false;

/// The values of a VirtualNode's virtual kubelet, or the reason why there is none.
pub(super) struct Assessment<'a> {
    source: Result<Option<Source<'a>>, Refusal>,
    /// Message about invalid options.
    invalid: Option<String>,
}

impl<'a> Assessment<'a> {
    /// Assesses a VirtualNode, which need not exist yet.
    pub(super) fn of(
        local: &Local<'a>,
        kubelets: &'a Kubelets,
        named: (&'a Key, &'a VirtualNode),
    ) -> Self {
        let mut bounds = Bounds::of("the VkOptionsTemplate", &[]);
        let source = source::source(local, kubelets, named, &mut bounds);

        Self {
            source,
            invalid: bounds.into_message(),
        }
    }

    /// Fills the spec of a VirtualNode.
    pub(super) fn complete(&self, node: &mut VirtualNode) {
        // Otherwise its options may not exist yet.
        if let Ok(Some(source)) = &self.source {
            template::complete(node, source);
        }
    }

    /// Returns whether there is, or will be, a virtual kubelet.
    pub(super) fn is_accepted(&self) -> bool {
        matches!(self.source, Ok(Some(_)))
    }

    /// Plans the virtual kubelet of a VirtualNode, whose spec is complete, and adds Events.
    pub(super) fn plan(&self, plan: &mut Plan<WorkItem>, local: &Local<'_>, node: &VirtualNode) {
        let source = match &self.source {
            Ok(Some(source)) => source,
            Ok(None) => return,
            Err(refusal) => {
                let key = node_key(node);
                refuse(plan, &key, refusal.clone());
                return;
            }
        };
        if let Some(message) = &self.invalid {
            refuse(plan, source.key, ("InvalidOptions", message.clone()));
        }
        // Without the watches, an existing object could be taken for a missing one.
        if Access::of(local, &source.key.namespace) != Access::Listed {
            return;
        }
        let refused = rights::plan(plan, local, (source.key, source.peer))
            .and_then(|()| deployment::plan(plan, local, node, source));
        if let Err(refusal) = refused {
            refuse(plan, source.key, refusal);
        }
    }
}

/// Fills the spec of a VirtualNode without a virtual kubelet.
pub(super) fn complete_without(spec: &mut VirtualNodeSpec) {
    spec.create_node.get_or_insert(CREATE_NODE);
    spec.disable_network_check
        .get_or_insert(DISABLE_NETWORK_CHECK);
}

/// Plans the end of a VirtualNode, see [`ending`].
pub(super) fn plan_end(
    local: &Local<'_>,
    named: (&Key, &VirtualNode),
    env: &Env<'_>,
) -> (Plan<WorkItem>, Option<States>) {
    ending::plan(local, named, env)
}

/// Returns the states of virtual kubelet and Node, and plans the end of a Node that the VirtualNode no longer has. They are
/// unknown (`None`) until the objects in the tenant namespace are listed, for example after a start of the manager.
pub(super) fn states(
    plan: &mut Plan<WorkItem>,
    local: &Local<'_>,
    (key, node): (&Key, &VirtualNode),
    is_accepted: bool,
) -> Option<States> {
    if Access::of(local, &key.namespace) == Access::Pending {
        return None;
    }
    let deployment = deployment::own(local, key);
    let available = deployment
        .and_then(|it| it.status.as_ref()?.available_replicas)
        .unwrap_or_default();
    let of_kubelet = match deployment {
        Some(it) if it.metadata.deletion_timestamp.is_some() => Status::Deleting,
        Some(_) if available > 0 => Status::Running,
        Some(_) => Status::Creating,
        None if is_accepted => Status::Creating,
        None => Status::None,
    };
    let Ok(peer) = source::check(local, key, node) else {
        return Some([of_kubelet, Status::None]);
    };
    let of_node = if node.spec.create_node == Some(false) {
        ending::plan_node(plan, local, (&key.name, peer))
    } else if drain::own(local, &key.name, peer).is_some() {
        Status::Running
    } else if of_kubelet == Status::None {
        Status::None
    } else {
        Status::Creating
    };

    Some([of_kubelet, of_node])
}

/// Plans the RoleBinding of the virtual kubelets in a namespace.
pub(super) fn plan_role_binding(
    local: &Local<'_>,
    kubelets: &Kubelets,
    key: &Key,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let nodes = local.virtual_nodes.iter();
    let nodes = nodes.filter(|(node, _)| rights::role_bindings(node).contains(key));
    let accounts = nodes.filter(|named| has_rights(local, kubelets, key, *named));
    let accounts: Vec<_> = accounts.map(|(node, _)| node.clone()).collect();
    rights::plan_role_binding(&mut plan, local, key, &accounts);

    plan
}

/// Returns whether the virtual kubelet of a VirtualNode has the rights of a RoleBinding.
fn has_rights(
    local: &Local<'_>,
    kubelets: &Kubelets,
    binding: &Key,
    (key, node): (&Key, &VirtualNode),
) -> bool {
    match Access::of(local, &key.namespace) {
        Access::Ending => return false,
        // As it is, so that a start of the manager withdraws no rights.
        Access::Pending => return rights::is_bound_by(local, binding, key),
        Access::Listed => {}
    }
    if node.metadata.deletion_timestamp.is_some() {
        return ending::needs_rights(local, key);
    }
    // The ServiceAccount of another owner must not get the rights.
    let is_own = local.accounts.get(key).is_some_and(rights::is_own);
    // A virtual kubelet that runs keeps them, also if it would not be created any more.
    is_own
        && (deployment::own(local, key).is_some()
            || Assessment::of(local, kubelets, (key, node)).is_accepted())
}

/// Returns the items of the virtual kubelet of a VirtualNode.
pub(super) fn items_of(node: &Key) -> impl Iterator<Item = WorkItem> {
    let bindings = rights::role_bindings(node).map(WorkItem::KubeletBinding);
    bindings.into_iter().chain([WorkItem::Status(node.clone())])
}

/// Returns the VirtualNode of a Deployment or a pod of a virtual kubelet, or of the Deployment whose name it needs.
pub(super) fn node_of(metadata: &ObjectMeta) -> Option<Key> {
    let named = || {
        let name = metadata.name.as_deref()?.strip_prefix(template::PREFIX)?;
        Some(Key::new(metadata.namespace.as_deref()?, name))
    };
    deployment::node_of(metadata).or_else(named)
}

fn node_key(node: &VirtualNode) -> Key {
    let metadata = &node.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();

    Key::new(text(&metadata.namespace), text(&metadata.name))
}
