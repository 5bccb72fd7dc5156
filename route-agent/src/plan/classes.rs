//! Assigns a class of nexthops to each MTU, so that routes with different MTUs share no nexthop.
//!
//! A route has its own MTU. But the kernel caches the result of a route lookup, including the MTU,
//! in the nexthop (`nhc_rth_input` of `struct fib_nh_common`, `net/ipv4/route.c`). If two routes
//! shared a nexthop, the MTU of the route that is used first would apply to both routes. The kernel
//! would then drop packets that exceed the MTU of another cluster's tunnel.
//!
//! Each class has its own nexthop to each gateway replica.

use crate::settings::{CLASS_MAX, Settings};
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet};

/// The assignment of classes to the MTUs of routes.
#[derive(Debug)]
pub(super) struct Classes {
    /// Class number by MTU in bytes. Numbers start at 1, because class 0 is for probes.
    by_mtu: BTreeMap<u32, u8>,
}

impl Classes {
    /// Assigns a class to each MTU in bytes. An MTU keeps the class that it has in `observed`.
    ///
    /// If there are more MTUs than classes, the largest MTUs get no class.
    pub(super) fn assign(mtus: &BTreeSet<u32>, observed: &State, settings: &Settings) -> Self {
        let mtus: BTreeSet<u32> = mtus.iter().copied().take(CLASS_MAX.into()).collect();
        let mut by_mtu: BTreeMap<u32, u8> = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for route in observed.routes.values() {
            if by_mtu.len() == mtus.len() {
                break;
            }
            let members = observed.groups.get(&route.nexthop);
            let class = members
                .and_then(BTreeSet::first)
                .and_then(|hop| settings.class_of(*hop));
            let known = route.mtu_bytes.filter(|mtu| mtus.contains(mtu));
            if let (Some(mtu), Some(class)) = (known, class)
                && !by_mtu.contains_key(&mtu)
                && taken.insert(class)
            {
                by_mtu.insert(mtu, class);
            }
        }
        let mut free = (1..=CLASS_MAX).filter(|class| !taken.contains(class));
        for mtu in mtus {
            if !by_mtu.contains_key(&mtu)
                && let Some(class) = free.next()
            {
                by_mtu.insert(mtu, class);
            }
        }

        Self { by_mtu }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = u8> {
        self.by_mtu.values().copied()
    }

    /// Returns the class for a route with this MTU, and the MTU that the route must have.
    ///
    /// If the MTU has no class, the route gets the next smaller MTU that has a class.
    pub(super) fn of(&self, mtu: u32) -> Option<(u8, u32)> {
        let (mtu, class) = self.by_mtu.range(..=mtu).next_back()?;

        Some((*class, *mtu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Route;
    use std::net::Ipv4Addr;

    #[test]
    fn each_mtu_has_a_class_and_keeps_it() {
        let settings = Settings::default();
        let observed = observed(&settings, &[(1200, 3), (1340, 1), (1280, 3)]);

        let classes = Classes::assign(&BTreeSet::from([1200, 1340, 1400]), &observed, &settings);

        assert_eq!(classes.of(1340), Some((1, 1340)));
        assert_eq!(classes.of(1200), Some((3, 1200)));
        assert_eq!(classes.of(1400), Some((2, 1400)));
    }

    #[test]
    fn mtus_beyond_the_limit_share_the_largest_one_with_a_class() {
        let settings = Settings::default();
        let mtus: BTreeSet<u32> = (0..40).map(|place| 1200 + place).collect();

        let classes = Classes::assign(&mtus, &State::default(), &settings);

        let used: BTreeSet<u8> = classes.all().collect();
        assert_eq!(used.len(), usize::from(CLASS_MAX));
        for mtu in mtus {
            let (_, granted) = classes.of(mtu).unwrap();
            assert!(granted <= mtu);
        }
        let last = 1200 + u32::from(CLASS_MAX) - 1;
        assert_eq!(classes.of(1239).unwrap().1, last);
    }

    /// Returns a state with a route for each pair of MTU and class.
    fn observed(settings: &Settings, routes: &[(u32, u8)]) -> State {
        let mut state = State::default();
        for (place, (mtu, class)) in (0_u8..).zip(routes) {
            let group = 100_000 + u32::from(place);
            let hop = settings.hop_id(7, *class);
            state.groups.insert(group, BTreeSet::from([hop]));
            let route = Route {
                nexthop: group,
                src: Ipv4Addr::LOCALHOST,
                mtu_bytes: Some(*mtu),
            };
            let destination = Ipv4Addr::new(10, 80 + place, 0, 0);
            state.routes.insert(destination.into(), route);
        }
        state
    }
}
