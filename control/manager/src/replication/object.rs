//! An object of this cluster, and its replica at a provider.

use super::item::WorkItem;
use super::kind::Kind;
use super::peer::{Peer, is_dead};
use super::selection::FINALIZER;
use control_api::authentication::resource_slice::REPLICATION_FORBIDDEN;
use control_api::{annotations, labels};
use control_runtime::{
    Action, Cache, Cluster, Env, Event, Key, Plan, Protection, Ref, Write, merge_patch,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// Field of a NamespaceMap's status with the entries, by name of the namespace.
const MAPPING: &str = "currentMapping";

/// Longest status of a provider that is taken over, as JSON in bytes.
const STATUS_LEN_MAX: usize = 256 * 1024;

/// An object, with what is known about its provider.
pub(super) struct Replication<'a> {
    pub(super) cache: &'a Cache,
    /// Cluster ID of this cluster.
    pub(super) consumer: &'a str,
    /// Cluster ID of the provider.
    pub(super) provider: &'a str,
    /// The connection to the provider; `None` if there are no credentials.
    pub(super) peer: Option<&'a Peer>,
    /// Whether the Secrets with credentials are listed, and those of the provider have been read.
    pub(super) is_known: bool,
    pub(super) kind: Kind,
    /// Name of the local object.
    pub(super) key: &'a Key,
}

