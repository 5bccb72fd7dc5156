//! A Configuration: what peers are told of this cluster, the Networks of a peer, and how they are seen here.

use super::{Plan, Planner, is_owned_by, label, network, owner};
use crate::cidr;
use crate::condition::Verdict;
use crate::kind::{Key, Kind};
use crate::world::{Subject, is_going};
use crate::write::{Action, Write};
use control_api::configuration::{
    ClusterCidrs, ClusterConfig, NETWORK_CIDRS_CONFIGURED, NETWORK_CIDRS_CONFIGURED_MESSAGE,
};
use control_api::{Configuration, ConfigurationStatus, IP, labels};
use ipnet::Ipv4Net;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

/// Reason of the condition while CIDRs are still to be decided, and its message.
const WAITING: (&str, &str) = ("WaitingForNetworks", "Waiting for all networks to be ready");

/// Most CIDRs of a peer of one kind, as gateways and route agents take.
const CIDRS_MAX: usize = 32;

/// What is appended to the name of a Configuration for the IP of the peer's unknown sources.
const UNKNOWN_SOURCE: &str = "unknown-source";

/// Longest name of an object.
const NAME_LEN_MAX: usize = 253;

/// The CIDRs of one kind.
struct Side {
    /// As label and within names.
    word: &'static str,
    cidrs: Vec<Ipv4Net>,
    /// How they are seen here, once all are.
    seen: Option<Vec<String>>,
}

/// Decides about a Configuration; removes what one that is gone has left.
pub(super) fn plan(planner: &Planner, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let present = planner.world.configurations.get(key);
    let Some(configuration) = present.filter(|it| !is_going(&it.metadata)) else {
        plan.writes = leftovers(planner, key, None);
        return plan;
    };
    plan.writes = leftovers(planner, key, configuration.metadata.uid.as_deref());
    let mut sides = match check(planner, key, configuration) {
        Ok(sides) => sides,
        Err((reason, message)) => {
            plan.warn(Kind::Configuration, key, reason, &message);
            let verdict = verdict(false, reason, message);
            plan.writes
                .extend(status(key, configuration, None, verdict, now));
            return plan;
        }
    };

    if let Some(write) = tell_local(planner, key, configuration) {
        // It makes a new generation, which the status is to be about.
        plan.writes.push(write);
        return plan;
    }
    let mut refusal = None;
    for side in &mut sides {
        plan.extend(networks(planner, key, configuration, side, &mut refusal));
    }
    let is_complete =
        planner.world.cluster.cidrs.is_some() && sides.iter().all(|it| it.seen.is_some());
    let verdict = match refusal {
        _ if is_complete => verdict(
            true,
            NETWORK_CIDRS_CONFIGURED,
            NETWORK_CIDRS_CONFIGURED_MESSAGE.to_owned(),
        ),
        Some(message) => verdict(false, "NetworkRefused", message),
        None => verdict(false, WAITING.0, WAITING.1.to_owned()),
    };
    let note = verdict.message.clone();
    if verdict.is_true {
        plan.praise(Kind::Configuration, key, NETWORK_CIDRS_CONFIGURED, note);
    } else if verdict.reason != WAITING.0 {
        plan.warn(Kind::Configuration, key, verdict.reason, note);
    }
    let unknown_source = unknown_source(planner, key, configuration, &sides);
    plan.writes
        .extend(status(key, configuration, Some(sides), verdict, now));
    plan.writes.extend(unknown_source);

    plan
}

/// Reads what a Configuration asks for.
fn check(
    planner: &Planner,
    key: &Key,
    configuration: &Configuration,
) -> Result<[Side; 2], (&'static str, String)> {
    let peer = label(&configuration.metadata, labels::REMOTE_CLUSTER_ID).unwrap_or_default();
    if peer.is_empty() {
        let label = labels::REMOTE_CLUSTER_ID;
        let message = format!("it does not say whose CIDRs it holds: add the label {label}");
        return Err(("NoClusterID", message));
    }
    if let Err(refusal) = cidr::cluster_id(peer) {
        return Err(("InvalidClusterID", refusal.to_string()));
    }
    if planner.world.cluster.id.as_deref() == Some(peer) {
        let message = format!(
            "`{peer}` is this cluster's own id: peers need different ones, \
             so install one of the two again with another id"
        );
        return Err(("OwnClusterID", message));
    }
    if let Some(other) = elder(planner, key, configuration, peer) {
        let message =
            format!("Configuration {other} is about cluster {peer} already: delete one of the two");
        return Err(("Duplicate", message));
    }
    if key.name.len() + "-external-255-255-255-255-32".len() > NAME_LEN_MAX {
        let message =
            "its name is too long for those of its Networks: use the cluster id".to_owned();
        return Err(("NameTooLong", message));
    }

    let remote = configuration.spec.remote.clone().unwrap_or_default().cidr;
    if remote.pod.is_empty() {
        let message = "spec.remote.cidr.pod is empty: list the pod CIDRs of the peer".to_owned();
        return Err(("InvalidCIDR", message));
    }
    let side = |word, texts: &[String]| {
        let cidrs = read(word, texts).map_err(|message| ("InvalidCIDR", message))?;
        Ok(Side {
            word,
            cidrs,
            seen: None,
        })
    };

    Ok([
        side("pod", &remote.pod)?,
        side("external", &remote.external)?,
    ])
}

