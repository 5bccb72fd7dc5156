//! Checks the spec of a Configuration.

use super::Side;
use crate::network::kind::{Key, Kind};
use crate::network::local::is_terminating;
use crate::network::plan::gateway::NOT_TENANT_NAMESPACE;
use crate::network::plan::{Planner, invalid_cluster_id, label};
use control_api::{Configuration, labels};

/// Longest name of an object.
const NAME_LEN_MAX: usize = 253;

/// Reads and checks the remote CIDRs of a Configuration.
pub(super) fn check(
    planner: &Planner<'_>,
    key: &Key,
    configuration: &Configuration,
) -> Result<[Side; 2], (&'static str, String)> {
    let peer = label(&configuration.metadata, labels::REMOTE_CLUSTER_ID).unwrap_or_default();
    if peer.is_empty() {
        let label = labels::REMOTE_CLUSTER_ID;
        let message = format!("it names no peer: add the label {label}");
        return Err(("NoClusterID", message));
    }
    if !control_fabric::is_cluster_id(peer) {
        return Err(("InvalidClusterID", invalid_cluster_id(peer)));
    }
    if planner.local.cluster().id.as_deref() == Some(peer) {
        let message = format!(
            "`{peer}` is this cluster's own id: peers need different ones, \
             so install one of the two again with another id"
        );
        return Err(("OwnClusterID", message));
    }
    if let Err(misplaced) = planner.local.check_place(Kind::Configuration, key) {
        return Err((NOT_TENANT_NAMESPACE, misplaced.to_string()));
    }
    if let Some(other) = older(planner, key, configuration, peer) {
        let message = format!(
            "Configuration {other} exists already for cluster {peer}: delete one of the two"
        );
        return Err(("Duplicate", message));
    }
    if key.name.len() + "-external-255-255-255-255-32".len() > NAME_LEN_MAX {
        let message =
            "its name is too long for those of its Networks: use the cluster id".to_owned();
        return Err(("NameTooLong", message));
    }

    let remote = configuration.spec.remote.clone().unwrap_or_default().cidr;
    let (cidrs, errors) = control_fabric::remote_cidrs(&remote);
    if let Some(error) = errors.first() {
        return Err(("InvalidCIDR", error.to_string()));
    }
    let side = |cidr_type, cidrs| Side {
        cidr_type,
        cidrs,
        remapped: None,
    };

    Ok([side("pod", cidrs.pod), side("external", cidrs.external)])
}

/// Returns an older Configuration in the peer's tenant namespace.
fn older<'a>(
    planner: &'a Planner<'_>,
    key: &Key,
    configuration: &Configuration,
    peer: &str,
) -> Option<&'a Key> {
    let age = |key: &Key, it: &Configuration| {
        let created = it.metadata.creation_timestamp.clone();
        (created.map(|time| time.0), key.clone())
    };
    let own = age(key, configuration);
    let placed = planner.local.of_peer(peer).into_iter();
    let mut others = placed.filter(|(kind, _)| *kind == Kind::Configuration);
    let older = others.find(|(_, other)| {
        let it = planner.local.configurations.get(other);
        it.is_some_and(|it| !is_terminating(&it.metadata) && age(other, it) < own)
    });

    older.map(|(_, key)| key)
}
