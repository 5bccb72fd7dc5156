//! The links from the provider's API server to the ShadowPod. PURE.

use super::events::{About, newest};
use super::facts::{Counterparts, Facts, Provider, Read};
use super::link::Link;
use crate::commands::info::foreign;
use control_api::ShadowPod;
use control_api::labels;
use control_api::offloading::shadow_pod::ShadowPodPhase;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

/// ConfigMap of Kubernetes with the CA of the API server, which projected volumes contain.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Reason of the Event about tokens that are not reflected.
const TOKENS_FAILED: &str = "FailedSATokensReflection";

/// Reason of the Event about a ShadowPod that is not reflected.
const REFLECTION_FAILED: &str = "FailedReflection";

/// Reason of the provider's Event about a pod that is not created.
const CREATION_FAILED: &str = "FailedCreatePod";

/// Returns the link to the API server of the provider.
pub(super) fn provider(facts: &Facts) -> Link {
    let id = facts.provider_id().unwrap_or_default();
    let link = Link::new("provider", format!("Provider {id}"));
    let url = facts.foreign.found().map(foreign::api_server);
    let link = link.detail("apiServer", url.unwrap_or_default());
    match &facts.provider {
        Provider::NotTried => link.not_reached(),
        Provider::NotUsable(reason) => link.unknown(reason),
        Provider::NoCredentials(reason) => link.broken(reason),
        Provider::Unreachable(reason) => link.broken(format!(
            "{reason}; the further links show what this cluster knows"
        )),
        Provider::Open(counterparts) => link.detail("version", &counterparts.version),
    }
}

/// Returns the link of the tokens and the root CA that the provider must have before the ShadowPod is created.
pub(super) fn tokens(facts: &Facts) -> Link {
    let needed = needed(&facts.pod);
    let link = Link::new("tokens", "Tokens").detail("needed", needed.join(", "));
    let failure = newest(&facts.events, About::pod(&facts.pod), &[TOKENS_FAILED]);
    match (has_shadow_pod(facts), failure) {
        // It is created after the tokens, or 30 s later without them.
        (true, failure) => link.detail("lastFailure", failure.unwrap_or_default()),
        (false, Some(failure)) => link.broken(failure),
        (false, None) => link,
    }
}

/// Returns what a pod waits for at most 30 s, before the virtual kubelet creates its ShadowPod.
fn needed(pod: &Pod) -> Vec<String> {
    let spec = pod.spec.as_ref();
    let volumes = spec.iter().flat_map(|it| it.volumes.iter().flatten());
    let projected = volumes.filter_map(|it| it.projected.as_ref());
    let sources: Vec<_> = projected
        .flat_map(|it| it.sources.iter().flatten())
        .collect();
    let account = spec.and_then(|it| it.service_account_name.as_deref());
    let has_token = sources.iter().any(|it| it.service_account_token.is_some());
    let maps = sources.iter().filter_map(|it| it.config_map.as_ref());
    let has_root_ca = maps.into_iter().any(|it| it.name == ROOT_CA);
    let token = format!("token of ServiceAccount {}", account.unwrap_or("default"));

    [
        has_token.then_some(token),
        has_root_ca.then(|| "root CA".to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns whether the provider has the ShadowPod; if it was not read, by the label of the virtual kubelet.
fn has_shadow_pod(facts: &Facts) -> bool {
    match facts.counterparts().map(|it| &it.shadow) {
        Some(Read::Found(_)) => true,
        Some(Read::Absent) => false,
        Some(Read::Failed(_)) | None => {
            let label = facts.pod.labels().get(labels::SHADOW_POD);
            label.is_some_and(|it| it == "true")
        }
    }
}

/// Returns the link to the ShadowPod.
pub(super) fn shadow_pod(facts: &Facts) -> Link {
    let Some(namespace) = facts.remote_namespace() else {
        return Link::new("shadowPod", "ShadowPod").not_reached();
    };
    let link = Link::new(
        "shadowPod",
        format!("ShadowPod {namespace}/{}", facts.name()),
    );
    let refused = newest(&facts.events, About::pod(&facts.pod), &[REFLECTION_FAILED]);
    let Some(counterparts) = facts.counterparts() else {
        // The virtual kubelet adds the label when the ShadowPod exists.
        return match (has_shadow_pod(facts), refused) {
            (true, _) => link
                .detail("created", "according to the pod's label")
                .unknown("it was not read"),
            (false, Some(refused)) => link.broken(refused),
            (false, None) => link.unknown("it was not read"),
        };
    };
    let shadow = match &counterparts.shadow {
        Read::Found(shadow) => shadow,
        Read::Failed(reason) => return link.unknown(reason),
        Read::Absent if facts.has_ended() => return link.detail("state", "deleted after its end"),
        Read::Absent => {
            let reason = "it does not exist: check the virtual kubelet, whose pods are in the namespace of the VirtualNode, and wait 30 s for tokens";
            return link.broken(refused.as_deref().unwrap_or(reason));
        }
    };
    let phase = shadow.status.as_ref().map(|it| it.phase);
    let creator = shadow.labels().get(labels::CREATOR_USER);
    let link = link
        .detail(
            "phase",
            phase.map_or_else(String::new, |it| format!("{it:?}")),
        )
        .detail("creator", creator.map_or("", String::as_str));
    if !is_own(shadow, facts) {
        return link.broken(
            "a ShadowPod of this name exists at the provider and is not of this pod: delete it there, or give the pod another name",
        );
    }
    link.broken_if(refusal(counterparts, shadow, facts))
}

/// Returns why the provider has not created the pod of a ShadowPod, by its Event.
fn refusal(counterparts: &Counterparts, shadow: &ShadowPod, facts: &Facts) -> Option<String> {
    let phase = shadow.status.as_ref().map(|it| it.phase);
    let is_over = matches!(
        phase,
        Some(ShadowPodPhase::Succeeded | ShadowPodPhase::Failed)
    );
    if is_over || counterparts.pod != Read::Absent || facts.has_ended() {
        return None;
    }
    let about = About {
        kind: "ShadowPod",
        uid: shadow.metadata.uid.as_deref(),
    };
    let events = counterparts.events.found()?;

    newest(events, about, &[CREATION_FAILED])
}

/// Returns whether a ShadowPod is of a pod of this cluster and of the same virtual node.
fn is_own(shadow: &ShadowPod, facts: &Facts) -> bool {
    let is = |key: &str, value: &str| shadow.labels().get(key).is_some_and(|it| it == value);

    is(labels::ORIGIN, &facts.cluster_id)
        && is(labels::NODE_NAME, facts.node_name().unwrap_or_default())
}