/// Reads the CIDRs of a peer of one kind.
fn read(word: &str, texts: &[String]) -> Result<Vec<Ipv4Net>, String> {
    let field = format!("spec.remote.cidr.{word}");
    if texts.len() > CIDRS_MAX {
        return Err(format!(
            "{field}: no more than {CIDRS_MAX} CIDRs are served: join some"
        ));
    }
    let mut cidrs: Vec<Ipv4Net> = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let cidr = cidr::cidr(text).map_err(|refusal| format!("{field}[{number}]: {refusal}"))?;
        let overlaps = |other: &Ipv4Net| other.contains(&cidr) || cidr.contains(other);
        if let Some(first) = cidrs.iter().position(overlaps) {
            return Err(format!(
                "{field}[{number}] overlaps {field}[{first}]: remove one of the two"
            ));
        }
        cidrs.push(cidr);
    }

    Ok(cidrs)
}

/// Returns another Configuration about the same peer that was there first.
fn elder<'a>(
    planner: &'a Planner,
    key: &Key,
    configuration: &Configuration,
    peer: &str,
) -> Option<&'a Key> {
    let age = |key: &Key, it: &Configuration| {
        let created = it.metadata.creation_timestamp.clone();
        (created.map(|time| time.0), key.clone())
    };
    let own = age(key, configuration);
    let subject = Subject::Peer(peer.to_owned());
    let mut linked = planner
        .world
        .linked(&subject)
        .filter(|(kind, _)| *kind == Kind::Configuration);
    let elder = linked.find(|(_, other)| {
        let it = planner.world.configurations.get(other);
        it.is_some_and(|it| !is_going(&it.metadata) && age(other, it) < own)
    });

    elder.map(|(_, key)| key)
}

fn tell_local(planner: &Planner, key: &Key, configuration: &Configuration) -> Option<Write> {
    let cidrs = planner.world.cluster.cidrs.as_ref()?;
    let told = configuration.spec.local.as_ref().map(|local| &local.cidr);
    let patch = json!({"spec": {"local": {"cidr": cidrs}}});

    (told != Some(cidrs)).then(|| Write::new(Kind::Configuration, key, Action::Merge(patch)))
}

/// Makes the Networks of one kind, removes those that are not wanted any more, reads how they are seen.
fn networks(
    planner: &Planner,
    key: &Key,
    configuration: &Configuration,
    side: &mut Side,
    refusal: &mut Option<String>,
) -> Plan {
    let mut plan = Plan::default();
    let names: Vec<_> = side
        .cidrs
        .iter()
        .map(|cidr| network_name(key, side.word, *cidr))
        .collect();
    let uid = configuration.metadata.uid.as_deref();
    let mut is_pending = false;
    for (other, network) in network::of_configuration(planner, key) {
        let is_of_side =
            label(&network.metadata, labels::CONFIGURATION_CIDR_TYPE) == Some(side.word);
        if is_of_side && !names.contains(&other.name) {
            is_pending = true;
            if !network::is_going(network) {
                plan.writes
                    .push(delete(Kind::Network, other, network.metadata.uid.clone()));
            }
        }
    }

    let mut seen = Vec::new();
    for (name, cidr) in names.into_iter().zip(&side.cidrs) {
        let network_key = Key::new(key.namespace.clone(), name);
        let Some(network) = planner.world.networks.get(&network_key) else {
            plan.writes
                .push(create(&network_key, configuration, side.word, *cidr));
            is_pending = true;
            continue;
        };
        let is_right = network.spec.cidr == cidr.to_string() && is_owned_by(&network.metadata, uid);
        if network::is_going(network) || !is_right {
            is_pending = true;
            if !network::is_going(network) {
                plan.writes.push(delete(
                    Kind::Network,
                    &network_key,
                    network.metadata.uid.clone(),
                ));
            }
            continue;
        }
        plan.writes
            .extend(relabel(&network_key, network, configuration, side.word));
        if let Some(error) = planner.allocation.refusal(&network_key) {
            refusal.get_or_insert_with(|| format!("Network {network_key}: {error}"));
        }
        let status = network
            .status
            .as_ref()
            .and_then(|status| status.cidr.clone());
        let held = planner
            .allocation
            .held(&network_key)
            .map(|held| held.to_string());
        seen.extend(status.filter(|status| Some(status) == held.as_ref()));
    }
    let is_complete = !is_pending && seen.len() == side.cidrs.len();
    side.seen = is_complete.then_some(seen);

    plan
}

