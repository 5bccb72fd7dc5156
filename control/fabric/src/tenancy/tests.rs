use super::super::fixture::{ROME, fabric, planned};
use super::super::resolve;
use super::*;
use control_api::{Configuration, IP, Network, PublicKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{from_value, json};

mod claims;

/// A namespace with the tenant labels of a peer.
fn labelled(name: &str, peer: &str) -> ObjectMeta {
    from_value(json!({
        "name": name,
        "labels": {"liqo.io/remote-cluster-id": peer, "liqo.io/tenant-namespace": "true"},
    }))
    .unwrap()
}

/// The fixture's cluster has a tenant namespace of each peer.
fn tenancy() -> Tenancy {
    Tenancy {
        liqo: "liqo".to_owned(),
        named: Vec::new(),
        labelled: ["milan", "naples"]
            .map(|peer| labelled(&format!("liqo-tenant-{peer}"), peer))
            .into(),
    }
}

/// Returns a copy of an object in a developer's namespace, which is older than the original.
fn copied<'a, T>(objects: &'a Objects, name: &str) -> T
where
    &'a T: TryFrom<&'a Object>,
    T: kube::Resource + Clone + 'a,
{
    let named = |it: &&T| it.meta().name.as_deref() == Some(name);
    let mut copy = objects.of::<T>().find(named).unwrap().clone();
    copy.meta_mut().namespace = Some("developers".to_owned());
    copy.meta_mut().creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    copy
}

/// Prunes and resolves, as a watch does.
fn resolved(tenancy: &Tenancy, mut objects: Objects) -> Resolution {
    let misplaced = tenancy.prune(&mut objects);
    let mut resolution = resolve(objects);
    resolution.refuse(misplaced);
    resolution
}

fn peers(resolution: &Resolution) -> Vec<&str> {
    let fabric = resolution.fabric.as_ref().unwrap();
    fabric.peers.iter().map(|it| &*it.cluster_id).collect()
}

#[test]
fn a_developers_older_public_key_does_not_replace_that_of_the_tenant_namespace() {
    let mut objects = planned(ROME);
    let mut key: PublicKey = copied(&objects, "milan");
    key.spec.public_key = Some(k8s_openapi::ByteString(vec![7; 32]));
    objects.push(key);

    let resolution = resolved(&tenancy(), objects);

    assert_eq!(resolution.fabric, Ok(fabric(ROME)));
    assert_eq!(resolution.refused.len(), 1);
    let message = resolution.refused[0].to_string();
    assert!(
        message.starts_with("PublicKey developers/milan"),
        "{message}"
    );
    assert!(
        message.contains("to liqo-tenant-milan, or delete it"),
        "{message}"
    );
    assert!(resolution.unserved.is_empty(), "milan is served");
}

#[test]
fn a_developers_configuration_does_not_occupy_the_cidrs_of_another_peer() {
    let mut objects = planned(ROME);
    let mut configuration: Configuration = copied(&objects, "milan");
    let peer = "mallory".to_owned();
    let labels = configuration.metadata.labels.as_mut().unwrap();
    labels.insert(labels::REMOTE_CLUSTER_ID.to_owned(), peer.clone());
    objects.push(configuration);

    let resolution = resolved(&tenancy(), objects);

    assert_eq!(peers(&resolution), ["milan", "naples"]);
    let cause = &resolution.unserved[&peer];
    assert!(
        cause.contains("is not the tenant namespace of peer mallory"),
        "{cause}"
    );
}

#[test]
fn a_peer_without_a_labelled_namespace_is_served_from_one_of_the_settings() {
    let mut unlabelled = tenancy();
    unlabelled
        .labelled
        .retain(|it| it.name.as_deref() != Some("liqo-tenant-milan"));
    let mut named = unlabelled.clone();
    named.named = vec!["elsewhere".to_owned(), "liqo-tenant-milan".to_owned()];

    let refused = resolved(&unlabelled, planned(ROME));
    let served = resolved(&named, planned(ROME));

    assert_eq!(peers(&refused), ["naples"]);
    assert_eq!(refused.refused.len(), 3, "{:?}", refused.refused);
    assert!(refused.unserved.contains_key("milan"));
    assert_eq!(served.fabric, Ok(fabric(ROME)));
    assert_eq!(served.refused, []);
}

#[test]
fn objects_in_the_tenant_namespace_of_another_peer_are_refused() {
    let mut objects = planned(ROME);
    let mut key: PublicKey = copied(&objects, "naples");
    key.metadata.namespace = Some("liqo-tenant-milan".to_owned());
    objects.push(key);

    let resolution = resolved(&tenancy(), objects);

    assert_eq!(resolution.fabric, Ok(fabric(ROME)));
    assert_eq!(resolution.refused.len(), 1);
}

#[test]
fn networks_of_the_cluster_and_ips_of_nodes_are_read_from_liqos_namespace() {
    let mut objects = planned(ROME);
    let network: Network = copied(&objects, "external-cidr");
    let mut ip: IP = copied(&objects, "node-rome-1");
    ip.spec.ip = "192.0.2.66".to_owned();
    objects.push(network);
    objects.push(ip);

    let resolution = resolved(&tenancy(), objects);

    assert_eq!(resolution.fabric, Ok(fabric(ROME)));
    let message: Vec<_> = resolution.refused.iter().map(ToString::to_string).collect();
    assert_eq!(message.len(), 2, "{message:?}");
    assert!(
        message.iter().all(|it| it.contains("namespace liqo")),
        "{message:?}"
    );
}

#[test]
fn objects_in_the_right_namespaces_are_kept() {
    let mut objects = planned(ROME);

    let misplaced = tenancy().prune(&mut objects);

    assert_eq!(misplaced, []);
    assert_eq!(objects, planned(ROME));
}
