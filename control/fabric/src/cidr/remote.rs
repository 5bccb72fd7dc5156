//! The CIDRs of a peer in its Configuration.

use super::overlap::{Claimed, overlaps};
use super::{CidrError, cidr};
use control_api::networking::configuration::ClusterCidrs;
use ipnet::Ipv4Net;

/// Maximum number of CIDRs of one peer and one kind, so that the CIDRs of all peers fit into the kernel's tables.
pub const CIDRS_MAX: usize = 32;

/// The CIDRs of a peer that can be remapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteCidrs {
    /// CIDRs of pods.
    pub pod: Vec<Ipv4Net>,
    /// CIDRs of other addresses, such as those of IP objects.
    pub external: Vec<Ipv4Net>,
}

/// Reason why a field of `spec.remote.cidr` is refused, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteCidrError {
    /// There is no pod CIDR.
    #[error("{POD} is empty: list the pod CIDRs of the peer")]
    NoPodCidr,
    /// A list is too long.
    #[error("{field}: no more than {CIDRS_MAX} CIDRs are served: join some")]
    TooMany {
        /// Path of the list in the Configuration.
        field: String,
    },
    /// A text is refused.
    #[error("{field}: {error}")]
    Cidr {
        /// The element of the list.
        field: String,
        /// Reason of the refusal.
        error: CidrError,
    },
    /// Two CIDRs overlap, so an address of the peer would have two remapped ones.
    #[error("{field} overlaps {other_field}: remove one of the two")]
    Overlap {
        /// The later element of the lists.
        field: String,
        /// Its CIDR.
        cidr: Ipv4Net,
        /// The element that comes first.
        other_field: String,
        /// The other CIDR.
        other: Ipv4Net,
    },
}

/// Path of the pod CIDRs.
const POD: &str = "spec.remote.cidr.pod";
/// Path of the external CIDRs.
const EXTERNAL: &str = "spec.remote.cidr.external";

/// Reads `spec.remote.cidr` of a Configuration. Returns the valid CIDRs, including those that overlap, and all
/// errors.
pub fn remote_cidrs(cidrs: &ClusterCidrs) -> (RemoteCidrs, Vec<RemoteCidrError>) {
    let mut errors = Vec::new();
    if cidrs.pod.is_empty() {
        errors.push(RemoteCidrError::NoPodCidr);
    }
    let pod = read(POD, &cidrs.pod, &mut errors);
    let external = read(EXTERNAL, &cidrs.external, &mut errors);
    let claims: Vec<_> = pod.iter().chain(&external).enumerate().collect();
    let claims: Vec<_> = claims
        .into_iter()
        .map(|(position, (number, list, cidr))| Claimed {
            cidr: *cidr,
            shared: false,
            owner: (position, format!("{list}[{number}]")),
        })
        .collect();
    for (inner, outer) in overlaps(&claims) {
        let (last, first) = if inner.owner.0 > outer.owner.0 {
            (inner, outer)
        } else {
            (outer, inner)
        };
        errors.push(RemoteCidrError::Overlap {
            field: last.owner.1.clone(),
            cidr: last.cidr,
            other_field: first.owner.1.clone(),
            other: first.cidr,
        });
    }
    let cidrs = |list: Vec<(usize, &str, Ipv4Net)>| list.into_iter().map(|(.., it)| it).collect();
    let remote = RemoteCidrs {
        pod: cidrs(pod),
        external: cidrs(external),
    };

    (remote, errors)
}

/// Reads a list; returns the position of each CIDR in it.
fn read<'a>(
    list: &'a str,
    texts: &[String],
    errors: &mut Vec<RemoteCidrError>,
) -> Vec<(usize, &'a str, Ipv4Net)> {
    if texts.len() > CIDRS_MAX {
        let field = list.to_owned();
        errors.push(RemoteCidrError::TooMany { field });
    }
    let read = texts.iter().enumerate().filter_map(|(number, text)| {
        let read = cidr(text).map_err(|error| {
            let field = format!("{list}[{number}]");
            errors.push(RemoteCidrError::Cidr { field, error });
        });
        Some((number, list, read.ok()?))
    });

    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(pod: &[&str], external: &[&str]) -> Vec<String> {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let cidrs = ClusterCidrs {
            pod: texts(pod),
            external: texts(external),
        };
        let (_, errors) = remote_cidrs(&cidrs);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_pod_cidr_overlaps_no_other_pod_or_external_cidr() {
        assert_eq!(errors(&["10.0.0.0/16"], &["10.1.0.0/16"]), [""; 0]);
        assert_eq!(
            errors(&["10.0.0.0/16", "10.0.0.0/17"], &[]),
            ["spec.remote.cidr.pod[1] overlaps spec.remote.cidr.pod[0]: remove one of the two"]
        );
        assert_eq!(
            errors(&["10.0.0.0/24"], &["10.0.0.0/16"]),
            [
                "spec.remote.cidr.external[0] overlaps spec.remote.cidr.pod[0]: remove one of the two"
            ]
        );
    }

    #[test]
    fn all_errors_are_reported() {
        let many = vec!["10.0.0.1/16"; CIDRS_MAX + 1];

        let errors = errors(&[], &many);

        assert_eq!(errors.len(), CIDRS_MAX + 3);
        assert!(errors[0].contains("cidr.pod is empty"), "{errors:?}");
        assert!(errors[1].contains("no more than 32"), "{errors:?}");
        assert!(
            errors[2].starts_with("spec.remote.cidr.external[0]: "),
            "{errors:?}"
        );
    }
}
