use super::*;
use proptest::prelude::*;

#[test]
fn keeps_the_host_part() {
    let remap = Remap::new(net("10.0.0.0/16"), net("10.61.0.0/16")).unwrap();

    assert_eq!(remap.apply(addr("10.0.3.7")), Some(addr("10.61.3.7")));
}

#[test]
fn does_not_translate_addresses_outside_of_the_cidr() {
    let remap = Remap::new(net("10.0.0.0/16"), net("10.61.0.0/16")).unwrap();

    assert_eq!(remap.apply(addr("10.1.3.7")), None);
}

#[test]
fn refuses_cidrs_of_different_size() {
    let (from, to) = (net("10.0.0.0/16"), net("10.61.0.0/17"));

    assert_eq!(Remap::new(from, to), Err(RemapError { from, to }));
}

#[test]
fn ignores_host_bits() {
    let remap = Remap::new(net("10.0.3.7/16"), net("10.61.9.9/16")).unwrap();

    assert_eq!(remap.from(), net("10.0.0.0/16"));
    assert_eq!(remap.to(), net("10.61.0.0/16"));
}

proptest! {
    #[test]
    fn inverse_undoes_apply(bits: u32, prefix_len in 0..=32u8, to: u32) {
        let addr = Ipv4Addr::from_bits(bits);
        let from = Ipv4Net::new(addr, prefix_len).unwrap();
        let to = Ipv4Net::new(Ipv4Addr::from_bits(to), prefix_len).unwrap();
        let remap = Remap::new(from, to).unwrap();

        let there = remap.apply(addr).unwrap();

        prop_assert!(remap.to().contains(&there));
        prop_assert_eq!(remap.inverse().apply(there), Some(addr));
    }
}

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

fn addr(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}
