//! Tests which sources may scrape `/metrics` or connect to the proxy, by evaluating the NetworkPolicies
//! of the rendered chart.

use serde_json::{Value, json};

const MINIMAL: &str = include_str!("../golden/minimal.yaml");
const EVERYTHING: &str = include_str!("../golden/everything.yaml");
const UPSTREAM: &str = include_str!("../golden/upstream.yaml");
const NO_NETWORKING: &str = include_str!("../golden/no-networking.yaml");

/// The sources that the NetworkPolicies allow to connect to a port.
#[derive(Debug, PartialEq, Eq)]
enum Sources {
    Any,
    /// Only sources that match one of these entries of `spec.ingress.from`.
    Peers(Vec<Value>),
}

#[test]
fn only_the_configured_peers_may_scrape() {
    let monitoring = json!([{
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
    }]);
    let configured = json!([
        {
            "namespaceSelector": {"matchLabels": {"team": "observability"}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
        },
        {"ipBlock": {"cidr": "10.9.0.0/24"}},
    ]);

    for (golden, workloads, peers) in [
        (MINIMAL, 3, monitoring),
        (EVERYTHING, 4, configured),
        (NO_NETWORKING, 2, json!([])),
    ] {
        let objects = objects(golden);
        let pods = pods(&objects, false);
        assert_eq!(pods.len(), workloads);
        let expected = Sources::Peers(peers.as_array().unwrap().clone());
        for pod in pods {
            let mut ports = ports(pod, "TCP");
            ports.retain(|port| {
                !["proxy", "webhook", "https"]
                    .iter()
                    .any(|it| port["name"] == *it)
            });
            assert!(!ports.is_empty(), "{pod:#}");
            for port in ports {
                assert_eq!(sources(&objects, pod, port), expected, "{port}");
            }
        }
    }
}

#[test]
fn only_the_allowed_cidrs_reach_the_proxy() {
    let pools = ["10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12"];
    for (golden, cidrs) in [
        (EVERYTHING, ["10.61.0.0/16", "172.18.0.0/16"].as_slice()),
        (UPSTREAM, pools.as_slice()),
    ] {
        let objects = objects(golden);
        let pods = pods(&objects, false);
        let proxies: Vec<_> = pods
            .iter()
            .flat_map(|pod| ports(pod, "TCP").into_iter().map(move |port| (*pod, port)))
            .filter(|(_, port)| port["name"] == "proxy")
            .collect();
        assert_eq!(proxies.len(), 1);
        let (pod, port) = proxies[0];

        let blocks = cidrs.iter().map(|cidr| json!({"ipBlock": {"cidr": cidr}}));
        let expected = Sources::Peers(blocks.collect());
        assert_eq!(sources(&objects, pod, port), expected);
    }
}

/// API servers may have any address.
#[test]
fn every_sender_reaches_the_webhooks_and_the_service_selects_their_pods() {
    for golden in [MINIMAL, EVERYTHING, UPSTREAM, NO_NETWORKING] {
        let objects = objects(golden);
        let pods = pods(&objects, false);
        let ports: Vec<_> = pods
            .iter()
            .flat_map(|pod| ports(pod, "TCP").into_iter().map(move |port| (*pod, port)))
            .filter(|(_, port)| port["name"] == "webhook")
            .collect();
        assert_eq!(ports.len(), 1);
        let (pod, port) = ports[0];
        assert_eq!(sources(&objects, pod, port), Sources::Any);

        let mut services = objects.iter().filter(|it| it["kind"] == "Service");
        let service = services.find(|it| it["metadata"]["name"] == "liqo-webhook");
        let service = &service.unwrap()["spec"];
        assert_eq!(service["ports"][0]["port"], 9443);
        assert_eq!(service["ports"][0]["targetPort"], "webhook");
        let mut selected = service["selector"].as_object().unwrap().iter();
        assert!(selected.all(|(key, value)| pod["metadata"]["labels"][key] == *value));
    }
}

/// The agent verifies the certificate of the API server, which may have any address.
#[test]
fn every_sender_reaches_the_metric_agent_unless_the_values_list_sources() {
    let listed = json!([{"ipBlock": {"cidr": "172.18.0.0/16"}}]);
    let listed = Sources::Peers(listed.as_array().unwrap().clone());
    for (golden, expected) in [
        (MINIMAL, Sources::Any),
        (UPSTREAM, Sources::Any),
        (EVERYTHING, listed),
    ] {
        let objects = objects(golden);
        let pods = pods(&objects, false);
        let ports: Vec<_> = pods
            .iter()
            .flat_map(|pod| ports(pod, "TCP").into_iter().map(move |port| (*pod, port)))
            .filter(|(_, port)| port["name"] == "https")
            .collect();
        assert_eq!(ports.len(), 1);
        let (pod, port) = ports[0];
        assert_eq!(sources(&objects, pod, port), expected);
    }
}

#[test]
fn every_sender_reaches_the_data_plane() {
    for golden in [MINIMAL, EVERYTHING] {
        let objects = objects(golden);
        let pods = pods(&objects, false);
        let udp: Vec<_> = pods
            .iter()
            .flat_map(|pod| ports(pod, "UDP").into_iter().map(move |port| (*pod, port)))
            .collect();
        assert_eq!(udp.len(), 2, "the ports of WireGuard and of the overlay");
        for (pod, port) in udp {
            assert_eq!(sources(&objects, pod, port), Sources::Any, "{port}");
        }
    }
}

/// The route agent's pods use the node's network, to which NetworkPolicies do not apply. The listen
/// address must therefore restrict access.
#[test]
fn the_route_agent_listens_on_the_nodes_address_only_with_metrics() {
    for (golden, address, probed) in [
        (MINIMAL, "--http=127.0.0.1:8083", json!("127.0.0.1")),
        (EVERYTHING, "--http=$(HOST_IP):9000", Value::Null),
    ] {
        let objects = objects(golden);
        let pods = pods(&objects, true);
        assert_eq!(pods.len(), 1);
        let container = &pods[0]["spec"]["containers"][0];

        let arguments = container["args"].as_array().unwrap();
        assert!(arguments.iter().any(|it| it == address), "{container:#}");
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(container[probe]["httpGet"]["host"], probed, "{probe}");
        }
    }
}

