//! The IPs of the API server and of the proxy in front of it.

use super::*;
use crate::network::item::WorkItem;
use crate::network::kind::ReachedService;

fn service(cluster_ip: &str) -> Value {
    json!({
        "metadata": {
            "name": "liqo-proxy",
            "namespace": "liqo",
            "labels": {"app.kubernetes.io/name": "proxy"},
        },
        "spec": {
            "clusterIP": cluster_ip,
            "clusterIPs": [cluster_ip],
            "ports": [{"port": 8118}],
        },
    })
}

fn ip_key() -> Key {
    Key::new("liqo", "api-server-proxy")
}

/// An IP of a user.
fn ip(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "demo"}, "spec": {"ip": "192.0.2.9"}})
}

fn service_key() -> Key {
    Key::new("liqo", "liqo-proxy")
}

fn with_proxy() -> Cluster {
    let mut rome = rome();
    rome.put(Kind::ProxyService, service("10.96.176.236"));
    rome.settle();
    rome
}

#[test]
fn the_proxy_has_an_ip_as_upstreams_has() {
    let rome = with_proxy();

    let ip = rome.get(Kind::Ip, &ip_key());
    assert_eq!(ip["spec"], json!({"ip": "10.96.176.236"}));
    let metadata = &ip["metadata"];
    let annotations = json!({"liqo.io/preinstalled": "true"});
    assert_eq!(metadata["annotations"], annotations);
    assert_eq!(
        metadata["labels"],
        json!({
            "ipam.liqo.io/ip-type": "api-server-proxy",
            "ipam.liqo.io/network-name": "external-cidr",
            "ipam.liqo.io/network-namespace": "liqo",
            "liqo.io/managed": "true",
        })
    );
    assert_eq!(
        ip["status"],
        json!({"cidr": "10.70.0.0/16", "ip": "10.70.0.3"})
    );
    assert_eq!(rome.names(Kind::Service).len(), 0, "it has no template");
}

fn with_api_server() -> Cluster {
    let mut rome = rome();
    rome.put(
        Kind::ApiServerService,
        json!({
            "metadata": {"name": "kubernetes", "namespace": "default"},
            "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"]},
        }),
    );
    rome.settle();
    rome
}

#[test]
fn an_api_server_that_is_not_exposed_has_no_ip() {
    let mut rome = with_api_server();
    rome.state.settings.exposes_api_server = false;
    rome.work(&WorkItem::ServiceIp(ReachedService::ApiServer));
    rome.settle();

    let key = Key::new("liqo", "api-server");
    assert!(rome.get(Kind::Ip, &key).is_null());
    assert!(rome.notices.is_empty());
}

#[test]
fn the_api_server_has_an_ip_as_upstreams_has() {
    let rome = with_api_server();

    let ip = rome.get(Kind::Ip, &Key::new("liqo", "api-server"));
    assert_eq!(ip["spec"], json!({"ip": "10.96.0.1"}));
    assert_eq!(
        ip["metadata"]["annotations"],
        json!({"liqo.io/preinstalled": "true"})
    );
    assert_eq!(
        ip["metadata"]["labels"],
        json!({
            "ipam.liqo.io/ip-type": "api-server",
            "ipam.liqo.io/network-name": "external-cidr",
            "ipam.liqo.io/network-namespace": "liqo",
            "liqo.io/managed": "true",
        })
    );
    assert_eq!(ip["status"]["cidr"], "10.70.0.0/16");
}

#[test]
fn the_ip_follows_the_service_and_keeps_its_address() {
    let mut rome = with_proxy();
    let status = rome.get(Kind::Ip, &ip_key())["status"].clone();

    rome.edit(Kind::ProxyService, &service_key(), service("10.96.0.77"));
    rome.settle();
    let changed = rome.get(Kind::Ip, &ip_key()).clone();
    rome.delete(Kind::Ip, &ip_key());
    // The request of the proxy's item is in progress when another IP is planned.
    let other = rome.put(Kind::Ip, ip("a"));
    for key in [ip_key(), other] {
        rome.work(&WorkItem::Ip(key));
    }
    rome.settle();
    let restored = rome.get(Kind::Ip, &ip_key()).clone();

    for ip in [changed, restored] {
        assert_eq!(ip["spec"]["ip"], "10.96.0.77");
        assert_eq!(ip["status"], status, "peers know the address");
    }
}

#[test]
fn the_ip_is_deleted_with_the_service() {
    let mut rome = with_proxy();

    rome.delete(Kind::ProxyService, &service_key());
    rome.settle();

    assert!(rome.get(Kind::Ip, &ip_key()).is_null());
    let other = rome.put(Kind::Ip, ip("a"));
    rome.settle();
    let address = &rome.get(Kind::Ip, &other)["status"]["ip"];
    assert_eq!(address, "10.70.0.3", "the address is free again");
}

#[test]
fn the_address_is_free_although_the_ip_was_deleted_before_the_service() {
    let mut rome = with_proxy();

    rome.delete(Kind::Ip, &ip_key());
    rome.work(&WorkItem::Ip(ip_key()));
    rome.delete(Kind::ProxyService, &service_key());
    rome.work(&WorkItem::ServiceIp(ReachedService::Proxy));

    let other = rome.put(Kind::Ip, ip("a"));
    rome.work(&WorkItem::Ip(other.clone()));
    assert_eq!(rome.get(Kind::Ip, &other)["status"]["ip"], "10.70.0.3");
}

#[test]
fn an_ip_of_a_proxy_that_was_removed_while_no_manager_ran_is_deleted() {
    let mut rome = with_proxy();
    rome.remove_alone(Kind::ProxyService, &service_key());

    rome.restart();
    rome.settle();

    assert!(rome.get(Kind::Ip, &ip_key()).is_null());
}

#[test]
fn a_service_of_that_name_elsewhere_is_not_the_proxy() {
    let mut rome = rome();
    let mut service = service("10.96.0.77");
    service["metadata"]["namespace"] = json!("demo");
    service["metadata"]["labels"]["liqo.io/managed"] = json!("true");

    let key = rome.put(Kind::Service, service);
    rome.settle();

    let kind = Kind::of(&Kind::Service.resource(), &key, "liqo");
    assert_eq!(kind, Some(Kind::Service));
    assert!(rome.get(Kind::Ip, &ip_key()).is_null());
}

#[test]
fn a_service_without_a_cluster_ip_is_reported() {
    let mut rome = rome();

    rome.put(Kind::ProxyService, service("None"));
    rome.settle();

    assert!(rome.get(Kind::Ip, &ip_key()).is_null());
    let reasons = rome.notices.iter().map(|it| it.reason);
    assert_eq!(Vec::from_iter(reasons), ["NoAddress"]);
}

#[test]
fn an_ip_of_a_user_with_that_name_is_reported_and_stays() {
    let mut rome = rome();
    let ip = json!({
        "metadata": {"name": "api-server-proxy", "namespace": "liqo"},
        "spec": {"ip": "192.0.2.9"},
    });
    rome.put(Kind::Ip, ip);

    rome.put(Kind::ProxyService, service("10.96.0.77"));
    rome.settle();

    assert_eq!(rome.get(Kind::Ip, &ip_key())["spec"]["ip"], "192.0.2.9");
    let reasons = rome.notices.iter().map(|it| it.reason);
    assert_eq!(Vec::from_iter(reasons), ["NameTaken"]);
}
