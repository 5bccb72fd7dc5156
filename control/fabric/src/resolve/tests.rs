use super::super::fixture::{ROME, fabric, planned};
use super::*;
use control_api::{Configuration, GatewayServer, IP, PublicKey};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

#[test]
fn complete_objects_are_served() {
    let resolution = resolve(planned(ROME));

    assert_eq!(resolution.fabric, Ok(fabric(ROME)));
    assert_eq!(resolution.refused, []);
    assert_eq!(resolution.waiting, []);
}

#[test]
fn a_peer_waits_until_all_its_objects_exist() {
    let without = |is_missing: &dyn Fn(&Object) -> bool| {
        let mut objects = planned(ROME);
        objects.retain(|object| object.peer() != Some("milan") || !is_missing(object));
        let resolution = resolve(objects);
        assert_eq!(ids(&resolution), ["naples"]);
        assert_eq!(resolution.refused, [], "it is not an error");
        assert_eq!(resolution.waiting.len(), 1);
        assert_eq!(resolution.waiting[0].subject, "peer milan");
        resolution.waiting[0].missing
    };

    let key = without(&|object| matches!(object, Object::PublicKey(_)));
    assert!(key.starts_with("its PublicKey"), "{key}");
    let gateway = without(&|object| matches!(object, Object::GatewayServer(_)));
    assert!(gateway.starts_with("its GatewayServer"), "{gateway}");
    let configuration = without(&|object| matches!(object, Object::Configuration(_)));
    assert!(
        configuration.starts_with("its Configuration"),
        "{configuration}"
    );
}

#[test]
fn a_peer_with_a_changed_configuration_waits() {
    let mut objects = planned(ROME);
    change(
        &mut objects,
        "milan",
        |configuration: &mut Configuration| {
            configuration.metadata.generation = Some(2);
        },
    );

    let resolution = resolve(objects);

    assert_eq!(ids(&resolution), ["naples"]);
    assert!(resolution.waiting[0].missing.starts_with("its CIDRs"));
}

#[test]
fn a_peer_is_served_by_its_last_good_configuration_until_new_cidrs_are_remapped() {
    let mut last_good = LastGood::default();
    assert_eq!(ids(&last_good.resolve(changed("milan", |_| {}))), BOTH);

    let edited = |configuration: &mut Configuration| {
        configuration.metadata.generation = Some(2);
        configuration.spec.remote = None;
    };
    let handled = |reason: &'static str| {
        move |configuration: &mut Configuration| {
            configuration.metadata.generation = Some(2);
            let status = configuration.status.as_mut().unwrap();
            status.remote = None;
            for condition in &mut status.conditions {
                condition.observed_generation = Some(2);
                condition.status = "False".to_owned();
                condition.reason = reason.to_owned();
            }
        }
    };

    let resolution = last_good.resolve(changed("milan", edited));
    assert_eq!(resolution.fabric, Ok(fabric(ROME)), "as before");
    let decided = handled(control_api::networking::configuration::WAITING_FOR_NETWORKS);
    assert_eq!(ids(&last_good.resolve(changed("milan", decided))), BOTH);
    let refused = handled("NetworkRefused");
    assert_eq!(
        ids(&last_good.resolve(changed("milan", refused))),
        ["naples"]
    );
    // A refused Configuration must be complete before it has a last good state again.
    assert_eq!(
        ids(&last_good.resolve(changed("milan", edited))),
        ["naples"]
    );
    assert_eq!(ids(&last_good.resolve(changed("milan", |_| {}))), BOTH);
    assert_eq!(ids(&last_good.resolve(changed("milan", edited))), BOTH);
}

#[test]
fn a_deleted_or_recreated_configuration_has_no_last_good_state() {
    let terminating = |configuration: &mut Configuration| {
        configuration.metadata.generation = Some(2);
        configuration.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    };
    let another = |configuration: &mut Configuration| {
        configuration.metadata.generation = Some(2);
        configuration.metadata.uid = Some("another".to_owned());
    };
    let changes: [fn(&mut Configuration); 2] = [terminating, another];

    for change in changes {
        let mut last_good = LastGood::default();
        assert_eq!(ids(&last_good.resolve(planned(ROME))), BOTH);
        assert_eq!(
            ids(&last_good.resolve(changed("milan", change))),
            ["naples"]
        );
    }
}

#[test]
fn a_last_good_configuration_causes_no_refusal_of_another_peer() {
    let mut last_good = LastGood::default();
    assert_eq!(ids(&last_good.resolve(planned(ROME))), BOTH);
    let mut objects = changed("milan", |configuration| {
        configuration.metadata.generation = Some(2);
    });
    let before = planned(ROME);
    let of_milan = |it: &&Configuration| it.metadata.name.as_deref() == Some("milan");
    let milan = before.of::<Configuration>().find(of_milan).unwrap();
    let status = milan.status.clone().unwrap();
    change(&mut objects, "naples", |naples: &mut Configuration| {
        let remote = naples.status.as_mut().unwrap().remote.as_mut().unwrap();
        let of_milan = &status.remote.as_ref().unwrap().cidr.pod;
        remote.cidr.pod[0].clone_from(&of_milan[0]);
    });

    let resolution = last_good.resolve(objects);

    assert_eq!(resolution.refused, []);
    assert_eq!(ids(&resolution), ["naples"]);
}

/// The peers of rome.
const BOTH: [&str; 2] = ["milan", "naples"];

