//! The serving certificate of a virtual kubelet: which CertificateSigningRequests are approved.
//!
//! ```text
//! virtual kubelet -> CertificateSigningRequest -> approval -> kube-controller-manager signs
//! ```
//!
//! Kubernetes' signer checks organization, prefix of the common name, alternative names and usages, but not the requester: with
//! an approval, any requester gets a certificate with which it serves as any Node. So a request is approved only for a pod of
//! the virtual kubelet of that Node. Others are left alone, because they may be of the kubelets of this cluster.

use super::access::Access;
use super::deployment;
use super::ending::refuse;
use crate::authentication::{SERVING_SIGNER, approval, is_decided, label};
use crate::offloading::item::WorkItem;
use crate::offloading::objects::{BY_REQUESTER, Local};
use control_api::labels;
use control_credentials::{RequestError, ServingRequest};
use control_runtime::{Change, Cluster, Env, Key, Plan, Ref};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// Reason and message of an approval, as upstream's.
const APPROVAL: (&str, &str) = ("LiqoApproval", "This CSR was approved by Liqo");

/// Reason of the Event about a request that is not approved.
const NOT_APPROVED: &str = "CSRNotApproved";

/// Users that ServiceAccounts are.
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Extra values of a user who has authenticated with the token of a pod.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// Label that the Deployment controller gives to the pods of a ReplicaSet. The name of the ReplicaSet ends with its value.
const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Time in which the watch reports a new pod and its address. A pod can send its request before.
const POD_WAIT_MAX: Duration = Duration::from_secs(30);

/// Usages of the certificates, sorted.
const USAGES: [&str; 2] = ["digital signature", "server auth"];

/// A further usage, for RSA keys.
const RSA_USAGE: &str = "key encipherment";

/// A rule that a request breaks.
#[derive(Debug, PartialEq, thiserror::Error)]
enum Violation {
    #[error("spec.signerName is not {SERVING_SIGNER}")]
    Signer,
    #[error("spec.username is not that of the ServiceAccount of a VirtualNode")]
    Username,
    #[error("spec.request is invalid: {0}")]
    Request(#[from] RequestError),
    #[error("the subject is not exactly O=system:nodes, CN=system:node:{0}")]
    Subject(String),
    #[error("Node {0} exists and is not a virtual node: give the VirtualNode another name")]
    Node(String),
    #[error("spec.extra does not name one pod: authenticate with the token of the pod")]
    Claim,
    #[error("the pod that spec.extra names does not exist, or has another UID")]
    PodMissing,
    #[error("the pod that spec.extra names terminates or has ended")]
    PodEnded,
    #[error("the pod that spec.extra names is not of the Deployment of the VirtualNode")]
    PodOwner,
    #[error("the pod that spec.extra names has no address in status.podIP")]
    PodAddressMissing,
    #[error(
        "the only subject alternative name must be the address of the pod, {0}, without further attributes and extensions"
    )]
    AlternativeNames(IpAddr),
    #[error(
        "spec.usages are not exactly `digital signature` and `server auth` (with an RSA key also `key encipherment`)"
    )]
    Usages,
}

/// A request, and the objects by which it is judged.
struct Requested<'a> {
    request: &'a CertificateSigningRequest,
    /// A VirtualNode.
    virtual_node: &'a Key,
    /// The Node of its name.
    node: Option<&'a Node>,
    /// The Deployment of its virtual kubelet.
    deployment: Option<&'a Deployment>,
    /// The pod of the name that the user claims, in its namespace.
    pod: Option<&'a Pod>,
}

impl Requested<'_> {
    /// Checks whether a request may be approved.
    ///
    /// # Errors
    ///
    /// Returns the first rule that it breaks.
    fn check(&self) -> Result<(), Violation> {
        let spec = &self.request.spec;
        if spec.signer_name != SERVING_SIGNER {
            return Err(Violation::Signer);
        }
        let node = self.virtual_node;
        if requester(self.request).as_ref() != Some(node) {
            return Err(Violation::Username);
        }
        let request = ServingRequest::parse(&spec.request.0)?;
        if !request.is_of_node(&node.name) {
            return Err(Violation::Subject(node.name.clone()));
        }
        let is_virtual =
            |it: &Node| label(&it.metadata, labels::NODE_TYPE) == Some(labels::NODE_TYPE_VIRTUAL);
        if self.node.is_some_and(|it| !is_virtual(it)) {
            return Err(Violation::Node(node.name.clone()));
        }
        let address = self.check_pod(node)?;
        if !request.is_at(address) {
            return Err(Violation::AlternativeNames(address));
        }
        if !has_usages(self.request, request.is_rsa()) {
            return Err(Violation::Usages);
        }

        Ok(())
    }

    /// Checks the pod whose token the user has, and returns its address.
    fn check_pod(&self, node: &Key) -> Result<IpAddr, Violation> {
        let (name, uid) = claim(self.request).ok_or(Violation::Claim)?;
        let is_claimed = |pod: &&Pod| {
            pod.metadata.name.as_deref() == Some(name) && pod.metadata.uid.as_deref() == Some(uid)
        };
        let pod = self.pod.filter(is_claimed).ok_or(Violation::PodMissing)?;
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        if pod.metadata.deletion_timestamp.is_some()
            || matches!(phase, Some("Succeeded" | "Failed"))
        {
            return Err(Violation::PodEnded);
        }
        let deployment = self.deployment.ok_or(Violation::PodOwner)?;
        if label(&pod.metadata, labels::VIRTUAL_NODE) != Some(&node.name)
            || !is_of_deployment(pod, deployment)
        {
            return Err(Violation::PodOwner);
        }
        let address = status.and_then(|status| status.pod_ip.as_deref()?.parse().ok());

        address.ok_or(Violation::PodAddressMissing)
    }
}

