use super::super::fixture::{ROME, fabric, planned};
use super::*;
use control_api::{Configuration, GatewayServer, IP, PublicKey};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

#[test]
fn what_is_whole_is_served_whole() {
    let admission = admit(planned(ROME));

    assert_eq!(admission.fabric, Ok(fabric(ROME)));
    assert_eq!(admission.refused, []);
    assert_eq!(admission.waiting, []);
}

#[test]
fn a_peer_is_waited_for_until_all_of_it_is_there() {
    let without = |is_missing: &dyn Fn(&Object) -> bool| {
        let mut objects = planned(ROME);
        objects.retain(|object| peer(object) != Some("milan") || !is_missing(object));
        let admission = admit(objects);
        assert_eq!(ids(&admission), ["naples"]);
        assert_eq!(admission.refused, [], "it is not wrong");
        assert_eq!(admission.waiting.len(), 1);
        assert_eq!(admission.waiting[0].what, "peer milan");
        admission.waiting[0].missing
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
fn a_configuration_that_has_changed_is_waited_for() {
    let mut objects = planned(ROME);
    change(
        &mut objects,
        "milan",
        |configuration: &mut Configuration| {
            configuration.metadata.generation = Some(2);
        },
    );

    let admission = admit(objects);

    assert_eq!(ids(&admission), ["naples"]);
    assert!(admission.waiting[0].missing.starts_with("its CIDRs"));
}

#[test]
fn a_peer_whose_cidrs_change_is_served_as_before_until_theirs_are_known() {
    let mut steady = Steady::default();
    assert_eq!(ids(&steady.admit(changed("milan", |_| {}))), BOTH);

    let edited = |configuration: &mut Configuration| {
        configuration.metadata.generation = Some(2);
        configuration.spec.remote = None;
    };
    let looked_at = |reason: &'static str| {
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

    let admission = steady.admit(changed("milan", edited));
    assert_eq!(admission.fabric, Ok(fabric(ROME)), "as before");
    let decided = looked_at(control_api::networking::configuration::WAITING_FOR_NETWORKS);
    assert_eq!(ids(&steady.admit(changed("milan", decided))), BOTH);
    let refused = looked_at("NetworkRefused");
    assert_eq!(ids(&steady.admit(changed("milan", refused))), ["naples"]);
    // What was refused once must be complete before it is known again.
    assert_eq!(ids(&steady.admit(changed("milan", edited))), ["naples"]);
    assert_eq!(ids(&steady.admit(changed("milan", |_| {}))), BOTH);
    assert_eq!(ids(&steady.admit(changed("milan", edited))), BOTH);
}

#[test]
fn what_goes_or_is_another_one_is_not_served_as_before() {
    let gone = |configuration: &mut Configuration| {
        configuration.metadata.generation = Some(2);
        configuration.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    };
    let another = |configuration: &mut Configuration| {
        configuration.metadata.generation = Some(2);
        configuration.metadata.uid = Some("another".to_owned());
    };
    let changes: [fn(&mut Configuration); 2] = [gone, another];

    for change in changes {
        let mut steady = Steady::default();
        assert_eq!(ids(&steady.admit(planned(ROME))), BOTH);
        assert_eq!(ids(&steady.admit(changed("milan", change))), ["naples"]);
    }
}

#[test]
fn nobody_is_refused_for_what_another_had_before() {
    let mut steady = Steady::default();
    assert_eq!(ids(&steady.admit(planned(ROME))), BOTH);
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

    let admission = steady.admit(objects);

    assert_eq!(admission.refused, []);
    assert_eq!(ids(&admission), ["naples"]);
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
fn what_is_wrong_with_one_peer_harms_no_other() {
    for spoil in [
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
        spoil(&mut objects);

        let admission = admit(objects);

        assert_eq!(ids(&admission), ["naples"]);
        let told = admission.refused.len() + admission.waiting.len();
        assert!(told > 0, "a person is told");
    }
}

#[test]
fn of_two_gateways_of_a_peer_the_older_one_is_served() {
    let mut objects = planned(ROME);
    let server = objects.of::<GatewayServer>().next().cloned();
    let mut second = server.unwrap();
    second.metadata.name = Some("second".to_owned());
    second.metadata.creation_timestamp = Some(later());
    objects.push(second);

    let admission = admit(objects);

    assert_eq!(ids(&admission), ["milan", "naples"]);
    assert_eq!(admission.refused, []);
    assert!(admission.waiting[0].what.ends_with("/second"));
}

fn later() -> Time {
    Time(Timestamp::from_second(1_000).unwrap())
}

#[test]
fn a_wrong_address_harms_no_other() {
    let mut objects = planned(ROME);
    change(&mut objects, "printer", |ip: &mut IP| {
        ip.status.as_mut().unwrap().ip = Some("192.0.2.1".to_owned());
    });

    let admission = admit(objects);

    let fabric = admission.fabric.unwrap();
    assert!(fabric.ips.iter().all(|ip| ip.name != "printer"));
    assert!(fabric.ips.iter().any(|ip| ip.name == "web"));
    assert_eq!(admission.refused.len(), 1);
}

#[test]
fn a_node_without_mapped_address_is_left_out_with_its_replicas() {
    let mut objects = planned(ROME);
    objects.retain(|object| {
        !matches!(object, Object::IP(ip) if ip.metadata.name.as_deref() == Some("node-rome-2"))
    });

    let admission = admit(objects);

    let fabric = admission.fabric.unwrap();
    assert_eq!(fabric.nodes.len(), 1);
    assert_eq!(fabric.nodes[0].name, "rome-1");
    assert_eq!(fabric.replicas.len(), 1);
    assert_eq!(admission.waiting[0].what, "node rome-2");
}

#[test]
fn a_node_without_pod_cidr_takes_part_with_its_replicas() {
    let mut objects = planned(ROME);
    for name in ["rome-1", "rome-2"] {
        change(&mut objects, name, |node: &mut Node| node.spec = None);
    }

    let admission = admit(objects);

    let fabric = admission.fabric.unwrap();
    assert_eq!((admission.refused, admission.waiting), (vec![], vec![]));
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

    let admission = admit(objects);

    assert_eq!(admission.refused, []);
    assert_eq!(admission.fabric.unwrap().replicas.len(), 2);
}

#[test]
fn without_the_clusters_own_nothing_is_served() {
    for kind in ["ConfigMap", "Network"] {
        let mut objects = planned(ROME);
        objects.retain(|object| object.kind() != kind);

        assert!(admit(objects).fabric.is_err(), "{kind}");
    }
}

fn ids(admission: &Admission) -> Vec<&str> {
    let fabric = admission.fabric.as_ref().unwrap();
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