/// Rome's objects with another Configuration of a peer.
fn changed(peer: &str, change: impl Fn(&mut Configuration)) -> Objects {
    let mut objects = planned(ROME);
    self::change(&mut objects, peer, change);
    objects
}

#[test]
fn an_invalid_peer_does_not_affect_others() {
    for break_object in [
        |objects: &mut Objects| {
            change(objects, "milan", |key: &mut PublicKey| {
                key.spec.public_key = None;
            });
        },
        |objects: &mut Objects| {
            change(objects, "milan", |server: &mut GatewayServer| {
                server.spec.mtu = Some(-1);
            });
        },
        |objects: &mut Objects| {
            change(objects, "milan", |configuration: &mut Configuration| {
                let status = configuration.status.as_mut().unwrap();
                let cidrs = &mut status.remote.as_mut().unwrap().cidr;
                cidrs.pod[0] = "nonsense".to_owned();
            });
        },
        |objects: &mut Objects| {
            change(objects, "milan", |configuration: &mut Configuration| {
                let labels = configuration.metadata.labels.as_mut().unwrap();
                labels.insert(labels::REMOTE_CLUSTER_ID.to_owned(), "MILAN".to_owned());
            });
        },
    ] {
        let mut objects = planned(ROME);
        break_object(&mut objects);

        let resolution = resolve(objects);

        assert_eq!(ids(&resolution), ["naples"]);
        let reported = resolution.refused.len() + resolution.waiting.len();
        assert!(reported > 0, "an error is reported");
    }
}

#[test]
fn the_older_of_two_gateways_of_a_peer_is_served() {
    let mut objects = planned(ROME);
    let server = objects.of::<GatewayServer>().next().cloned();
    let mut second = server.unwrap();
    second.metadata.name = Some("second".to_owned());
    second.metadata.creation_timestamp = Some(later());
    objects.push(second);

    let resolution = resolve(objects);

    assert_eq!(ids(&resolution), ["milan", "naples"]);
    assert_eq!(resolution.refused, []);
    assert!(resolution.waiting[0].subject.ends_with("/second"));
}

fn later() -> Time {
    Time(Timestamp::from_second(1_000).unwrap())
}

#[test]
fn an_invalid_ip_does_not_affect_others() {
    let mut objects = planned(ROME);
    change(&mut objects, "printer", |ip: &mut IP| {
        ip.status.as_mut().unwrap().ip = Some("192.0.2.1".to_owned());
    });

    let resolution = resolve(objects);

    let fabric = resolution.fabric.unwrap();
    assert!(fabric.ips.iter().all(|ip| ip.name != "printer"));
    assert!(fabric.ips.iter().any(|ip| ip.name == "web"));
    assert_eq!(resolution.refused.len(), 1);
}

#[test]
fn a_node_without_mapped_address_is_removed_with_its_replicas() {
    let mut objects = planned(ROME);
    objects.retain(|object| {
        !matches!(object, Object::IP(ip) if ip.metadata.name.as_deref() == Some("node-rome-2"))
    });

    let resolution = resolve(objects);

    let fabric = resolution.fabric.unwrap();
    assert_eq!(fabric.nodes.len(), 1);
    assert_eq!(fabric.nodes[0].name, "rome-1");
    assert_eq!(fabric.replicas.len(), 1);
    assert_eq!(resolution.waiting[0].subject, "node rome-2");
}

#[test]
fn a_node_without_pod_cidr_is_served_with_its_replicas() {
    let mut objects = planned(ROME);
    for name in ["rome-1", "rome-2"] {
        change(&mut objects, name, |node: &mut Node| node.spec = None);
    }

    let resolution = resolve(objects);

    let fabric = resolution.fabric.unwrap();
    assert_eq!((resolution.refused, resolution.waiting), (vec![], vec![]));
    assert!(fabric.nodes.iter().all(|node| node.pod_cidrs.is_empty()));
    assert_eq!((fabric.nodes.len(), fabric.replicas.len()), (2, 2));
}

#[test]
fn a_replica_in_two_slices_is_one() {
    let mut objects = planned(ROME);
    let slices: Vec<_> = objects
        .of::<k8s_openapi::api::discovery::v1::EndpointSlice>()
        .map(|slice| {
            let mut slice = slice.clone();
            slice.metadata.name = Some("another".to_owned());
            slice
        })
        .collect();
    objects.extend(slices);

    let resolution = resolve(objects);

    assert_eq!(resolution.refused, []);
    assert_eq!(resolution.fabric.unwrap().replicas.len(), 2);
}

#[test]
fn without_the_objects_of_the_cluster_itself_nothing_is_served() {
    for kind in ["ConfigMap", "Network"] {
        let mut objects = planned(ROME);
        objects.retain(|object| object.kind() != kind);

        assert!(resolve(objects).fabric.is_err(), "{kind}");
    }
}

fn ids(resolution: &Resolution) -> Vec<&str> {
    let fabric = resolution.fabric.as_ref().unwrap();
    fabric.peers.iter().map(|it| &*it.cluster_id).collect()
}

/// Changes the objects of that kind and name.
fn change<T>(objects: &mut Objects, name: &str, change: impl Fn(&mut T))
where
    for<'a> &'a T: TryFrom<&'a Object>,
    T: Clone + Into<Object>,
{
    for object in objects.iter_mut() {
        if object.metadata().name.as_deref() != Some(name) {
            continue;
        }
        let Ok(found) = <&T>::try_from(&*object) else {
            continue;
        };
        let mut changed = found.clone();
        change(&mut changed);
        *object = changed.into();
    }
}
