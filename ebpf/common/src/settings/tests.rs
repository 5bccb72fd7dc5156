use super::*;

#[test]
fn a_mac_address_encodes_its_peer() {
    let settings = Settings::default();

    for peer in [0, 1, 255, 256, u16::MAX] {
        assert_eq!(settings.peer_of_mac(settings.peer_mac(peer)), Some(peer));
    }
}

#[test]
fn the_fixed_mac_addresses_encode_no_peer() {
    let settings = Settings::default();

    assert_eq!(settings.peer_of_mac(settings.node_mac), None);
    assert_eq!(settings.peer_of_mac(settings.gateway_mac), None);
}
