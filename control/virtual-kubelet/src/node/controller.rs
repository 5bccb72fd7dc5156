//! Connects the planners of the Node to the runtime.

use super::condition::State;
use super::{lease, object};
use crate::connection::Connection;
use crate::settings::Settings;
use control_api::{ForeignCluster, VirtualNode};
use control_runtime::{
    Action, Cache, Change, Cluster, Controller, Env, Event, Key, Outcome, Plan, Queue, Ref,
    Registration, Request, Scope, Write, merge_patch,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use std::fmt;
use std::time::Duration;

/// Time after which the times of heartbeats in the status are written although nothing has changed, as a kubelet does.
const HEARTBEAT: Duration = Duration::from_secs(300);

/// Work item of the virtual kubelet for its Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The connection to the provider.
    Connection,
    /// The Node.
    Node,
    /// The Lease of the Node.
    Lease,
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "connection",
            Self::Node => "node",
            Self::Lease => "lease",
        })
    }
}

/// Plans the connection to the provider, and the Node.
pub(crate) struct NodeController {
    settings: Settings,
    connection: Connection,
}

impl NodeController {
    /// Creates the controller.
    pub(crate) fn new(settings: Settings, connection: Connection) -> Self {
        Self {
            settings,
            connection,
        }
    }

    fn plan_node(&self, cache: &Cache, env: &Env<'_>) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        let settings = &self.settings;
        let Some(node) = virtual_node(settings, cache).filter(|_| settings.creates_node) else {
            return plan;
        };
        let key = Key::cluster(&*settings.node);
        let target = Ref::of::<Node>(&Cluster::Local, &key);
        let metadata = object::metadata(settings, node);
        let state = self.state(node, cache, env);
        let taints = object::taints(node, state);
        let Some(present) = cache.local::<Node>(&key) else {
            // An unready Node would be tainted, and its taint takes time to go.
            let create = json!({
                "metadata": metadata,
                "spec": {"taints": taints},
                "status": object::status(settings, node, (state, &NodeStatus::default()), env.now),
            });
            plan.writes.push(Write::new(target, Action::Create(create)));
            return plan;
        };
        if !object::is_own(settings, present) {
            plan.events.push(self.foreign_node());
            return plan;
        }
        if present.metadata.deletion_timestamp.is_some() {
            return plan;
        }
        if let Some(patch) = object::change(&present.metadata, &metadata) {
            let merge = Action::Merge(json!({"metadata": patch}));
            plan.writes.push(changed(&target, merge, present));
        }
        plan.writes.extend(change_taints(present, &taints, &target));
        self.plan_status((node, state), (&target, present), env, &mut plan);

        plan
    }

    fn plan_status(
        &self,
        (node, state): (&VirtualNode, State),
        (target, present): (&Ref, &Node),
        env: &Env<'_>,
        plan: &mut Plan<WorkItem>,
    ) {
        let old = present.status.clone().unwrap_or_default();
        let new = object::status(&self.settings, node, (state, &old), env.now);
        let (written, desired) = (object::written(&old), object::written(&new));
        let heartbeat = old
            .conditions
            .as_ref()
            .and_then(|it| it.first()?.last_heartbeat_time.clone());
        let elapsed = heartbeat.map(|Time(at)| env.now.duration_since(at));
        let elapsed = elapsed.and_then(|it| Duration::try_from(it).ok());
        let elapsed = elapsed.unwrap_or_default();
        // The times of heartbeats would show the node controller a Node that is alive.
        let elapsed = if state.is_silent() {
            Duration::ZERO
        } else {
            elapsed
        };
        let wait = HEARTBEAT.saturating_sub(elapsed);
        if written == desired && !wait.is_zero() {
            plan.requeue.push((wait, WorkItem::Node));
            return;
        }
        // Resources that the quota no longer has stay on a Node of upstream's; here they go.
        let Some(status) = merge_patch(&json!(written), &json!(new)) else {
            return;
        };
        let merge = Action::Merge(json!({"status": status}));
        let write = changed(target, merge, present).subresource("status");
        plan.writes.push(write);
        plan.requeue.push((HEARTBEAT, WorkItem::Node));
    }

