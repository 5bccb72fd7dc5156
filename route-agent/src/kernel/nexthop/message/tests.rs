use super::*;
use crate::testing::ip;
use netlink_packet_core::NetlinkMessage;
use proptest::prelude::*;

#[test]
fn a_hop_is_encoded_as_iproute2_does() {
    // The expected bytes are those of the iproute2 command
    // `ip nexthop add id 7 encap ip id 1 src 172.16.0.1 dst 172.16.0.2 dev #3 proto 108`
    // without the attributes with default values.
    let bytes = encoded(&Message::New(hop()));

    assert_eq!(
        bytes,
        [
            2, 0, 108, 0, 0, 0, 0, 0, // AF_INET, protocol
            8, 0, 1, 0, 7, 0, 0, 0, // NHA_ID
            8, 0, 5, 0, 3, 0, 0, 0, // NHA_OIF
            6, 0, 7, 0, 2, 0, 0, 0, // NHA_ENCAP_TYPE, padded
            32, 0, 8, 128, // NHA_ENCAP, nested
            12, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, // LWTUNNEL_IP_ID
            8, 0, 2, 0, 172, 16, 0, 2, // LWTUNNEL_IP_DST
            8, 0, 3, 0, 172, 16, 0, 1, // LWTUNNEL_IP_SRC
        ]
    );
}

#[test]
fn an_encoded_nexthop_parses_to_itself() {
    let group = Nexthop {
        id: 9,
        protocol: 108,
        target: Some(Target::Group(BTreeSet::from([7, 8]))),
    };

    for nexthop in [hop(), group] {
        let bytes = encoded(&Message::New(nexthop.clone()));
        assert_eq!(Nexthop::parse(&bytes).unwrap(), nexthop);
    }
}

#[test]
fn the_length_in_the_header_is_that_of_the_message() {
    let mut message = NetlinkMessage::from(Message::New(hop()));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);

    assert_eq!(
        NetlinkMessage::<Message>::deserialize(&bytes).unwrap(),
        message
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
        let _ = Nexthop::parse(&bytes);
    }

    #[test]
    fn a_changed_byte_does_not_panic(at in 0usize..64, byte: u8) {
        let mut bytes = encoded(&Message::New(hop()));
        bytes[at] = byte;

        let _ = Nexthop::parse(&bytes);
    }
}

fn hop() -> Nexthop {
    Nexthop {
        id: 7,
        protocol: 108,
        target: Some(Target::Hop {
            hop: Hop {
                src: ip("172.16.0.1"),
                dst: ip("172.16.0.2"),
                vni: 1,
            },
            device: 3,
        }),
    }
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);

    bytes
}
