//! Tests of the capabilities, the seccomp filter, the AppArmor profile and the mounts of running
//! gateways.

use crate::fixture::{Peering, Suite, parallel};
use crate::scale::usage::{Part, Process, processes};
use anyhow::{Context as _, Result, ensure};
use std::fs;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_running_gateway_is_confined_and_keeps_only_net_admin
    );
}

/// The mask of `CAP_NET_ADMIN`, which is bit 12 of a capability set (linux/capability.h).
const NET_ADMIN: u64 = 1 << 12;

/// The file that contains `Y` if the kernel has AppArmor enabled.
const APPARMOR: &str = "/sys/module/apparmor/parameters/enabled";

async fn a_running_gateway_is_confined_and_keeps_only_net_admin(
    peering: &'static Peering,
) -> Result<()> {
    for cluster in [&peering.rome, &peering.milan] {
        let mut gateways = processes(cluster).await?;
        gateways.retain(|process| process.part == Part::Gateway);
        ensure!(!gateways.is_empty(), "{}: no gateway", cluster.name());

        for gateway in gateways {
            is_confined(&gateway).with_context(|| gateway.pod.clone())?;
        }
    }

    Ok(())
}

fn is_confined(gateway: &Process) -> Result<()> {
    let status = gateway.read("status")?;
    for (field, value) in [
        ("CapPrm:", format!("{NET_ADMIN:016x}")),
        ("CapEff:", format!("{NET_ADMIN:016x}")),
        ("NoNewPrivs:", "1".to_owned()),
        // Mode 2 is a filter. The pod's seccomp profile is RuntimeDefault.
        ("Seccomp:", "2".to_owned()),
    ] {
        let found = status.lines().find_map(|line| line.strip_prefix(field));
        ensure!(found.map(str::trim) == Some(&value), "{field} {found:?}");
    }
    if fs::read_to_string(APPARMOR).is_ok_and(|enabled| enabled.trim() == "Y") {
        let profile = gateway.read("attr/current")?;
        ensure!(profile.contains("(enforce)"), "AppArmor: {profile}");
    }

    // In mountinfo, " - " separates the fields of a mount from its type and source (`man 5 proc`).
    let mounts = gateway.read("mountinfo")?;
    for kind in [" - bpf ", " - nsfs "] {
        ensure!(
            !mounts.contains(kind),
            "the gateway mounted{kind}:\n{mounts}"
        );
    }

    Ok(())
}
