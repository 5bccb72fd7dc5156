use super::*;
use proptest::prelude::*;

#[test]
fn a_free_cidr_is_kept() {
    let mut networks = Networks::default();

    let got = networks.acquire("milan", Claim::Remappable(net("10.244.0.0/16")));

    assert_eq!(got, Ok(net("10.244.0.0/16")));
}

#[test]
fn a_taken_cidr_is_remapped_to_the_lowest_free_one_of_its_size() {
    let mut networks = Networks::default();
    shared(&mut networks, "pods", "10.0.0.0/16");

    let got = networks.acquire("milan", Claim::Remappable(net("10.0.0.0/16")));

    assert_eq!(got, Ok(net("10.1.0.0/16")));
}

#[test]
fn a_part_of_a_taken_cidr_is_remapped_too() {
    let mut networks = Networks::default();
    shared(&mut networks, "pods", "10.0.0.0/16");

    let part = networks.acquire("part", Claim::Remappable(net("10.0.7.0/24")));
    let around = networks.acquire("around", Claim::Remappable(net("10.0.0.0/12")));

    assert_eq!(part, Ok(net("10.1.0.0/24")));
    assert_eq!(around, Ok(net("10.16.0.0/12")));
}

#[test]
fn a_cidr_outside_of_the_pools_is_always_remapped() {
    let mut networks = Networks::default();

    let got = networks.acquire("milan", Claim::Remappable(net("100.64.0.0/24")));

    assert_eq!(got, Ok(net("10.0.0.0/24")));
}

#[test]
fn a_cidr_that_contains_a_pool_is_outside_of_it() {
    let mut networks = Networks::default();

    let got = networks.acquire("milan", Claim::Remappable(net("8.0.0.0/6")));

    assert_eq!(got, Err(NetworkError::Exhausted { prefix_len: 6 }));
}

#[test]
fn pools_are_used_in_the_order_listed() {
    let pools = ["192.168.0.0/24", "10.0.0.0/24"].map(net);
    let mut networks = Networks::new(pools).unwrap();

    let got = [1, 2, 3, 4, 5].map(|i| networks.acquire(i, Claim::Remappable(net("100.0.0.0/25"))));

    assert_eq!(
        got,
        [
            Ok(net("192.168.0.0/25")),
            Ok(net("192.168.0.128/25")),
            Ok(net("10.0.0.0/25")),
            Ok(net("10.0.0.128/25")),
            Err(NetworkError::Exhausted { prefix_len: 25 }),
        ]
    );
}

#[test]
fn overlapping_pools_are_refused() {
    let pools = ["10.0.0.0/8", "192.168.0.0/16", "10.244.0.0/16"].map(net);

    let error = Networks::<u8>::new(pools).unwrap_err();

    assert_eq!(
        error.to_string(),
        "the address pools 10.0.0.0/8 and 10.244.0.0/16 overlap"
    );
}

#[test]
fn shared_cidrs_may_overlap_one_another_but_nothing_exclusive() {
    let mut networks = Networks::default();
    shared(&mut networks, "pods", "10.0.0.0/16");

    shared(&mut networks, "node", "10.0.0.5/32");
    shared(&mut networks, "same", "10.0.0.0/16");
    shared(&mut networks, "reserved", "10.0.0.0/8");
    let exclusive = networks.acquire("external", Claim::Exclusive(net("10.70.0.0/16")));

    assert_eq!(
        exclusive,
        Err(NetworkError::Taken {
            cidr: net("10.70.0.0/16")
        })
    );
}

#[test]
fn a_shared_cidr_must_not_overlap_an_exclusive_one() {
    let mut networks = Networks::default();
    let external = net("10.70.0.0/16");
    networks
        .acquire("external", Claim::Exclusive(external))
        .unwrap();

    for cidr in ["10.70.0.0/16", "10.70.3.0/24", "10.0.0.0/8"].map(net) {
        let got = networks.acquire("other", Claim::Shared(cidr));

        assert_eq!(got, Err(NetworkError::Taken { cidr }));
    }
}