/// Makes the IP that stands for those of the peer's senders that have no address of their own.
fn unknown_source(
    planner: &Planner,
    key: &Key,
    configuration: &Configuration,
    sides: &[Side; 2],
) -> Option<Write> {
    let [_, external] = sides;
    let first = external.seen.as_ref()?.first()?.parse::<Ipv4Net>().ok()?;
    let address = first.network().to_string();
    let name = format!("{}-{UNKNOWN_SOURCE}", key.name);
    let ip_key = Key::new(key.namespace.clone(), name);
    let uid = configuration.metadata.uid.as_deref();
    let is_own = |ip: &IP| is_owned_by(&ip.metadata, uid) && !is_going(&ip.metadata);
    match planner.world.ips.get(&ip_key) {
        None => {
            let ip = json!({
                "apiVersion": "ipam.liqo.io/v1alpha1",
                "kind": "IP",
                "metadata": {
                    "name": ip_key.name,
                    "namespace": ip_key.namespace,
                    "labels": {
                        labels::REMOTE_CLUSTER_ID: label(&configuration.metadata, labels::REMOTE_CLUSTER_ID),
                        labels::MANAGED: "true",
                    },
                    "ownerReferences": [owner(configuration)],
                },
                "spec": {"ip": address},
            });
            Some(Write::new(Kind::Ip, &ip_key, Action::Create(ip)))
        }
        // The address cannot be changed: once this one is gone, it is made anew.
        Some(ip) if ip.spec.ip != address && is_own(ip) => {
            Some(delete(Kind::Ip, &ip_key, ip.metadata.uid.clone()))
        }
        Some(_) => None,
    }
}

/// Removes what belongs to a Configuration of this name, but not to the one of this uid.
fn leftovers(planner: &Planner, key: &Key, uid: Option<&str>) -> Vec<Write> {
    let subject = Subject::Owner(Kind::Configuration, key.clone());
    let linked = planner.world.linked(&subject);
    linked
        .filter_map(|(kind, child)| {
            let meta = if kind == Kind::Network {
                &planner.world.networks.get(child)?.metadata
            } else if kind == Kind::Ip {
                &planner.world.ips.get(child)?.metadata
            } else {
                return None;
            };
            let is_left = !is_going(meta) && (uid.is_none() || !is_owned_by(meta, uid));
            is_left.then(|| delete(kind, child, meta.uid.clone()))
        })
        .collect()
}

fn status(
    key: &Key,
    configuration: &Configuration,
    sides: Option<[Side; 2]>,
    verdict: Verdict,
    now: Timestamp,
) -> Option<Write> {
    let old = configuration.status.as_ref();
    let mut status: ConfigurationStatus = old.cloned().unwrap_or_default();
    if let Some([pod, external]) = sides {
        let remote = status.remote.get_or_insert_with(ClusterConfig::default);
        let ClusterCidrs {
            pod: pods,
            external: externals,
        } = &mut remote.cidr;
        *pods = pod.seen.unwrap_or_else(|| std::mem::take(pods));
        *externals = external.seen.unwrap_or_else(|| std::mem::take(externals));
        if remote.cidr.is_empty() {
            status.remote = None;
        }
    }
    verdict.set(
        &mut status.conditions,
        configuration.metadata.generation,
        now,
    );

    Write::status(Kind::Configuration, key, old, &status)
}

fn verdict(is_true: bool, reason: &'static str, message: String) -> Verdict {
    Verdict {
        type_: NETWORK_CIDRS_CONFIGURED,
        is_true,
        reason,
        message,
    }
}

fn network_name(key: &Key, word: &str, cidr: Ipv4Net) -> String {
    let cidr = cidr.to_string().replace(['.', '/'], "-");
    format!("{}-{word}-{cidr}", key.name)
}

fn network_labels(configuration: &Configuration, word: &str) -> serde_json::Value {
    json!({
        labels::REMOTE_CLUSTER_ID: label(&configuration.metadata, labels::REMOTE_CLUSTER_ID),
        labels::CONFIGURATION_CIDR_TYPE: word,
        labels::MANAGED: "true",
    })
}

fn create(key: &Key, configuration: &Configuration, word: &str, cidr: Ipv4Net) -> Write {
    let mut owner = owner(configuration);
    owner.controller = Some(true);
    let network = json!({
        "apiVersion": "ipam.liqo.io/v1alpha1",
        "kind": "Network",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": network_labels(configuration, word),
            "ownerReferences": [owner],
        },
        "spec": {"cidr": cidr.to_string()},
    });

    Write::new(Kind::Network, key, Action::Create(network))
}

fn relabel(
    key: &Key,
    network: &control_api::Network,
    configuration: &Configuration,
    word: &str,
) -> Option<Write> {
    let old = serde_json::to_value(&network.metadata.labels).unwrap_or_default();
    let old = if old.is_null() { json!({}) } else { old };
    let patch = crate::write::difference(&old, &network_labels(configuration, word))?;
    let patch = json!({"metadata": {"labels": patch}});

    Some(Write::new(Kind::Network, key, Action::Merge(patch)))
}

fn delete(kind: Kind, key: &Key, uid: Option<String>) -> Write {
    Write::new(kind, key, Action::Delete(uid))
}
