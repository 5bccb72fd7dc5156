//! Creation, status and deletion of a ForeignCluster.

use super::condition::{Line, Type};
use super::item::WorkItem;
use super::objects::{Local, label};
use super::peer::Peer;
use super::{authentication, networking, offloading, probe};
use crate::network::removals;
use control_api::core::foreign_cluster::{
    ForeignClusterCondition, Module, Modules, PeerRole, TenantNamespaces,
};
use control_api::{ForeignCluster, ForeignClusterStatus, annotations, labels};
use control_runtime::{Action, Cluster, Entry, Key, Plan, Ref, Write};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// Finalizer by which upstream's manager ends its probes of the peer's API server. Ours end without one, so it removes
/// it from the objects of an upstream installation, because their deletion would never end.
const UPSTREAM_FINALIZER: &str = "api-server-checker.liqo.io/finalizer";

/// State of a provider that no object of this cluster has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Provider {
    /// Whether its API server responded to the last probe; `None` if that is not known.
    pub(super) is_ready: Option<bool>,
    /// Whether it refuses the requests of this cluster.
    pub(super) is_refusing: bool,
}

/// Plans the ForeignCluster of a peer: at most one write, as each requires the version that it was planned with.
pub(super) fn plan(
    local: Local<'_>,
    id: &str,
    provider: Provider,
    now: Timestamp,
) -> Plan<WorkItem> {
    let object = Ref::of::<ForeignCluster>(&Cluster::Local, &Key::cluster(id));
    let present = local.cache.entry(&object);
    let peer = local.is_peer(id).then(|| Peer::find(local, id));
    let write = match (peer.filter(Peer::is_any), present) {
        (None, None) => None,
        (None, Some(entry)) => deletion(object, entry),
        (Some(_), None) => Some(creation(object, id)),
        (Some(peer), Some(entry)) => update(local, (&peer, provider), object, entry, now),
    };

    Plan {
        writes: write.into_iter().collect(),
        ..Plan::default()
    }
}

