//! Services that peers export.

use super::side::{exported, milan};
use super::{Side, key};
use control_api::{ExportedService, ForeignCluster, ServiceExport};
use control_runtime::Key;
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn the_exports_of_all_clusters_are_one_service() {
    for seed in 0..8 {
        let mut rome = Side::new(seed);
        rome.put_of_turin(exported(|_| {}));
        rome.put_of_milan(exported(|it| {
            it["spec"]["ports"] = json!([{"name": "https", "protocol": "TCP", "port": 443}]);
            it["spec"]["exportedAt"] = json!("2026-11-21T10:00:00Z");
        }));
        assert_eq!(rome.endpoints(), ["milan 10.72.0.7", "turin 10.71.0.7"]);
        let names = |import: &Value| {
            let ports = import["spec"]["ports"].as_array().cloned().unwrap();
            ports
                .iter()
                .map(|it| it["name"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&rome.import()), ["http", "https"]);

        rome.export();
        let clusters = json!([{"cluster": "milan"}, {"cluster": "rome"}, {"cluster": "turin"}]);
        assert_eq!(rome.import()["status"]["clusters"], clusters);
        assert_eq!(rome.endpoints().len(), 4);
        assert_eq!(rome.condition("Conflict"), "True PortConflict");
        assert_eq!(rome.derived()[0]["spec"]["ports"][1]["port"], 443);
        rome.assert_settled();

        rome.remove::<ServiceExport>(&key("web"));
        rome.remove::<ExportedService>(&Key::new("liqo-tenant-turin", "web.shop.turin"));
        assert_eq!(rome.endpoints(), ["milan 10.72.0.7"]);
        let server = rome.simulation.cluster(&milan());
        server.remove::<ExportedService>(&Key::new(super::side::REMOTE, "web.shop.milan"));
        rome.pass();
        assert!(rome.import().is_null() && rome.derived().is_empty());
        rome.assert_settled();
    }
}

#[test]
fn only_ports_that_a_cluster_has_in_common_lead_to_it() {
    let mut rome = Side::new(1);
    rome.export();
    rome.put_of_turin(exported(|it| it["spec"]["ports"][0]["port"] = json!(8888)));

    let ports = rome.import()["spec"]["ports"].clone();
    assert_eq!(
        ports,
        json!([{"name": "http", "protocol": "TCP", "port": 80}])
    );
    let slices = rome
        .simulation
        .local()
        .all::<k8s_openapi::api::discovery::v1::EndpointSlice>();
    let of_turin = slices.into_iter().find(|it| {
        it["metadata"]["labels"]["multicluster.kubernetes.io/source-cluster"] == "turin"
    });
    let of_turin = of_turin.unwrap();
    assert!(
        of_turin["ports"].as_array().is_none_or(Vec::is_empty),
        "{of_turin}"
    );
    assert_eq!(rome.condition("Conflict"), "True PortConflict");
}

#[test]
fn namespaces_that_are_not_chosen_import_nothing_of_peers() {
    let mut rome = Side::new(2);
    rome.put_of_turin(exported(|_| {}));
    rome.put_namespace("shop", &json!({"import": "false"}));
    rome.pass();
    assert!(rome.import().is_null() && rome.endpoints().is_empty());

    rome.export();
    assert_eq!(rome.endpoints(), ["rome 10.244.1.2", "rome 192.0.2.7"]);
    rome.put_namespace("shop", &json!({"import": "true"}));
    rome.pass();
    assert_eq!(rome.endpoints().len(), 3);
    rome.assert_settled();
}

#[test]
fn endpoints_of_a_peer_are_ready_while_it_is_connected() {
    let mut rome = Side::new(3);
    rome.put_of_turin(exported(|_| {}));
    rome.put_of_milan(exported(|_| {}));
    rome.put_peer("turin", "Consumer", "Error");
    rome.put_peer("milan", "Provider", "Error");
    rome.pass();
    assert_eq!(rome.endpoints(), ["milan !10.72.0.7", "turin !10.71.0.7"]);

    rome.put_peer("turin", "Consumer", "Established");
    rome.pass();
    assert_eq!(rome.endpoints(), ["milan !10.72.0.7", "turin 10.71.0.7"]);
}

/// The API server of a provider may not respond when the manager starts.
#[test]
fn what_a_provider_has_exported_stays_while_it_cannot_be_read() {
    let mut rome = Side::new(4);
    rome.put_of_milan(exported(|_| {}));
    rome.simulation.partition(&milan());
    rome.simulation.crash(0);
    rome.simulation.crash(1);
    rome.simulation.pass(Duration::from_secs(30));
    assert_eq!(rome.endpoints(), ["milan 10.72.0.7"]);
    assert_eq!(rome.import()["spec"]["ips"], json!(["10.96.0.77"]));

    rome.put_peer("milan", "Provider", "Error");
    rome.pass();
    assert_eq!(rome.endpoints(), ["milan !10.72.0.7"]);
    rome.export();
    assert_eq!(rome.endpoints().len(), 3);

    rome.put_peer("milan", "Provider", "Established");
    rome.simulation.heal(&milan());
    rome.simulation.pass(Duration::from_secs(60));
    assert_eq!(rome.endpoints()[0], "milan 10.72.0.7");
    rome.assert_settled();

    rome.remove::<ForeignCluster>(&Key::cluster("milan"));
    assert_eq!(rome.endpoints(), ["rome 10.244.1.2", "rome 192.0.2.7"]);
}

#[test]
fn a_reciprocal_peer_counts_once() {
    let mut rome = Side::new(5);
    rome.put_peer("milan", "ConsumerAndProvider", "Established");
    rome.pass();
    rome.put_of_milan(exported(|_| {}));
    assert!(rome.import().is_null(), "milan replicates its exports");
    rome.export();
    let object = Key::new("liqo-tenant-milan", "web.shop.rome");
    let labels = rome.object::<ExportedService>(&object)["metadata"]["labels"].clone();
    assert_eq!(labels["liqo.io/replication"], "true");
    rome.assert_settled();
}