#[test]
fn outside_the_pools_a_shared_cidr_is_allocated_and_an_exclusive_one_is_refused() {
    let mut networks = Networks::default();
    let cidr = net("100.64.0.0/10");

    assert_eq!(networks.acquire("a", Claim::Shared(cidr)), Ok(cidr));
    assert_eq!(
        networks.acquire("b", Claim::Exclusive(cidr)),
        Err(NetworkError::OutsidePools { cidr })
    );
}

#[test]
fn a_reservation_that_contains_a_pool_is_respected() {
    let mut networks = Networks::default();
    shared(&mut networks, "reserved", "8.0.0.0/6");

    let got = networks.acquire("milan", Claim::Remappable(net("10.244.0.0/16")));

    assert_eq!(got, Ok(net("192.168.0.0/16")));
}

#[test]
fn the_same_claim_returns_the_same_cidr() {
    let mut networks = Networks::default();
    shared(&mut networks, "pods", "10.0.0.0/16");
    let claim = Claim::Remappable(net("10.0.0.0/16"));

    let first = networks.acquire("milan", claim).unwrap();

    assert_eq!(networks.acquire("milan", claim), Ok(first));
    assert_eq!(
        networks.acquire("milan", Claim::Remappable(net("10.0.0.0/24"))),
        Err(NetworkError::Held { held: first })
    );
}

#[test]
fn a_released_cidr_is_allocated_again() {
    let mut networks = Networks::default();
    shared(&mut networks, "pods", "10.0.0.0/16");
    let claim = Claim::Remappable(net("10.0.0.0/16"));
    let first = networks.acquire("milan", claim).unwrap();

    assert_eq!(networks.release(&"milan"), Some(first));

    assert_eq!(networks.acquire("naples", claim), Ok(first));
    assert_eq!(networks.release(&"milan"), None);
}

#[test]
fn a_shared_cidr_is_free_when_its_last_owner_releases_it() {
    let mut networks = Networks::default();
    shared(&mut networks, "a", "10.0.0.0/16");
    shared(&mut networks, "b", "10.0.0.0/16");

    networks.release(&"a");
    assert!(!networks.is_free(net("10.0.0.0/16")));

    networks.release(&"b");
    assert!(networks.is_free(net("10.0.0.0/16")));
}

#[test]
fn an_earlier_cidr_is_adopted() {
    let mut networks = Networks::default();

    networks.adopt("milan", net("100.64.0.0/16")).unwrap();

    assert_eq!(networks.get(&"milan"), Some(net("100.64.0.0/16")));
    assert_eq!(
        networks.adopt("naples", net("100.64.7.0/24")),
        Err(NetworkError::Taken {
            cidr: net("100.64.7.0/24")
        })
    );
}

#[test]
fn an_operation_costs_the_same_at_a_hundred_thousand() {
    let mut networks = Networks::default();
    let claim = Claim::Remappable(net("10.0.0.0/28"));
    for owner in 0..100_000u32 {
        networks.acquire(owner, claim).unwrap();
    }

    let mut cost = |operation: &dyn Fn(&mut Networks<u32>) -> bool| {
        networks.tree.visits.set(0);
        assert!(operation(&mut networks));
        networks.tree.visits.get()
    };

    // An allocation searches one path of at most 33 nodes in each of the three pools, and then
    // updates one path. It reads each node a few times.
    assert!(cost(&|networks| networks.acquire(100_000, claim).is_ok()) < 1_000);
    assert!(cost(&|networks| networks.release(&50_000).is_some()) < 1_000);
    assert!(cost(&|networks| networks.acquire(100_001, claim).is_ok()) < 1_000);
    assert!(cost(&|networks| !networks.is_free(net("10.0.0.0/8"))) < 100);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire(u8, Claim),
    Adopt(u8, Ipv4Net),
    Release(u8),
}

