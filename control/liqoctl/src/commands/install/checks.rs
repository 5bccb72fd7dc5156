//! Checks the cluster before the installation writes. Each failure has a cause and a remedy.

mod rights;

pub(crate) use rights::missing as missing_rights;

use super::cni;
use super::detect::Observed;
use super::parameters::{Parameters, list};
use crate::progress;
use anyhow::{Result, bail};

/// The oldest kernel with all features that gateway and route agents need.
const KERNEL_MIN: (u32, u32) = (5, 10);
/// The oldest kernel with tcx, by which several eBPF programs share a device in order.
const KERNEL_TCX: (u32, u32) = (6, 6);

/// Input of the checks.
pub(crate) struct Facts<'a> {
    /// The version of Kubernetes.
    pub(crate) kubernetes: &'a str,
    /// Rights that are needed and missing.
    pub(crate) missing_rights: &'a [String],
    /// Detected properties of the cluster.
    pub(crate) observed: &'a Observed,
    /// Parameters of the installation.
    pub(crate) parameters: &'a Parameters,
    /// Whether an old kernel is a failure.
    pub(crate) kernel_is_checked: bool,
    /// The installed version.
    pub(crate) installed_version: Option<&'a str>,
    /// The requested version.
    pub(crate) version: Option<&'a str>,
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The check passed.
    Pass(String),
    /// The check passed with a warning.
    Note(String),
    /// The installation would fail. The text has cause and remedy.
    Fail(String),
}

/// Name and result of a check.
pub(crate) type Check = (&'static str, Outcome);

/// Runs all checks. PURE.
pub(crate) fn run(facts: &Facts<'_>) -> Vec<Check> {
    vec![
        (
            "API server",
            Outcome::Pass(format!("Kubernetes {}", facts.kubernetes)),
        ),
        ("rights", rights_outcome(facts.missing_rights)),
        ("kernel", kernel(facts)),
        ("network plugin", plugin(facts.observed)),
        ("pod CIDR", pod_cidr(facts.observed, facts.parameters)),
        ("overlap", overlap(facts.observed, facts.parameters)),
        ("version", version(facts.installed_version, facts.version)),
    ]
}

/// Prints the results, except failures.
///
/// # Errors
///
/// Returns an error with all failures.
pub(crate) fn report(checks: &[Check], is_verbose: bool) -> Result<()> {
    let mut failures = Vec::new();
    for (name, outcome) in checks {
        match outcome {
            Outcome::Pass(text) if is_verbose => {
                progress::info(format_args!("Check {name}: {text}"))
            }
            Outcome::Pass(_) => {}
            Outcome::Note(text) => progress::warn(format_args!("Check {name}: {text}")),
            Outcome::Fail(text) => failures.push(format!("check {name}: {text}")),
        }
    }
    if !failures.is_empty() {
        bail!(
            "nothing was installed, because these checks failed (--skip-validation skips them): {}",
            failures.join("; ")
        );
    }
    Ok(())
}

fn rights_outcome(missing: &[String]) -> Outcome {
    if missing.is_empty() {
        return Outcome::Pass("sufficient".to_owned());
    }
    Outcome::Fail(format!(
        "the kubeconfig's user has no right to {}: use a user with the role cluster-admin",
        missing.join(", ")
    ))
}

fn kernel(facts: &Facts<'_>) -> Outcome {
    let nodes = &facts.observed.nodes;
    let older = |than: (u32, u32)| -> Vec<String> {
        nodes
            .iter()
            .filter(|node| release(&node.kernel).is_some_and(|kernel| kernel < than))
            .map(|node| format!("{} has {}", node.name, node.kernel))
            .collect()
    };
    let too_old = older(KERNEL_MIN);
    if !too_old.is_empty() {
        let text = format!(
            "{}; kernel {}.{} or newer is required: upgrade these nodes (--disable-kernel-version-check skips this check)",
            too_old.join(", "),
            KERNEL_MIN.0,
            KERNEL_MIN.1
        );
        return if facts.kernel_is_checked {
            Outcome::Fail(text)
        } else {
            Outcome::Note(text)
        };
    }
    let without_tcx = older(KERNEL_TCX);
    if without_tcx.is_empty() {
        Outcome::Pass("new enough on all nodes".to_owned())
    } else {
        Outcome::Pass(format!(
            "new enough; before {}.{} eBPF programs are attached by tc instead of tcx ({})",
            KERNEL_TCX.0,
            KERNEL_TCX.1,
            without_tcx.join(", ")
        ))
    }
}

/// Returns major and minor version of a kernel such as `6.1.0-28-amd64`.
fn release(kernel: &str) -> Option<(u32, u32)> {
    let mut parts = kernel.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn plugin(observed: &Observed) -> Outcome {
    match cni::check(&observed.plugin) {
        Ok(text) => Outcome::Pass(text),
        Err(text) => Outcome::Fail(text),
    }
}

/// Checks that the nodes' pod CIDRs are within the pod CIDRs of the parameters. Skipped if the network
/// plugin has its own address pools.
fn pod_cidr(observed: &Observed, parameters: &Parameters) -> Outcome {
    let pod_cidrs = list(&parameters.pod_cidrs);
    if observed.plugin_cidrs.is_empty() {
        for node in &observed.nodes {
            for cidr in &node.pod_cidrs {
                if !parameters.pod_cidrs.iter().any(|pods| pods.contains(cidr)) {
                    return Outcome::Fail(format!(
                        "node {} has pods in {cidr}, which is not within {pod_cidrs}: correct --pod-cidr",
                        node.name
                    ));
                }
            }
        }
    }
    Outcome::Pass(pod_cidrs)
}

fn overlap(observed: &Observed, parameters: &Parameters) -> Outcome {
    for pods in &parameters.pod_cidrs {
        if let Some(services) = parameters.service_cidr
            && (pods.contains(&services) || services.contains(pods))
        {
            return Outcome::Fail(format!(
                "pod CIDR {pods} and service CIDR {services} overlap: correct --pod-cidr or --service-cidr"
            ));
        }
        if let Some(reserved) = parameters
            .reserved
            .iter()
            .find(|reserved| pods.contains(*reserved) || reserved.contains(pods))
        {
            return Outcome::Fail(format!(
                "pod CIDR {pods} and reserved subnet {reserved} overlap: correct --reserved-subnets"
            ));
        }
        for node in &observed.nodes {
            if let Some(address) = node
                .addresses
                .iter()
                .find(|address| pods.contains(*address))
            {
                return Outcome::Note(format!(
                    "address {address} of node {} overlaps pod CIDR {pods}; peers cannot reach that node",
                    node.name
                ));
            }
        }
    }
    Outcome::Pass("none".to_owned())
}

fn version(installed: Option<&str>, requested: Option<&str>) -> Outcome {
    let minor = |version: &str| release(version.trim_start_matches('v'));
    match (installed, requested) {
        (None, _) => Outcome::Pass("a new installation".to_owned()),
        (Some(installed), Some(requested)) if minor(installed) > minor(requested) => {
            Outcome::Note(format!(
                "{requested} is older than the installed {installed}: fields of the newer version may be lost"
            ))
        }
        (Some(installed), Some(requested)) if minor(installed) != minor(requested) => {
            Outcome::Note(format!(
                "{installed} is upgraded to {requested}: also upgrade the peers, which should have the same minor version"
            ))
        }
        (Some(installed), _) => Outcome::Pass(format!("an upgrade of {installed}")),
    }
}

#[cfg(test)]
mod tests;