impl Replication<'_> {
    /// Plans the finalizer and the status of the local object.
    pub(super) fn plan_object(&self, env: &Env<'_>) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        let object = Ref::new(&Cluster::Local, &self.kind.resource(), self.key);
        let local = self.kind.object(self.cache, &Cluster::Local, self.key);
        let Some((local, entry)) = local.zip(self.cache.entry(&object)) else {
            return plan;
        };
        if entry.deleted_at().is_none() && !self.is_selected(&local) {
            return plan;
        }
        if self.is_incomplete(&local) && FINALIZER.protection(entry, env.now) == Protection::Missing
        {
            // The authentication controller sets it with the request, in one write. Before, there is no replica.
            return plan;
        }
        let item = WorkItem::Object(self.kind, self.key.clone());
        let protection =
            FINALIZER.apply(&mut plan, (&object, entry), item, self.is_gone(), env.now);
        if protection == Protection::Set {
            self.plan_status(&object, &local, &mut plan, env);
        }

        plan
    }

    /// Plans the replica.
    pub(super) fn plan_replica(&self, env: &Env<'_>) -> Plan<WorkItem> {
        let mut plan = Plan::default();
        let Some(replica) = self.replica() else {
            return plan;
        };
        let object = Ref::new(&Cluster::Local, &self.kind.resource(), self.key);
        let local = self.kind.object(self.cache, &Cluster::Local, self.key);
        let remote = self.kind.object(self.cache, &replica.cluster, &replica.key);
        // Other controllers read objects of the provider itself.
        let remote = remote.filter(|remote| is_replica(remote, self.consumer));
        let protection = self
            .cache
            .entry(&object)
            .map(|entry| FINALIZER.protection(entry, env.now));
        let wanted = local.filter(|local| self.is_selected(local));
        let write = match (protection, wanted, remote) {
            // Without finalizer, the object could be deleted without its replica.
            (Some(Protection::Missing), Some(_), _) => None,
            // The authentication controller has not completed it yet.
            (Some(Protection::Set), Some(local), None) if self.is_incomplete(&local) => None,
            (Some(Protection::Set), Some(local), None) => {
                Some(Write::new(replica, Action::Create(self.created(&local))))
            }
            (Some(Protection::Set), Some(local), Some(remote)) => updated(replica, &local, remote),
            (_, _, Some(remote)) => deletion(replica, &remote),
            (_, _, None) => None,
        };
        plan.writes.extend(write);

        plan
    }

    /// Returns whether a ResourceSlice lacks its request, without which the provider does not decide about it.
    fn is_incomplete(&self, local: &Value) -> bool {
        self.kind == Kind::ResourceSlice && local["spec"]["csr"].is_null()
    }

    /// Returns whether the local object is to be replicated to the provider.
    fn is_selected(&self, local: &Value) -> bool {
        let labels = &local["metadata"]["labels"];
        labels[labels::REPLICATION] == "true" && labels[labels::REMOTE_ID] == self.provider
    }

    /// Returns the name of the replica, and the cluster; `None` while the provider's objects are not known.
    fn replica(&self) -> Option<Ref> {
        let peer = self.peer?;
        let is_known = peer.is_listed(self.kind, self.provider, self.consumer, self.cache);
        let key = Key::new(peer.remote_namespace.clone(), self.key.name.clone());

        is_known.then(|| Ref::new(&Cluster::remote(self.provider), &self.kind.resource(), &key))
    }

    /// Returns whether the replica is gone, or cannot be reached ever again: there are no credentials, the provider refuses
    /// them, another cluster has its address, or a user has declared it dead.
    fn is_gone(&self) -> bool {
        let Some(peer) = self.peer else {
            return self.is_known;
        };
        let is_deleted = self
            .replica()
            .is_some_and(|replica| !self.cache.contains(&replica));

        is_deleted
            || peer.access.refused().is_some()
            || peer.lacks(self.kind, self.provider, self.cache)
            || peer.is_untrusted
            || is_dead(self.provider, self.cache)
    }

    /// Takes over the status of the replica.
    fn plan_status(&self, object: &Ref, local: &Value, plan: &mut Plan<WorkItem>, env: &Env<'_>) {
        if let Some(message) = self.peer.and_then(|peer| peer.access.refused()) {
            // As when the Tenant is drained or deleted there.
            let message = format!("the provider refuses the requests of this cluster: {message}");
            let refused = self.refused(local, &message, env);
            if let Some(status) = refused {
                plan.writes.push(status_of(object, status));
                plan.events
                    .push(warning(object, REPLICATION_FORBIDDEN, message));
            }
            return;
        }
        let replica = self.replica();
        let remote = replica.and_then(|it| self.kind.object(self.cache, &it.cluster, &it.key));
        let Some(mut status) = remote.map(|mut remote| remote["status"].take()) else {
            return;
        };
        if self.kind == Kind::NamespaceMap {
            keep_known_namespaces(local, &mut status);
        }
        if status.is_null() || status == local["status"] {
            return;
        }
        let len = status.to_string().len();
        if len > STATUS_LEN_MAX {
            let note = format!(
                "the provider's status has {len} bytes, and at most {STATUS_LEN_MAX} are taken over"
            );
            plan.events.push(warning(object, "StatusTooLarge", note));
            return;
        }
        plan.writes.push(match self.kind {
            Kind::NamespaceMap => merged(object, &local["status"], &status),
            Kind::ResourceSlice | Kind::Renew | Kind::ExportedService => status_of(object, status),
        });
    }

    /// Returns the replica as it is created. Labels and annotations are copied once, then they are the provider's.
    fn created(&self, local: &Value) -> Value {
        let metadata = &local["metadata"];
        let mut labels = metadata["labels"].clone();
        labels[labels::REPLICATION] = json!("false");
        labels[labels::REPLICATED] = json!("true");
        labels[labels::ORIGIN_ID] = json!(self.consumer);
        labels[labels::REMOTE_CLUSTER_ID] = json!(self.consumer);
        if let Some(labels) = labels.as_object_mut() {
            labels.remove(labels::OWNERSHIP);
        }
        // The provider cordons its replica, and refuses these annotations from a consumer.
        let mut annotations = metadata["annotations"].clone();
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.remove(annotations::CORDON);
            annotations.remove(annotations::CORDON_TENANT);
        }
        let mut created = json!({"metadata": {"labels": labels}, "spec": local["spec"]});
        if annotations.is_object() {
            created["metadata"]["annotations"] = annotations;
        }

        created
    }

    /// Returns the status of a ResourceSlice whose provider refuses the requests of this cluster.
    fn refused(&self, local: &Value, message: &str, env: &Env<'_>) -> Option<Value> {
        if self.kind != Kind::ResourceSlice {
            return None;
        }
        let mut status = local["status"].clone();
        let conditions = status["conditions"].take();
        let mut conditions = conditions.as_array().cloned().unwrap_or_default();
        let is_resources = |it: &Value| it["type"] == "Resources";
        if conditions
            .iter()
            .any(|it| is_resources(it) && it["reason"] == REPLICATION_FORBIDDEN)
        {
            return None;
        }
        conditions.retain(|it| !is_resources(it));
        let now = Timestamp::from_second(env.now.as_second()).unwrap_or(env.now);
        conditions.push(json!({
            "type": "Resources",
            "status": "Denied",
            "reason": REPLICATION_FORBIDDEN,
            "message": message,
            "lastTransitionTime": now.to_string(),
        }));
        status["conditions"] = conditions.into();

        Some(status)
    }
}

