use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn the_lowest_free_address_comes_first() {
    let mut addresses = Addresses::new(net("10.70.0.0/16"), 1);

    assert_eq!(addresses.acquire("a"), Ok(addr("10.70.0.1")));
    assert_eq!(addresses.acquire("b"), Ok(addr("10.70.0.2")));
    assert_eq!(addresses.acquire("a"), Ok(addr("10.70.0.1")));
}

#[test]
fn a_released_address_is_allocated_again() {
    let mut addresses = Addresses::new(net("10.70.0.0/16"), 1);
    for owner in ["a", "b", "c"] {
        addresses.acquire(owner).unwrap();
    }

    assert_eq!(addresses.release(&"b"), Some(addr("10.70.0.2")));

    assert_eq!(addresses.acquire("d"), Ok(addr("10.70.0.2")));
    assert_eq!(addresses.release(&"b"), None);
}

#[test]
fn a_full_network_has_no_address() {
    let network = net("10.70.0.0/30");
    let mut addresses = Addresses::new(network, 1);

    let got = [1, 2, 3, 4].map(|owner| addresses.acquire(owner));

    assert_eq!(got[2], Ok(addr("10.70.0.3")));
    assert_eq!(got[3], Err(AddressError::Exhausted { network }));
}

#[test]
fn an_earlier_address_is_adopted_if_it_is_free_and_inside_the_network() {
    let mut addresses = Addresses::new(net("10.70.0.0/16"), 1);
    let (kept, reserved) = (addr("10.70.3.7"), addr("10.70.0.0"));

    assert_eq!(addresses.adopt("a", kept), Ok(kept));
    assert_eq!(addresses.adopt("a", kept), Ok(kept));
    assert_eq!(
        addresses.adopt("b", kept),
        Err(AddressError::Taken { address: kept })
    );
    assert_eq!(
        addresses.adopt("b", reserved),
        Err(AddressError::Taken { address: reserved })
    );
    assert_eq!(
        addresses.adopt("b", addr("10.71.0.1")),
        Err(AddressError::Outside {
            address: addr("10.71.0.1"),
            network: net("10.70.0.0/16")
        })
    );
    assert_eq!(
        addresses.adopt("a", addr("10.70.0.9")),
        Err(AddressError::Held { held: kept })
    );
}

#[test]
fn more_addresses_may_be_reserved_than_exist() {
    let mut addresses = Addresses::new(net("255.255.255.252/30"), u32::MAX);

    assert!(addresses.acquire("a").is_err());
}

#[test]
fn an_operation_costs_the_same_at_a_hundred_thousand() {
    let mut addresses = Addresses::new(net("10.0.0.0/12"), 1);
    for owner in 0..100_000u32 {
        addresses.acquire(owner).unwrap();
    }
    addresses.tree.visits.set(0);

    addresses.release(&50_000);
    assert_eq!(addresses.acquire(100_000), Ok(addr("10.0.195.81")));

    assert!(addresses.tree.visits.get() < 1_000);
}

proptest! {
    #[test]
    fn exactly_the_first_addresses_are_reserved(count in 0..600u32, prefix_len in 23..=32u8) {
        let network = Ipv4Net::new(addr("10.70.0.0"), prefix_len).unwrap();
        let mut addresses = Addresses::new(network, count);

        let got = addresses.acquire("a").ok();

        let all = Ipv4Net::new(network.addr(), prefix_len).unwrap().subnets(32).unwrap();
        prop_assert_eq!(got, all.map(|net| net.addr()).nth(count as usize));
    }

    #[test]
    fn agrees_with_a_set(steps in prop::collection::vec((0..40u8, any::<bool>()), 1..120)) {
        let mut addresses = Addresses::new(net("10.70.0.0/27"), 3);
        let mut model: BTreeMap<u8, u32> = BTreeMap::new();
        let base = addr("10.70.0.0").to_bits();

        for (owner, release) in steps {
            if release {
                let expected = model.remove(&owner).map(|host| Ipv4Addr::from_bits(base + host));
                prop_assert_eq!(addresses.release(&owner), expected);
                continue;
            }
            let used: BTreeSet<u32> = model.values().copied().collect();
            let free = (3..32).find(|host| !used.contains(host));
            let expected = model.get(&owner).copied().or(free);
            prop_assert_eq!(
                addresses.acquire(owner).ok(),
                expected.map(|host| Ipv4Addr::from_bits(base + host))
            );
            model.extend(expected.map(|host| (owner, host)));
        }
    }
}

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

fn addr(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}