proptest! {
    /// The model keeps the allocated CIDRs in a list, and checks each of them for overlaps.
    #[test]
    fn agrees_with_a_naive_model(steps in prop::collection::vec(step(), 1..80)) {
        let pools = ["10.0.0.0/25", "10.0.1.0/26"].map(net);
        let mut networks = Networks::new(pools).unwrap();
        let mut model = Model { pools: &pools, held: Vec::new() };

        for step in steps {
            match step {
                Step::Acquire(owner, claim) => prop_assert_eq!(
                    networks.acquire(owner, claim).ok(),
                    model.acquire(owner, claim)
                ),
                Step::Adopt(owner, cidr) => prop_assert_eq!(
                    networks.adopt(owner, cidr).ok(),
                    model.adopt(owner, cidr)
                ),
                Step::Release(owner) => {
                    prop_assert_eq!(networks.release(&owner), model.release(owner));
                }
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    // The CIDRs are in 10.0.0.0/23. The pools are parts of this prefix, so some of the CIDRs are
    // outside of the pools.
    let cidr = (0..512u32, 24..=32u8).prop_map(|(host, prefix_len)| {
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() + host);
        Ipv4Net::new(address, prefix_len).unwrap().trunc()
    });
    let claim = (cidr.clone(), 0..3u8).prop_map(|(cidr, kind)| match kind {
        0 => Claim::Remappable(cidr),
        1 => Claim::Exclusive(cidr),
        _ => Claim::Shared(cidr),
    });

    prop_oneof![
        4 => (0..20u8, claim).prop_map(|(owner, claim)| Step::Acquire(owner, claim)),
        1 => (0..20u8, cidr).prop_map(|(owner, cidr)| Step::Adopt(owner, cidr)),
        2 => (0..20u8).prop_map(Step::Release),
    ]
}

struct Model<'a> {
    pools: &'a [Ipv4Net],
    held: Vec<(u8, Option<Claim>, Ipv4Net, bool)>,
}

impl Model<'_> {
    fn acquire(&mut self, owner: u8, claim: Claim) -> Option<Ipv4Net> {
        if let Some((_, earlier, cidr, _)) = self.held.iter().find(|held| held.0 == owner) {
            return (*earlier == Some(claim)).then_some(*cidr);
        }
        let in_pool = |cidr: Ipv4Net| self.pools.iter().any(|pool| pool.contains(&cidr));
        let (cidr, exclusive) = match claim {
            Claim::Remappable(cidr) if in_pool(cidr) && self.allows(cidr, true) => (cidr, true),
            Claim::Remappable(cidr) => (self.lowest(cidr.prefix_len())?, true),
            Claim::Exclusive(cidr) if in_pool(cidr) => (cidr, true),
            Claim::Exclusive(_) => return None,
            Claim::Shared(cidr) => (cidr, false),
        };
        self.hold(owner, Some(claim), cidr, exclusive)
    }

    fn adopt(&mut self, owner: u8, cidr: Ipv4Net) -> Option<Ipv4Net> {
        if let Some((_, _, held, exclusive)) = self.held.iter().find(|held| held.0 == owner) {
            return (*held == cidr && *exclusive).then_some(cidr);
        }
        self.hold(owner, None, cidr, true)
    }

    fn release(&mut self, owner: u8) -> Option<Ipv4Net> {
        let index = self.held.iter().position(|held| held.0 == owner)?;
        Some(self.held.remove(index).2)
    }

    fn lowest(&self, prefix_len: u8) -> Option<Ipv4Net> {
        self.pools
            .iter()
            .flat_map(|pool| pool.subnets(prefix_len).into_iter().flatten())
            .find(|cidr| self.allows(*cidr, true))
    }

    fn hold(
        &mut self,
        owner: u8,
        claim: Option<Claim>,
        cidr: Ipv4Net,
        exclusive: bool,
    ) -> Option<Ipv4Net> {
        self.allows(cidr, exclusive).then(|| {
            self.held.push((owner, claim, cidr, exclusive));
            cidr
        })
    }

    fn allows(&self, cidr: Ipv4Net, exclusive: bool) -> bool {
        !self.held.iter().any(|(_, _, held, held_exclusive)| {
            (exclusive || *held_exclusive) && (held.contains(&cidr) || cidr.contains(held))
        })
    }
}

fn shared(networks: &mut Networks<&'static str>, owner: &'static str, cidr: &str) {
    networks.acquire(owner, Claim::Shared(net(cidr))).unwrap();
}

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}
