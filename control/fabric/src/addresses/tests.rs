use super::*;
use proptest::prelude::*;

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

fn key(name: &str) -> String {
    name.to_owned()
}

fn allocation() -> Allocation<String, &'static str> {
    Allocation::new(&[net("10.0.0.0/8")], Conflicts::Report).unwrap()
}

fn request(name: &str, old: Option<&str>) -> Request<String> {
    Request {
        key: key(name),
        claim: Claim::Remappable(net("10.1.0.0/16")),
        old: old.map(net),
        priority: Priority::Trusted,
    }
}

#[test]
fn a_network_keeps_its_old_cidr_unless_a_fixed_one_overlaps_it() {
    let mut allocation = allocation();
    let claim = Claim::Remappable(net("10.1.0.0/16"));
    let fixed = Claim::Exclusive(net("10.9.0.0/16"));

    let kept = allocation.network(&key("a"), fixed, None);
    let lost = allocation.network(&key("b"), claim, Some(net("10.9.0.0/16")));
    let freed = allocation.release_network(&key("a"));
    let found = allocation.network(&key("b"), claim, Some(net("10.9.0.0/16")));

    assert_eq!(kept, Ok(net("10.9.0.0/16")));
    assert!(lost.is_err());
    assert_eq!(freed, [key("b")], "it is retried");
    assert_eq!(found, Ok(net("10.9.0.0/16")));
    assert_eq!(allocation.counts(), (1, 0));
}

#[test]
fn the_second_of_two_networks_with_one_cidr_gets_another() {
    let mut allocation = allocation();
    let claim = Claim::Remappable(net("10.1.0.0/16"));

    let first = allocation.network(&key("a"), claim, Some(net("10.9.0.0/16")));
    let second = allocation.network(&key("b"), claim, Some(net("10.9.0.0/16")));

    assert_eq!(first, Ok(net("10.9.0.0/16")));
    assert_eq!(second, Ok(net("10.1.0.0/16")));
}

#[test]
fn an_underlay_address_is_reserved_until_all_its_sources_are_removed() {
    let mut allocation = allocation();
    let address: Ipv4Addr = "10.1.2.3".parse().unwrap();
    let claim = Claim::Remappable(net("10.1.0.0/16"));
    let sources = ["a", "b"];

    for source in &sources {
        assert!(
            allocation
                .set_underlay(*source, [address].into())
                .is_empty()
        );
    }
    let elsewhere = allocation.network(&key("x"), claim, None);
    allocation.set_underlay(sources[0], BTreeSet::new());
    let still = allocation.network(&key("y"), claim, None);
    allocation.set_underlay(sources[1], BTreeSet::new());
    let there = allocation.network(&key("z"), claim, None);
    let covered = allocation.set_underlay(sources[0], [address].into());

    assert_ne!(elsewhere, Ok(net("10.1.0.0/16")));
    assert_ne!(still, Ok(net("10.1.0.0/16")));
    assert_eq!(there, Ok(net("10.1.0.0/16")));
    assert_eq!(covered, [address], "too late");
}

#[test]
fn an_ip_waits_for_an_exhausted_pool_and_gets_a_released_address() {
    let mut allocation = allocation();
    let network = key("small");
    allocation.pool(&network, net("10.1.0.0/31"), 1, Vec::new);

    let first = allocation.address(&key("a"), &network, None).unwrap();
    let none = allocation.address(&key("b"), &network, None);
    let waiting = allocation.release_address(&key("a"));
    let second = allocation.address(&key("b"), &network, None).unwrap();

    assert!(matches!(none, Err(Some(AddressError::Exhausted { .. }))));
    assert_eq!(waiting, [key("b")]);
    assert_eq!(first, second);
}

#[test]
fn the_replacement_of_a_cidr_that_was_allocated_twice_is_in_no_status() {
    let mut allocation = allocation();

    let requests = vec![
        request("a", Some("10.9.0.0/16")),
        request("b", Some("10.9.0.0/16")),
        request("c", Some("10.1.0.0/16")),
    ];
    allocation.decide(requests, []);

    assert_eq!(allocation.held(&key("a")), Some(net("10.9.0.0/16")));
    assert_eq!(allocation.held(&key("c")), Some(net("10.1.0.0/16")));
    assert_eq!(allocation.held(&key("b")), Some(net("10.0.0.0/16")));
}

#[test]
fn a_status_that_contains_the_underlay_is_kept_in_a_cluster_and_replaced_in_a_file() {
    for (conflicts, expected) in [
        (Conflicts::Report, "10.9.0.0/16"),
        (Conflicts::Replace, "10.1.0.0/16"),
    ] {
        let mut allocation = Allocation::new(&[net("10.0.0.0/8")], conflicts).unwrap();
        let node = ("node", BTreeSet::from([Ipv4Addr::new(10, 9, 0, 7)]));

        allocation.decide(vec![request("a", Some("10.9.0.0/16"))], [node]);

        assert_eq!(allocation.held(&key("a")), Some(net(expected)));
    }
}

proptest! {
    /// After random claims, adoptions and releases, exclusive CIDRs do not overlap and addresses are unique.
    #[test]
    fn allocations_are_unique(steps in prop::collection::vec((0..4_u8, 0..12_u8, any::<u32>(), 20..30_u8), 1..80)) {
        let mut allocation = allocation();
        let mut given = BTreeMap::new();
        let network = key("pool");
        allocation.pool(&network, net("10.255.0.0/28"), 2, Vec::new);

        for (step, who, bits, prefix) in steps {
            let owner = key(&who.to_string());
            let old = Ipv4Net::new(Ipv4Addr::from_bits(0x0a00_0000 | bits >> 8), prefix).unwrap().trunc();
            match step {
                0 => { allocation.network(&owner, Claim::Remappable(old), None).ok(); }
                1 => { allocation.network(&owner, Claim::Remappable(old), Some(old)).ok(); }
                2 => { allocation.release_network(&owner); allocation.release_address(&owner); given.remove(&owner); }
                _ => {
                    if let Ok(address) = allocation.address(&owner, &network, Some(old.addr())) {
                        given.insert(owner, address);
                    }
                }
            }
        }

        let held: Vec<_> = (0..12).filter_map(|who| allocation.held(&key(&who.to_string()))).collect();
        for (index, a) in held.iter().enumerate() {
            for b in &held[index + 1..] {
                prop_assert!(!a.contains(b) && !b.contains(a), "{} {}", a, b);
            }
        }
        let distinct = BTreeSet::from_iter(given.values());
        prop_assert_eq!(distinct.len(), given.len());
        prop_assert_eq!(allocation.counts(), (held.len(), given.len()));
    }
}
