//! The objects from which the chain of a pod is derived. PURE.

use control_api::offloading::namespace_map::MappingPhase;
use control_api::{NamespaceMap, NamespaceOffloading, ShadowPod, VirtualNode};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::DynamicObject;

/// The result of reading an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Read<T> {
    /// The object.
    Found(T),
    /// There is none, or no object refers to it.
    Absent,
    /// The API server has not returned it, for this reason.
    Failed(String),
}

impl<T> Read<T> {
    /// Returns the object, if it was read.
    pub(super) fn found(&self) -> Option<&T> {
        match self {
            Self::Found(object) => Some(object),
            Self::Absent | Self::Failed(_) => None,
        }
    }
}

/// Objects of a pod.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// Cluster ID of the local cluster.
    pub(super) cluster_id: String,
    pub(super) pod: Pod,
    /// Events about the pod.
    pub(super) events: Vec<Event>,
    pub(super) offloading: Read<NamespaceOffloading>,
    /// The Node that the pod is bound to.
    pub(super) node: Read<Node>,
    /// The VirtualNode of that Node.
    pub(super) virtual_node: Read<VirtualNode>,
    /// The ForeignCluster of the provider.
    pub(super) foreign: Read<DynamicObject>,
    /// The NamespaceMap of the provider.
    pub(super) map: Read<NamespaceMap>,
    pub(super) provider: Provider,
}

/// The connection to the provider with the credentials of the VirtualNode.
#[derive(Clone, Debug)]
pub(super) enum Provider {
    /// It was not tried, because the pod is on no virtual node.
    NotTried,
    /// The credentials may not be read, or not be used by this program.
    NotUsable(String),
    /// There are no valid credentials.
    NoCredentials(String),
    /// The API server does not respond, or refuses the credentials.
    Unreachable(String),
    /// It responds.
    Open(Box<Counterparts>),
}

/// Objects of a pod at the provider. All texts in them are the provider's.
#[derive(Clone, Debug)]
pub(super) struct Counterparts {
    /// Version of the API server.
    pub(super) version: String,
    pub(super) shadow: Read<ShadowPod>,
    pub(super) pod: Read<Pod>,
    /// Events about both.
    pub(super) events: Read<Vec<Event>>,
}

impl Facts {
    /// Returns the namespace of the pod.
    pub(super) fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the name of the pod and of its counterparts.
    pub(super) fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the name of the Node that the pod is bound to.
    pub(super) fn node_name(&self) -> Option<&str> {
        self.pod.spec.as_ref()?.node_name.as_deref()
    }

    /// Returns whether the containers of the pod have ended, after which its counterparts may be deleted.
    pub(super) fn has_ended(&self) -> bool {
        let status = self.pod.status.as_ref();
        let phase = status.and_then(|it| it.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }

    /// Returns the cluster ID of the provider.
    pub(super) fn provider_id(&self) -> Option<&str> {
        self.virtual_node.found()?.spec.cluster_id.as_deref()
    }

    /// Returns the objects at the provider, if it has responded.
    pub(super) fn counterparts(&self) -> Option<&Counterparts> {
        match &self.provider {
            Provider::Open(counterparts) => Some(counterparts),
            Provider::NotTried
            | Provider::NotUsable(_)
            | Provider::NoCredentials(_)
            | Provider::Unreachable(_) => None,
        }
    }

    /// Returns the provider's name of the pod's namespace, if the provider has created it.
    pub(super) fn remote_namespace(&self) -> Option<&str> {
        let map = self.map.found()?;
        mapped(map, self.namespace()).ok()
    }
}

/// Why a namespace has no counterpart at the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unmapped {
    /// This cluster does not request one.
    NotRequested,
    /// The provider has not replied to the request.
    NoReply,
    /// The provider has not created it, or deletes it.
    Phase(Option<MappingPhase>),
    /// The provider reports another name than the requested one.
    OtherName { requested: String, reported: String },
}

/// Returns the provider's name of a namespace, by the rule of the virtual kubelet.
///
/// # Errors
///
/// Returns why the provider has no such namespace.
pub(super) fn mapped<'a>(map: &'a NamespaceMap, namespace: &str) -> Result<&'a str, Unmapped> {
    let requested = map.spec.desired_mapping.get(namespace);
    let requested = requested.ok_or(Unmapped::NotRequested)?;
    let current = map.status.as_ref();
    let current = current
        .and_then(|it| it.current_mapping.get(namespace))
        .ok_or(Unmapped::NoReply)?;
    if current.phase != Some(MappingPhase::Accepted) {
        return Err(Unmapped::Phase(current.phase));
    }
    let reported = current.remote_namespace.as_deref().unwrap_or_default();
    if reported != requested {
        return Err(Unmapped::OtherName {
            requested: requested.clone(),
            reported: reported.to_owned(),
        });
    }
    Ok(requested)
}
