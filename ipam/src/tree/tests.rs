use super::*;
use proptest::prelude::*;

#[test]
fn an_empty_tree_gives_the_start_of_the_pool() {
    let tree = Tree::default();

    assert_eq!(
        tree.first_free(net("10.0.0.0/8"), 16),
        Some(net("10.0.0.0/16"))
    );
}

#[test]
fn the_whole_address_space_can_be_held() {
    let mut tree = Tree::default();

    tree.insert(net("0.0.0.0/0"), true);

    assert!(!tree.is_free(net("10.0.0.0/8")));
    assert_eq!(tree.first_free(net("0.0.0.0/0"), 32), None);
    tree.remove(net("0.0.0.0/0"), true);
    assert!(tree.is_free(net("0.0.0.0/0")));
}

#[test]
fn a_released_prefix_takes_no_memory() {
    let mut tree = Tree::default();
    let nets = (0..1000).map(|i| super::net(Ipv4Addr::from_bits(i * 77_777), 30));

    for net in nets.clone() {
        tree.insert(net, true);
    }
    for net in nets {
        tree.remove(net, true);
    }

    assert_eq!(tree.len(), 1);
}

#[test]
fn removing_a_prefix_that_is_not_in_use_changes_nothing() {
    let mut tree = Tree::default();
    tree.insert(net("10.0.0.0/16"), true);

    tree.remove(net("10.1.0.0/16"), true);
    tree.remove(net("10.0.0.0/16"), false);

    assert!(!tree.is_free(net("10.0.0.0/16")));
    assert!(tree.is_free(net("10.1.0.0/16")));
}

proptest! {
    /// All prefixes are in 10.0.0.0/24, so that they often overlap.
    #[test]
    fn agrees_with_a_list_of_prefixes(
        steps in prop::collection::vec((any::<bool>(), any::<u8>(), 24..=32u8, any::<bool>()), 1..60),
        requested in (any::<u8>(), 24..=32u8),
    ) {
        let mut tree = Tree::default();
        let mut list: Vec<(Ipv4Net, bool)> = Vec::new();
        for (remove, octet, prefix_len, exclusive) in steps {
            let step = prefix(octet, prefix_len);
            if remove && !list.is_empty() {
                let (net, exclusive) = list.swap_remove(usize::from(octet) % list.len());
                tree.remove(net, exclusive);
            } else if !(exclusive && list.contains(&(step, true))) {
                tree.insert(step, exclusive);
                list.push((step, exclusive));
            }
        }

        let (octet, prefix_len) = requested;
        let requested = prefix(octet, prefix_len);
        let overlaps = |net: &Ipv4Net| list.iter().any(|(held, _)| overlap(held, net));

        prop_assert_eq!(tree.is_free(requested), !overlaps(&requested));
        prop_assert_eq!(
            tree.has_exclusive(requested),
            list.iter().any(|(held, exclusive)| *exclusive && overlap(held, &requested))
        );
        let lowest = net("10.0.0.0/24").subnets(prefix_len).unwrap().find(|net| !overlaps(net));
        prop_assert_eq!(tree.first_free(net("10.0.0.0/24"), prefix_len), lowest);
        let lowest = requested.subnets(32).unwrap().find(|net| !overlaps(net));
        prop_assert_eq!(tree.first_free(requested, 32), lowest);
    }
}

fn prefix(octet: u8, prefix_len: u8) -> Ipv4Net {
    Ipv4Net::new(Ipv4Addr::new(10, 0, 0, octet), prefix_len)
        .unwrap()
        .trunc()
}

fn overlap(a: &Ipv4Net, b: &Ipv4Net) -> bool {
    a.contains(b) || b.contains(a)
}

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}
