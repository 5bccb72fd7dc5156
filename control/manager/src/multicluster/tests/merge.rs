//! Properties of the merge.

use crate::multicluster::merge::{Conflict, Export, Merged};
use crate::multicluster::properties::{Properties, common_ports};
use control_api::multicluster::{ServicePort, ServiceType};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

fn port(name: &str, number: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()).filter(|it| !it.is_empty()),
        protocol: Some("TCP".to_owned()),
        app_protocol: None,
        port: number,
    }
}

fn export(cluster: &str, second: i64, ports: Vec<ServicePort>) -> Export {
    Export {
        cluster: cluster.to_owned(),
        exported_at: Timestamp::from_second(second).ok(),
        properties: Properties {
            ports,
            ..Properties::default()
        },
    }
}

fn exports() -> impl Strategy<Value = Vec<Export>> {
    let ports = prop::collection::vec(("[ab]?", 1..4), 0..4);
    let affinity = prop::option::of(1..3);
    let labels = prop::collection::btree_map("[ab]", "[xy]", 0..2);
    let parts = (
        0..3_i64,
        ports,
        any::<bool>(),
        affinity,
        labels,
        any::<bool>(),
    );
    prop::collection::vec(parts, 1..6).prop_map(|exports| {
        let exports = exports.into_iter().enumerate();
        let exports = exports.map(
            |(number, (second, ports, is_headless, affinity, labels, is_local))| {
                let mut valid: Vec<ServicePort> = Vec::new();
                for (name, number) in ports {
                    let port = port(&name, number);
                    if valid.iter().all(|it| Properties::is_compatible(it, &port)) {
                        valid.push(port);
                    }
                }
                let mut export = export(&format!("c{number}"), second, valid);
                let properties = &mut export.properties;
                if is_headless {
                    properties.type_ = ServiceType::Headless;
                }
                properties.affinity_seconds = affinity;
                properties.labels = labels;
                properties.is_local = is_local;
                export
            },
        );
        exports.collect()
    })
}

proptest! {
    #[test]
    fn all_clusters_agree_in_any_order(exports in exports().prop_shuffle(), seed in 0..24_usize) {
        let merged = Merged::of(&exports).unwrap();
        let mut other = exports.clone();
        let len = other.len();
        other.rotate_left(seed % len);
        other.swap(0, seed % len);
        let moved = Merged::of(&other).unwrap();
        prop_assert_eq!(&moved, &merged);

        // A cluster that exports the result changes nothing.
        let again = Export {
            cluster: "z".to_owned(),
            exported_at: None,
            properties: merged.properties.clone(),
        };
        other.push(again);
        let again = Merged::of(&other).unwrap();
        prop_assert_eq!(&again.properties, &merged.properties);
    }

    #[test]
    fn one_service_can_have_the_ports_and_those_of_the_oldest_are_complete(exports in exports()) {
        let merged = Merged::of(&exports).unwrap();
        let ports = &merged.properties.ports;
        for (index, port) in ports.iter().enumerate() {
            let mut others = ports[..index].iter();
            prop_assert!(others.all(|it| Properties::is_compatible(it, port)));
        }
        let oldest = exports.iter().find(|it| it.cluster == merged.oldest).unwrap();
        prop_assert_eq!(&ports[..oldest.properties.ports.len()], &oldest.properties.ports[..]);
        prop_assert!(exports.iter().all(|it| it.exported_at >= oldest.exported_at));

        let are_equal = exports.iter().all(|it| it.properties == oldest.properties);
        if are_equal {
            prop_assert!(merged.conflicts.is_empty());
            prop_assert_eq!(&merged.properties, &oldest.properties);
        }
        for export in &exports {
            let common = common_ports(ports, &export.properties.ports);
            prop_assert!(common.len() <= export.properties.ports.len());
        }
    }
}

#[test]
fn the_oldest_export_counts_and_each_difference_is_a_conflict() {
    let mut young = export("a", 2, vec![port("http", 81), port("web", 443)]);
    young.properties.type_ = ServiceType::Headless;
    young.properties.affinity_seconds = Some(10);
    young.properties.annotations = [("a".to_owned(), "b".to_owned())].into();
    let old = export("b", 1, vec![port("http", 80)]);

    let merged = Merged::of(&[young, old]).unwrap();

    assert_eq!(merged.oldest, "b");
    assert_eq!(merged.clusters, ["a", "b"]);
    assert_eq!(merged.properties.type_, ServiceType::ClusterSetIP);
    assert_eq!(
        merged.properties.ports,
        [port("http", 80), port("web", 443)]
    );
    let conflicts = [
        Conflict::Port,
        Conflict::Type,
        Conflict::SessionAffinity,
        Conflict::Annotations,
    ];
    assert_eq!(merged.conflicts, conflicts.into());
}

#[test]
fn an_unnamed_port_stays_alone() {
    let merged = Merged::of(&[
        export("a", 1, vec![port("", 80)]),
        export("b", 2, vec![port("https", 443)]),
    ]);
    assert_eq!(merged.unwrap().properties.ports, [port("", 80)]);
}
