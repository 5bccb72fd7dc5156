//! Connects the planners of offloading to the runtime.

use super::item::WorkItem;
use super::objects::Local;
use super::registrations::registrations;
use super::virtual_kubelet::{self, Kubelets, Watches};
use super::{observe, quota, status, virtual_node};
use control_api::offloading::quota::LimitsEnforcement;
use control_runtime::{Cache, Change, Controller, Env, Plan, Queue, Registration, WatchId};

/// Values of the flags.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How limits of containers count against Quotas.
    pub(crate) limits_enforcement: LimitsEnforcement,
    /// Keys of reserved domains that providers may set as labels of Nodes.
    pub(crate) allowed_node_labels: Vec<String>,
    /// Settings of virtual kubelets; `None` if there are none.
    pub(crate) kubelets: Option<Kubelets>,
}

/// Plans Quotas, VirtualNodes and virtual kubelets.
pub(crate) struct OffloadingController {
    settings: Settings,
    watches: Watches,
}

impl OffloadingController {
    /// Creates the controller.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            watches: Watches::default(),
        }
    }
}

impl Controller for OffloadingController {
    type Item = WorkItem;
    const NAME: &'static str = "offloading";
    const FIELD_MANAGER: &'static str = "offloading.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        registrations(self.settings.kubelets.as_ref())
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        let local = Local::new(cache);
        let mut items = observe::items_of(&local, change);
        if let Some(kubelets) = &self.settings.kubelets {
            items.extend(observe::items_of_kubelets(&local, kubelets, change));
            let requests = virtual_kubelet::requests_of(&local, Some(change), &items);
            items.extend(requests);
        }
        Vec::from_iter(items)
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        let local = Local::new(cache);
        let settings = &self.settings;
        let kubelets = settings.kubelets.as_ref();
        match item {
            WorkItem::Quota(key) => quota::plan(&local, settings.limits_enforcement, key),
            WorkItem::VirtualNode(key) => {
                virtual_node::plan(&local, (&settings.allowed_node_labels, kubelets), key)
            }
            WorkItem::Status(key) => {
                let mut plan = status::plan(&local, kubelets, key, env);
                let is_draining = || virtual_kubelet::is_draining(&local);
                self.watches.follow_drains(&mut plan, is_draining);
                plan
            }
            WorkItem::KubeletBinding(key) => match kubelets {
                Some(kubelets) => virtual_kubelet::plan_role_binding(&local, kubelets, key),
                None => Plan::default(),
            },
            WorkItem::Watches(key) => match kubelets {
                Some(kubelets) => self.watches.plan(&local, kubelets, &key.namespace),
                None => Plan::default(),
            },
            WorkItem::ServingCertificate { node, request } => {
                virtual_kubelet::plan_request(&local, (node, request), env)
            }
        }
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<WorkItem> {
        let local = Local::new(cache);
        let mut items = observe::items_of_list(&local, id);
        let requests = virtual_kubelet::requests_of(&local, None, &items);
        items.extend(requests);

        Vec::from_iter(items)
    }

    /// The objects of a peer are in its tenant namespace.
    fn queue(item: &WorkItem) -> Queue {
        Queue(item.key().namespace.clone())
    }

    fn item_kind(item: &WorkItem) -> &'static str {
        item.kind()
    }
}