/// Returns whether the controller of a pod is the ReplicaSet of a Deployment by its name. ReplicaSets are not watched.
fn is_of_deployment(pod: &Pod, deployment: &Deployment) -> bool {
    let (Some(name), Some(hash)) = (
        deployment.metadata.name.as_deref(),
        label(&pod.metadata, POD_TEMPLATE_HASH),
    ) else {
        return false;
    };
    let owners = pod.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));

    controllers.any(|owner| {
        owner.api_version == "apps/v1"
            && owner.kind == "ReplicaSet"
            && owner.name == format!("{name}-{hash}")
    })
}

/// Returns name and UID of the pod whose token the user of a request has.
fn claim(request: &CertificateSigningRequest) -> Option<(&str, &str)> {
    let extra = request.spec.extra.as_ref()?;
    let only = |key: &str| match extra.get(key)?.as_slice() {
        [value] => Some(value.as_str()),
        _ => None,
    };

    Some((only(POD_NAME)?, only(POD_UID)?))
}

fn has_usages(request: &CertificateSigningRequest, is_rsa: bool) -> bool {
    let usages = request.spec.usages.iter().flatten();
    let mut usages: Vec<_> = usages.map(String::as_str).collect();
    if is_rsa && let Some(at) = usages.iter().position(|it| *it == RSA_USAGE) {
        usages.remove(at);
    }
    usages.sort_unstable();

    usages == USAGES
}

/// Returns the key of the VirtualNode whose virtual kubelet has a request sent, if there is a VirtualNode of this key.
fn requester(request: &CertificateSigningRequest) -> Option<Key> {
    let account = request
        .spec
        .username
        .as_deref()?
        .strip_prefix(ACCOUNT_PREFIX)?;
    let (namespace, name) = account.split_once(':')?;
    let is_valid = !namespace.is_empty() && !name.is_empty() && !name.contains(':');

    is_valid.then(|| Key::new(namespace, name))
}

/// Returns the requester of a request that waits for a decision, for an index.
pub(in crate::offloading) fn waiting_requester(request: &CertificateSigningRequest) -> Vec<String> {
    let requester = requester(request).filter(|_| !is_decided(request));
    requester.iter().map(ToString::to_string).collect()
}

/// Returns the work items of the requests that a change concerns, or that wait for a decision about a VirtualNode of `items`.
pub(in crate::offloading) fn items_of(
    local: &Local<'_>,
    change: Option<&Change<'_>>,
    items: &BTreeSet<WorkItem>,
) -> Vec<WorkItem> {
    let of_request = |node: Key, request: &Key| WorkItem::ServingCertificate {
        node,
        request: request.name.clone(),
    };
    let changed = change.filter(|it| it.is::<CertificateSigningRequest>());
    let changed = changed.and_then(|it| Some((requester(it.after()?)?, &it.object.key)));
    let nodes = items.iter().filter_map(|item| match item {
        WorkItem::Status(node) => Some(node),
        WorkItem::Quota(_)
        | WorkItem::VirtualNode(_)
        | WorkItem::KubeletBinding(_)
        | WorkItem::Watches(_)
        | WorkItem::ServingCertificate { .. } => None,
    });
    let waiting = nodes.flat_map(|node| {
        let requests = local.requests.indexed(BY_REQUESTER, &node.to_string());
        requests.map(|(key, _)| of_request(node.clone(), key))
    });

    waiting
        .chain(changed.map(|(node, request)| of_request(node, request)))
        .collect()
}

/// Plans the approval of a request of a virtual kubelet.
pub(in crate::offloading) fn plan(
    local: &Local<'_>,
    (node, name): (&Key, &str),
    env: &Env<'_>,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let key = Key::cluster(name);
    let request = local.requests.get(&key);
    let request = request.filter(|it| !is_decided(it) && requester(it).as_ref() == Some(node));
    let Some(request) = request else {
        return plan;
    };
    // Before the pods are listed, it is not known which of them exist.
    if local.virtual_nodes.get(node).is_none()
        || Access::of(local, &node.namespace) != Access::Listed
    {
        return plan;
    }
    let pod = claim(request)
        .map(|(name, _)| Key::new(&*node.namespace, name))
        .and_then(|key| local.pods.get(&key));
    let requested = Requested {
        request,
        virtual_node: node,
        node: local.nodes.get(&Key::cluster(&*node.name)),
        deployment: deployment::own(local, node),
        pod,
    };
    let Err(violation) = requested.check() else {
        let object = Ref::of::<CertificateSigningRequest>(&Cluster::Local, &key);
        plan.writes.push(approval(object, request, APPROVAL));
        return plan;
    };
    let may_pass = [Violation::PodMissing, Violation::PodAddressMissing].contains(&violation);
    if let Some(rest) = remaining(request, env.now).filter(|_| may_pass) {
        let item = WorkItem::ServingCertificate {
            node: node.clone(),
            request: name.to_owned(),
        };
        plan.requeue.push((rest, item));
        return plan;
    }
    let message = format!("CertificateSigningRequest {name} is not approved: {violation}");
    refuse(&mut plan, node, (NOT_APPROVED, message));

    plan
}

/// Returns how long the pod of a request may still be unknown. The clock of the API server may differ.
fn remaining(request: &CertificateSigningRequest, now: Timestamp) -> Option<Duration> {
    let created = request.metadata.creation_timestamp.as_ref()?.0;
    let elapsed = now.duration_since(created).try_into().unwrap_or_default();

    POD_WAIT_MAX.checked_sub(elapsed).filter(|it| !it.is_zero())
}

#[cfg(test)]
mod tests;