fn objects(golden: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(golden).unwrap()
}

/// Returns the pod templates of all workloads whose `hostNetwork` has the value `host_network`.
fn pods(objects: &[Value], host_network: bool) -> Vec<&Value> {
    let templates = objects.iter().map(|object| &object["spec"]["template"]);
    templates
        .filter(|template| template["spec"]["containers"].is_array())
        .filter(|template| (template["spec"]["hostNetwork"] == true) == host_network)
        .collect()
}

fn ports<'a>(pod: &'a Value, protocol: &str) -> Vec<&'a Value> {
    let containers = pod["spec"]["containers"].as_array().unwrap();
    containers
        .iter()
        .flat_map(|container| container["ports"].as_array().into_iter().flatten())
        .filter(|port| port["protocol"] == protocol)
        .collect()
}

fn sources(objects: &[Value], pod: &Value, port: &Value) -> Sources {
    let mut policies = objects
        .iter()
        .filter(|object| object["kind"] == "NetworkPolicy" && selects(&object["spec"], pod))
        .peekable();
    if policies.peek().is_none() {
        return Sources::Any;
    }
    let mut peers = Vec::new();
    let rules =
        policies.flat_map(|policy| policy["spec"]["ingress"].as_array().into_iter().flatten());
    for rule in rules.filter(|rule| applies(rule, port)) {
        match rule["from"].as_array() {
            Some(from) if !from.is_empty() => peers.extend(from.iter().cloned()),
            _ => return Sources::Any,
        }
    }

    Sources::Peers(peers)
}

fn selects(policy: &Value, pod: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    let mut wanted = policy["podSelector"]["matchLabels"]
        .as_object()
        .unwrap()
        .iter();

    policy["policyTypes"] == json!(["Ingress"]) && wanted.all(|(key, value)| labels[key] == *value)
}

/// Returns whether an ingress rule applies to a container's port. An entry without a port number
/// applies to all ports of its protocol.
fn applies(rule: &Value, port: &Value) -> bool {
    let Some(ports) = rule["ports"].as_array() else {
        return true;
    };
    ports.iter().any(|it| {
        let named = &it["port"];
        it["protocol"] == port["protocol"]
            && (named.is_null() || *named == port["name"] || *named == port["containerPort"])
    })
}