/// Returns whether an object of a provider is a replica of the consumer's.
pub(super) fn is_replica(remote: &Value, consumer: &str) -> bool {
    let labels = &remote["metadata"]["labels"];

    labels[labels::REPLICATED] == "true" && labels[labels::ORIGIN_ID] == consumer
}

/// Returns the change of a replica whose specification differs from that of its object.
fn updated(replica: Ref, local: &Value, mut remote: Value) -> Option<Write> {
    let is_left =
        remote["spec"] == local["spec"] || !remote["metadata"]["deletionTimestamp"].is_null();
    if is_left {
        return None;
    }
    let text = |field: &str| remote["metadata"][field].as_str().map(str::to_owned);
    let (uid, version) = (text("uid"), text("resourceVersion"));
    remote["spec"] = local["spec"].clone();
    let mut write = Write::new(replica, Action::Update(remote));
    (write.uid, write.resource_version) = (uid, version);

    Some(write)
}

/// Returns the deletion of a replica.
fn deletion(replica: Ref, remote: &Value) -> Option<Write> {
    let metadata = &remote["metadata"];
    let mut write = Write::new(replica, Action::Delete);
    write.uid = metadata["uid"].as_str().map(str::to_owned);

    metadata["deletionTimestamp"].is_null().then_some(write)
}

/// Returns the Apply of a status.
fn status_of(object: &Ref, status: Value) -> Write {
    let apply = Action::Apply(json!({"status": status}));
    Write::new(object.clone(), apply).subresource("status")
}

/// Drops the entries of a NamespaceMap's status about namespaces that this cluster has never named: the virtual kubelets watch those of all
/// entries, and get rights there.
fn keep_known_namespaces(local: &Value, status: &mut Value) {
    let known = [&local["spec"]["desiredMapping"], &local["status"][MAPPING]];
    let entries = status.get_mut(MAPPING).and_then(Value::as_object_mut);
    if let Some(entries) = entries {
        entries.retain(|name, _| known.iter().any(|it| it.get(name).is_some()));
    }
}

/// Returns the write that changes a status into another one. An Apply of a status without entries would leave the last one.
fn merged(object: &Ref, old: &Value, new: &Value) -> Write {
    let patch = merge_patch(old, new).unwrap_or_default();
    let merge = Action::Merge(json!({"status": patch}));
    Write::new(object.clone(), merge).subresource("status")
}

/// Returns an Event about a problem.
fn warning(object: &Ref, reason: &'static str, note: String) -> Event {
    Event {
        object: object.clone(),
        is_warning: true,
        reason,
        note,
        is_repeated: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entries_of_withdrawn_namespaces_stay_and_odd_statuses_too() {
        let entries = json!({"withdrawn": {"remoteNamespace": "x", "phase": "Accepted"}});
        let local = json!({"status": {MAPPING: entries}});
        for mut status in [
            json!({MAPPING: entries}),
            json!(null),
            json!(7),
            json!({MAPPING: []}),
        ] {
            let before = status.clone();
            keep_known_namespaces(&local, &mut status);
            assert_eq!(status, before);
        }
    }
}
