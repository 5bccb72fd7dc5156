//! A Configuration: the CIDRs that peers receive, the Networks of a peer, and their remapped CIDRs.

use super::gateway::NOT_TENANT_NAMESPACE;
use super::{Plan, Planner};
use crate::network::condition::Verdict;
use crate::network::kind::{Key, Kind};
use crate::network::local::is_terminating;
use crate::network::write::{Action, Write};
use check::check;
use control_api::networking::configuration::{
    ClusterCidrs, ClusterConfig, NETWORK_CIDRS_CONFIGURED, NETWORK_CIDRS_CONFIGURED_MESSAGE,
    WAITING_FOR_NETWORKS,
};
use control_api::{Configuration, ConfigurationStatus};
use ipnet::Ipv4Net;
use k8s_openapi::jiff::Timestamp;
use networks::{leftovers, networks};
use serde_json::json;
use unknown_source::unknown_source;

mod check;
mod networks;
mod unknown_source;

/// Reason and message of the condition until all CIDRs are allocated.
const WAITING: (&str, &str) = (WAITING_FOR_NETWORKS, "Waiting for all networks to be ready");

/// The CIDRs of one kind.
struct Side {
    /// `pod` or `external`, for labels and names.
    cidr_type: &'static str,
    cidrs: Vec<Ipv4Net>,
    /// The remapped CIDRs; `None` until all are allocated.
    remapped: Option<Vec<String>>,
}

/// Plans a Configuration; deletes the objects of a Configuration that was deleted.
pub(super) fn plan(planner: &Planner<'_>, key: &Key, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let present = planner.local.configurations.get(key);
    let Some(configuration) = present.filter(|it| !is_terminating(&it.metadata)) else {
        plan.writes = leftovers(planner, key, None);
        return plan;
    };
    plan.writes = leftovers(planner, key, configuration.metadata.uid.as_deref());
    let mut sides = match check(planner, key, configuration) {
        Ok(sides) => sides,
        Err((reason, message)) => {
            if reason == NOT_TENANT_NAMESPACE {
                // Such a Configuration must not occupy CIDRs.
                plan.writes = leftovers(planner, key, None);
            }
            plan.warn(Kind::Configuration, key, reason, &message);
            let verdict = verdict(false, reason, message);
            plan.writes
                .extend(status(key, configuration, None, verdict, now));
            return plan;
        }
    };

    if let Some(write) = publish_local(planner, key, configuration) {
        // The write creates a new generation, for which the status is planned again.
        plan.writes.push(write);
        return plan;
    }
    let mut refusal = None;
    for side in &mut sides {
        plan.extend(networks(planner, key, configuration, side, &mut refusal));
    }
    let is_complete =
        planner.local.cluster().cidrs.is_some() && sides.iter().all(|it| it.remapped.is_some());
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
        plan.event_normal(Kind::Configuration, key, NETWORK_CIDRS_CONFIGURED, note);
    } else if verdict.reason != WAITING.0 {
        plan.warn(Kind::Configuration, key, verdict.reason, note);
    }
    announce(&mut plan, key, configuration, &sides);
    let unknown_source = unknown_source(planner, key, configuration, &sides);
    plan.writes
        .extend(status(key, configuration, Some(sides), verdict, now));
    plan.writes.extend(unknown_source);

    plan
}

fn publish_local(planner: &Planner<'_>, key: &Key, configuration: &Configuration) -> Option<Write> {
    let cidrs = planner.local.cluster().cidrs.as_ref()?;
    let published = configuration.spec.local.as_ref().map(|local| &local.cidr);
    let patch = json!({"spec": {"local": {"cidr": cidrs}}});

    (published != Some(cidrs)).then(|| Write::new(Kind::Configuration, key, Action::Merge(patch)))
}

/// Adds an Event with the remapped CIDRs of a peer if they have changed.
fn announce(plan: &mut Plan, key: &Key, configuration: &Configuration, sides: &[Side; 2]) {
    let status = configuration.status.as_ref();
    let old = status.and_then(|status| status.remote.as_ref());
    let old = old.map(|remote| remote.cidr.clone()).unwrap_or_default();
    for (side, old) in sides.iter().zip([old.pod, old.external]) {
        let Some(remapped) = side.remapped.as_ref().filter(|remapped| **remapped != old) else {
            continue;
        };
        let pairs = side.cidrs.iter().zip(remapped);
        let pairs: Vec<_> = pairs
            .map(|(cidr, remapped)| format!("{cidr} to {remapped}"))
            .collect();
        let note = format!(
            "the peer's {} CIDRs are remapped: {}",
            side.cidr_type,
            pairs.join(", ")
        );
        plan.announce(Kind::Configuration, key, false, "Remapped", note);
    }
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
        *pods = pod.remapped.unwrap_or_else(|| std::mem::take(pods));
        *externals = external
            .remapped
            .unwrap_or_else(|| std::mem::take(externals));
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