    fn state(&self, node: &VirtualNode, cache: &Cache, env: &Env<'_>) -> State {
        let foreign = cache.local::<ForeignCluster>(&Key::cluster(&*self.settings.provider));
        let provider = self.connection.provider(&self.settings, cache, env);

        State::new(&self.settings, node, (foreign, provider))
    }

    fn plan_lease(&self, cache: &Cache, env: &Env<'_>) -> Plan<WorkItem> {
        let settings = &self.settings;
        let node = cache.local::<Node>(&Key::cluster(&*settings.node));
        let node = node
            .filter(|it| object::is_own(settings, it) && it.metadata.deletion_timestamp.is_none());
        let virtual_node = virtual_node(settings, cache).filter(|_| settings.creates_node);
        let is_alive = |it| self.state(it, cache, env).is_alive;
        match node {
            Some(node) if virtual_node.is_some_and(is_alive) => {
                lease::plan(settings, WorkItem::Lease, (node, cache), env)
            }
            Some(_) | None => Plan::default(),
        }
    }

    fn foreign_node(&self) -> Event {
        let settings = &self.settings;
        Event {
            object: Ref::of::<VirtualNode>(&Cluster::Local, &settings.virtual_node()),
            is_warning: true,
            reason: "NodeExists",
            note: format!(
                "Node {} exists and does not represent resources of `{}`: delete it, or give the VirtualNode another name",
                settings.node, settings.provider
            ),
            is_repeated: false,
        }
    }
}

impl Controller for NodeController {
    type Item = WorkItem;
    const NAME: &'static str = "node";
    const FIELD_MANAGER: &'static str = "node.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        let settings = &self.settings;
        vec![
            Registration::whole::<VirtualNode>(Scope::Namespace(settings.tenant_namespace.clone()))
                .name(&*settings.node),
            Registration::whole::<Node>(Scope::All)
                .name(&*settings.node)
                .verbs(&["create", "patch"])
                .subresource("status", "patch"),
            Registration::whole::<Lease>(Scope::Namespace(lease::NAMESPACE.to_owned()))
                .name(&*settings.node)
                .verbs(&["create", "patch"]),
            Registration::whole::<ForeignCluster>(Scope::All).name(&*settings.provider),
        ]
    }

    fn observe(&mut self, change: &Change<'_>, _cache: &Cache) -> Vec<WorkItem> {
        if change.is::<Lease>() {
            return Vec::new();
        }
        vec![WorkItem::Connection, WorkItem::Node, WorkItem::Lease]
    }

    fn started(&mut self, _cache: &Cache) -> Vec<WorkItem> {
        vec![WorkItem::Connection, WorkItem::Node, WorkItem::Lease]
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        match item {
            WorkItem::Connection => {
                self.connection
                    .plan(&self.settings, WorkItem::Connection, cache, env)
            }
            WorkItem::Node => self.plan_node(cache, env),
            WorkItem::Lease => self.plan_lease(cache, env),
        }
    }

    fn done(
        &mut self,
        _item: &WorkItem,
        request: &Request,
        outcome: &Outcome,
        _cache: &Cache,
    ) -> Vec<WorkItem> {
        let is_probe = matches!(request, Request::Probe(_));
        if is_probe && self.connection.take(outcome) {
            return vec![WorkItem::Node, WorkItem::Lease];
        }
        Vec::new()
    }

    fn queue(_item: &WorkItem) -> Queue {
        Queue::default()
    }
}

/// Returns the write of the taints that differ.
fn change_taints(present: &Node, desired: &[Taint], target: &Ref) -> Option<Write> {
    let taints = object::changed_taints(present, desired)?;
    let merge = Action::Merge(json!({"spec": {"taints": taints}}));
    let mut write = changed(target, merge, present);
    // The node controller changes the list as well.
    write.resource_version = present.metadata.resource_version.clone();

    Some(write)
}

/// Returns a change of the Node that was read, and of no other Node of its name.
fn changed(target: &Ref, merge: Action, present: &Node) -> Write {
    let mut write = Write::new(target.clone(), merge);
    write.uid.clone_from(&present.metadata.uid);
    write
}

/// Returns the VirtualNode, unless it is being deleted.
fn virtual_node<'a>(settings: &Settings, cache: &'a Cache) -> Option<&'a VirtualNode> {
    let node = cache.local::<VirtualNode>(&settings.virtual_node())?;
    node.metadata.deletion_timestamp.is_none().then_some(node)
}