/// Returns whether a plan must not wait: it deletes the ForeignCluster, disables a module or removes a condition of one, or shows
/// that the networks are no longer connected.
///
/// `liqoctl uninstall` may run directly after the command that has ended the last peering, and is refused while a module is
/// enabled. Endpoints of the peer are ready until the loss is shown.
pub(super) fn is_urgent(local: Local<'_>, id: &str, plan: &Plan<WorkItem>) -> bool {
    let foreign = local.objects::<ForeignCluster>().get(&Key::cluster(id));
    let present = json!(foreign.and_then(|it| it.status.as_ref()?.modules.as_ref()));
    let is_disabled = |(name, module): (&String, &Value)| {
        module["enabled"] == false && present[name]["enabled"] == true
    };
    let is_connected = |modules: &Value| {
        let conditions = modules["networking"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions
            .any(|it| it["type"] == "NetworkConnectionStatus" && it["status"] == "Established")
    };
    plan.writes.iter().any(|write| match &write.action {
        Action::Delete => true,
        // The removal of conditions is a write of its own, which precedes the others.
        Action::Merge(removed) => removed.pointer("/status/modules").is_some(),
        Action::Apply(fields) => {
            let modules = fields.pointer("/status/modules").unwrap_or(&Value::Null);
            let is_lost = is_connected(&present) && !is_connected(modules);
            is_lost || modules.as_object().into_iter().flatten().any(is_disabled)
        }
        Action::Create(_) | Action::Update(_) | Action::Finalize(_) | Action::Post(_) => false,
    })
}

fn creation(object: Ref, id: &str) -> Write {
    let fields = json!({
        "apiVersion": object.resource.api_version(),
        "kind": object.resource.kind,
        "metadata": {"name": id, "labels": {labels::REMOTE_CLUSTER_ID: id}},
        "spec": {"clusterID": id},
    });
    Write::new(object, Action::Create(fields))
}

fn deletion(object: Ref, entry: &Entry) -> Option<Write> {
    if let Some(write) = without_finalizer(&object, entry) {
        return Some(write);
    }
    if entry.deleted_at().is_some() {
        return None;
    }
    let mut write = Write::new(object, Action::Delete);
    write.uid = Some(entry.uid.clone());

    Some(write)
}

fn update(
    local: Local<'_>,
    (peer, provider): (&Peer<'_>, Provider),
    object: Ref,
    entry: &Entry,
    now: Timestamp,
) -> Option<Write> {
    let present = entry.get::<ForeignCluster>()?;
    if let Some(write) = without_finalizer(&object, entry) {
        return Some(write);
    }
    let mut write = if label(&present.metadata, labels::REMOTE_CLUSTER_ID) == Some(peer.id) {
        let new = status(local, (peer, provider), present, now);
        let old = present.status.as_ref().map(|status| json!(status));
        let (old, new) = (old.unwrap_or_else(|| json!({})), json!(new));
        if old == new {
            return None;
        }
        // An Apply would leave fields and conditions that another field manager has added.
        let action = match removals(&old, &new) {
            Some(patch) => Action::Merge(json!({"status": patch})),
            None => Action::Apply(json!({"status": new})),
        };
        Write::new(object, action).subresource("status")
    } else {
        let labels = json!({labels::REMOTE_CLUSTER_ID: peer.id});
        Write::new(
            object,
            Action::Merge(json!({"metadata": {"labels": labels}})),
        )
    };
    // Another leader may have written it since.
    write.resource_version = entry.version.map(|version| version.to_string());

    Some(write)
}

/// Returns the removal of upstream's finalizer; `None` if the object does not have it.
fn without_finalizer(object: &Ref, entry: &Entry) -> Option<Write> {
    let finalizers = entry.finalizers();
    let kept: Vec<_> = finalizers
        .iter()
        .filter(|it| *it != UPSTREAM_FINALIZER)
        .cloned()
        .collect();
    if kept.len() == finalizers.len() {
        return None;
    }
    let mut write = Write::new(object.clone(), Action::Finalize(kept));
    write.uid = Some(entry.uid.clone());
    write.resource_version = entry.version.map(|version| version.to_string());

    Some(write)
}

/// Returns the status. It depends on the present one by the times of conditions only.
fn status(
    local: Local<'_>,
    (peer, provider): (&Peer<'_>, Provider),
    present: &ForeignCluster,
    now: Timestamp,
) -> ForeignClusterStatus {
    let status = present.status.clone().unwrap_or_default();
    let old = status.modules.unwrap_or_default();
    let module = |old: &Module, enabled, lines: Vec<Line<'_>>| Module {
        conditions: lines
            .into_iter()
            .map(|line| condition(&old.conditions, line, now))
            .collect(),
        enabled,
    };
    let networking = networking::lines(peer, local.replicas());
    let has_virtual_nodes = !peer.virtual_nodes.is_empty();
    let parameters = peer.identity.and_then(|it| it.spec.auth_params.as_ref());
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());

    ForeignClusterStatus {
        api_server_url: parameters.and_then(|it| some(&it.api_server)),
        conditions: Vec::from_iter(api_server(peer, provider, &status.conditions, now)),
        foreign_proxy_url: parameters.and_then(|it| some(&it.proxy_url)),
        modules: Some(Modules {
            authentication: module(
                &old.authentication,
                peer.has_authentication(),
                authentication::lines(peer, provider.is_refusing),
            ),
            networking: module(&old.networking, peer.has_networking(), networking),
            offloading: module(
                &old.offloading,
                has_virtual_nodes,
                offloading::lines(peer, local),
            ),
        }),
        observed_generation: present.metadata.generation,
        role: role(peer),
        tenant_namespace: tenant_namespaces(peer),
    }
}

/// Returns the condition of the API server of a peer that is probed: the present one if the result is not known.
fn api_server(
    peer: &Peer<'_>,
    provider: Provider,
    present: &[ForeignClusterCondition],
    now: Timestamp,
) -> Option<ForeignClusterCondition> {
    peer.secret?;
    match provider.is_ready {
        Some(is_ready) => Some(condition(present, probe::line(is_ready), now)),
        None => {
            let mut present = present.iter();
            let found = present.find(|it| it.type_ == Type::APIServerStatus);
            found.cloned()
        }
    }
}

/// Returns the role of the peer: it is a consumer of this cluster, a provider, or both.
fn role(peer: &Peer<'_>) -> PeerRole {
    let is_consumer = peer.tenant.is_some();
    let is_provider =
        peer.identity.is_some() || peer.secret.is_some() || !peer.virtual_nodes.is_empty();
    match (is_consumer, is_provider) {
        (true, true) => PeerRole::ConsumerAndProvider,
        (true, false) => PeerRole::Consumer,
        (false, true) => PeerRole::Provider,
        (false, false) => PeerRole::Unknown,
    }
}

fn tenant_namespaces(peer: &Peer<'_>) -> Option<TenantNamespaces> {
    let of_identity = peer.identity.and_then(|it| it.spec.namespace.as_deref());
    let annotations = peer.secret.and_then(|it| it.metadata.annotations.as_ref());
    let of_secret = annotations.and_then(|it| it.get(annotations::REMOTE_TENANT_NAMESPACE));
    let remote = of_identity.or(of_secret.map(String::as_str));
    let namespaces = TenantNamespaces {
        local: peer.namespace.map(str::to_owned),
        remote: remote.filter(|it| !it.is_empty()).map(str::to_owned),
    };

    (namespaces != TenantNamespaces::default()).then_some(namespaces)
}

/// Returns a condition, with the transition time of the old one if the status is the same.
fn condition(
    old: &[ForeignClusterCondition],
    line: Line<'_>,
    now: Timestamp,
) -> ForeignClusterCondition {
    let (type_, status, reason, message) = line;
    let mut same = old.iter();
    let same = same.find(|old| old.type_ == type_ && old.status == status);
    let since = same.and_then(|same| same.last_transition_time.clone());

    ForeignClusterCondition {
        last_transition_time: Some(since.unwrap_or(Time(now))),
        message: Some(message.to_owned()),
        reason: Some(reason.to_owned()),
        status,
        type_,
    }
}
