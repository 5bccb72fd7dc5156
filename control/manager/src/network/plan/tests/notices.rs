//! Events: each change is reported once.

use super::*;

/// Returns the Events since the last call.
fn reported(rome: &mut Cluster) -> Vec<String> {
    rome.settle();
    let notices = std::mem::take(&mut rome.notices);
    let line = |it: crate::network::plan::Notice| {
        let mark = if it.is_warning { "!" } else { "" };
        format!("{mark}{} {}: {}", it.kind, it.reason, it.note)
    };
    notices.into_iter().map(line).collect()
}

fn with_tunnel() -> Cluster {
    let mut rome = rome();
    with_milan(&mut rome);
    rome.put(Kind::GatewayClient, client("milan"));
    rome.put(Kind::PublicKey, public_key("milan", 8));
    rome
}

fn set(rome: &mut Cluster, value: &str) {
    let status = json!({"status": {"value": value, "latency": {"value": "1ms"}}});
    rome.edit(Kind::Connection, &key("gw-milan"), status);
}

#[test]
fn each_change_of_a_tunnel_is_reported_with_the_same_message() {
    let mut rome = with_tunnel();
    reported(&mut rome);
    let up = "Connection TunnelUp: the tunnel to milan is up";

    set(&mut rome, "Connected");
    assert_eq!(reported(&mut rome), [up]);
    rome.edit(
        Kind::Connection,
        &key("gw-milan"),
        json!({"status": {"latency": {"value": "2ms"}}}),
    );
    assert_eq!(reported(&mut rome), [""; 0], "a latency is no change");
    set(&mut rome, "Error");
    let down = reported(&mut rome);
    assert!(
        matches!(&*down, [one] if one.starts_with("!Connection TunnelDown: the tunnel to milan is down")),
        "{down:?}"
    );
    set(&mut rome, "Connected");
    assert_eq!(reported(&mut rome), [up]);
}

#[test]
fn a_restarted_manager_reports_no_earlier_state() {
    let mut rome = with_tunnel();
    rome.put(
        Kind::GatewayServer,
        server("milan", &json!({"serviceType": "NodePort"})),
    );
    rome.settle();
    set(&mut rome, "Connected");
    reported(&mut rome);

    rome.restart();
    let news = reported(&mut rome);

    let is_repeated =
        |it: &&String| it.contains("Tunnel") || it.contains("Remapped") || it.contains("Assigned");
    assert_eq!(news.iter().find(is_repeated), None);
}

#[test]
fn remapped_cidrs_and_endpoints_are_reported_initially_and_on_change() {
    let mut rome = rome();
    with_milan(&mut rome);
    let seen = reported(&mut rome);
    assert_eq!(
        seen.iter()
            .filter(|it| it.contains("Remapped"))
            .collect::<Vec<_>>(),
        [
            "Configuration Remapped: the peer's pod CIDRs are remapped: 10.244.0.0/16 to 10.0.0.0/16",
            "Configuration Remapped: the peer's external CIDRs are remapped: 10.70.0.0/16 to 10.1.0.0/16",
        ]
    );

    rome.put(
        Kind::GatewayServer,
        server(
            "milan",
            &json!({"serviceType": "NodePort", "nodePort": 30007}),
        ),
    );
    let assigned = "GatewayServer EndpointAssigned: peers reach it at 172.18.1.2, 172.18.1.3, UDP port 30007 \
                    (Service liqo/liqo-gateway)";
    let news = reported(&mut rome);
    assert_eq!(
        news.iter().filter(|it| *it == assigned).count(),
        1,
        "{news:?}"
    );

    rome.put(Kind::Node, node("rome-3", "172.18.1.4"));
    let news = reported(&mut rome);
    let changed = news.iter().find(|it| it.contains("EndpointAssigned"));
    assert!(
        changed.is_some_and(|it| it.contains("172.18.1.4")),
        "{news:?}"
    );
}
