//! Finds the CIDRs of a list that overlap.

use ipnet::Ipv4Net;

/// A CIDR that is compared with others.
#[derive(Clone, Debug)]
pub(crate) struct Claimed<T> {
    /// The CIDR.
    pub(crate) cidr: Ipv4Net,
    /// Whether the CIDR may overlap other shared ones.
    pub(crate) shared: bool,
    /// The owner.
    pub(crate) owner: T,
}

/// Returns the pairs of overlapping CIDRs that are not both shared, the inner CIDR first.
///
/// Each inner CIDR is reported once. The cost is O(n log n).
pub(crate) fn overlaps<T>(claims: &[Claimed<T>]) -> Vec<(&Claimed<T>, &Claimed<T>)> {
    let mut sorted = Vec::from_iter(claims);
    sorted.sort_by_key(|claim| (claim.cidr.network(), claim.cidr.prefix_len()));

    let mut found = Vec::new();
    // The CIDRs that contain the current one, the outermost first, each with the innermost one that is not shared.
    let mut around: Vec<(&Claimed<T>, Option<&Claimed<T>>)> = Vec::new();
    for claim in sorted {
        while around
            .pop_if(|(outer, _)| !outer.cidr.contains(&claim.cidr))
            .is_some()
        {}
        let (outer, exclusive) = match around.last() {
            Some(&(outer, exclusive)) => (Some(outer), exclusive),
            None => (None, None),
        };
        let other = if claim.shared { exclusive } else { outer };
        found.extend(other.map(|other| (claim, other)));
        around.push((claim, if claim.shared { exclusive } else { Some(claim) }));
    }

    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    proptest! {
        #[test]
        fn the_result_equals_that_of_comparing_all_pairs(
            claims in prop::collection::vec((any::<u8>(), 24..=32u8, any::<bool>()), 0..12)
        ) {
            let claims: Vec<_> = claims
                .into_iter()
                .enumerate()
                .map(|(owner, (octet, prefix_len, shared))| {
                    let address = Ipv4Addr::new(10, 0, 0, octet);
                    let cidr = Ipv4Net::new(address, prefix_len).unwrap().trunc();
                    Claimed { cidr, shared, owner }
                })
                .collect();

            let found = overlaps(&claims);

            for (inner, outer) in &found {
                prop_assert!(outer.cidr.contains(&inner.cidr));
                prop_assert!(!(inner.shared && outer.shared));
                prop_assert_ne!(inner.owner, outer.owner);
            }
            let any = claims.iter().enumerate().any(|(index, a)| {
                claims[..index].iter().any(|b| {
                    !(a.shared && b.shared) && crate::cidr::overlaps(a.cidr, b.cidr)
                })
            });
            prop_assert_eq!(!found.is_empty(), any);
        }
    }
}
