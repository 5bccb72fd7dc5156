//! Tests of packets between a peer and the ClusterIP of a Service, which has an IP object.

use super::fixture::{CLUSTER_IP, NODE_1, NODE_2, SERVICE, ip, original, seen, tables};
use super::generate::{address, errors, packets};
use super::overlay::{for_peer, from_node};
use super::packet::{Body, Packet};
use super::tap::from_peer;
use super::{REDIRECT, for_all, load};
use crate::error::Error;
use crate::image::Image;
use ebpf_common::counter::Counter;
use ebpf_common::settings::Settings;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

#[test]
fn a_packet_of_a_peer_reaches_the_cluster_ip_on_any_node() {
    let programs = load(&tables());
    let nodes = RefCell::new(BTreeSet::new());

    for_all(
        packets(address("10.244.0.0/16"), Just(ip(SERVICE))),
        |packet| {
            let run = programs.tap(&from_peer(1, &packet.encode()));

            let mut expected = packet.clone();
            expected.source = seen(1, packet.source).unwrap();
            expected.destination = ip(CLUSTER_IP);
            assert_eq!(run.verdict, REDIRECT);
            assert_eq!(run.frame, from_peer(1, &expected.encode()));
            nodes.borrow_mut().insert(run.node);
        },
    );

    assert_eq!(nodes.into_inner(), [NODE_1, NODE_2].into());
}

#[test]
fn a_reply_of_a_service_has_the_address_of_the_ip_object() {
    let programs = load(&tables());

    for_all(
        packets(Just(ip(CLUSTER_IP)), address("10.245.0.0/16")),
        |packet| {
            let run = programs.overlay(&from_node(&packet.encode()));

            let mut expected = packet.clone();
            expected.source = ip(SERVICE);
            expected.destination = original(1, packet.destination).unwrap();
            assert_eq!(run.verdict, REDIRECT);
            assert_eq!(run.frame, for_peer(1, &expected.encode()));
        },
    );
}

/// Connection tracking on the node assigns the error to a connection only if the quoted packet has
/// the addresses with which the node sent it. Path MTU discovery needs this.
#[test]
fn an_error_about_a_reply_quotes_the_cluster_ip() {
    let programs = load(&tables());
    let quoted = packets(Just(ip(SERVICE)), Just(ip("10.244.5.5")));

    for_all(
        errors(Just(ip("10.244.5.5")), Just(ip(SERVICE)), quoted),
        |packet| {
            let run = programs.tap(&from_peer(1, &packet.encode()));

            let mut expected = packet.clone();
            expected.source = ip("10.245.5.5");
            expected.destination = ip(CLUSTER_IP);
            if let Body::Error { quoted, .. } = &mut expected.body {
                quoted.source = ip(CLUSTER_IP);
                quoted.destination = ip("10.245.5.5");
            }
            assert_eq!(run.verdict, REDIRECT);
            assert_eq!(run.frame, from_peer(1, &expected.encode()));
        },
    );
}

#[test]
fn an_error_about_a_request_quotes_the_address_of_the_ip_object() {
    let programs = load(&tables());
    let quoted = packets(Just(ip("10.245.5.5")), Just(ip(CLUSTER_IP)));

    for_all(
        errors(Just(ip(CLUSTER_IP)), Just(ip("10.245.5.5")), quoted),
        |packet| {
            let run = programs.overlay(&from_node(&packet.encode()));

            let mut expected = packet.clone();
            expected.source = ip(SERVICE);
            expected.destination = ip("10.244.5.5");
            if let Body::Error { quoted, .. } = &mut expected.body {
                quoted.source = ip("10.244.5.5");
                quoted.destination = ip(SERVICE);
            }
            assert_eq!(run.verdict, REDIRECT);
            assert_eq!(run.frame, for_peer(1, &expected.encode()));
        },
    );
}

/// Both replicas must select the same node, and an error must reach the node of its connection.
#[test]
fn a_packet_and_an_error_of_one_connection_reach_the_same_node() {
    let replicas = [load(&tables()), load(&tables())];
    let pods = address("10.244.0.0/16");

    for_all(
        pods.prop_flat_map(|pod| {
            let quoted = packets(Just(ip(SERVICE)), Just(pod));
            (
                packets(Just(pod), Just(ip(SERVICE))),
                errors(address("172.16.0.0/12"), Just(ip(SERVICE)), quoted),
            )
        }),
        |(packet, error)| {
            let nodes = replicas.each_ref().map(|programs| {
                [&packet, &error].map(|it| programs.tap(&from_peer(1, &it.encode())).node)
            });

            let [[node, of_error], second] = nodes;
            assert_eq!(of_error, node);
            assert_eq!(second, [node, node]);
        },
    );
}

#[test]
fn a_peer_cannot_send_to_a_cluster_ip() {
    let programs = load(&tables());

    for destination in [CLUSTER_IP, "10.96.0.2"] {
        let packet = datagram("10.244.5.5", destination).encode();
        programs.assert_refused(
            |programs| programs.tap(&from_peer(1, &packet)),
            Counter::TapUnknownDestination,
        );
    }
}

#[test]
fn a_cluster_ip_without_an_ip_object_is_no_source() {
    let programs = load(&tables());
    let packet = datagram("10.96.0.2", "10.245.5.5").encode();

    programs.assert_refused(
        |programs| programs.overlay(&from_node(&packet)),
        Counter::OverlayUnknownSource,
    );
}

#[test]
fn a_cluster_ip_has_one_ip_object() {
    let mut tables = tables();
    tables.services.insert(ip("10.70.0.24"), ip(CLUSTER_IP));

    let error = Image::new(&tables, &Settings::default()).unwrap_err();

    let ambiguous: Ipv4Addr = ip(CLUSTER_IP);
    assert!(matches!(error, Error::AmbiguousSource { address } if address == ambiguous));
}

fn datagram(source: &str, destination: &str) -> Packet {
    let body = Body::Udp {
        ports: [1, 2],
        has_checksum: true,
        payload: vec![3; 20],
    };
    Packet::new(source, destination, body)
}
