//! Tests that dashboard and alerts contain valid PromQL and use only exported metrics.

use super::promql::metrics;
use serde_json::Value;
use std::collections::BTreeSet;

const DASHBOARD: &str = include_str!("../../liqo/files/dashboard.json");
const ALERTS: &str = include_str!("../../liqo/files/alerts.yaml");

/// Names and contents of the golden files whose values enable networking.
const GOLDEN: [(&str, &str); 3] = [
    ("minimal", include_str!("../golden/minimal.yaml")),
    ("upstream", include_str!("../golden/upstream.yaml")),
    ("everything", include_str!("../golden/everything.yaml")),
];

/// The source file that registers the metrics of watches and requests, in every process.
const RUNTIME: &str = include_str!("../../../control/runtime/src/metrics.rs");

/// The source file that registers the metrics of the watches of gateways and route agents.
const SOURCE: &str = include_str!("../../../control/source/src/metrics.rs");

/// Prefix of the metrics of each process, and the source file that registers these metrics.
const SOURCES: [(&str, &str); 9] = [
    (
        "liqo_controller_manager_",
        include_str!("../../../control/manager/src/metrics.rs"),
    ),
    ("liqo_controller_manager_", RUNTIME),
    (
        "liqo_gateway_",
        include_str!("../../../gateway/src/shell/metrics.rs"),
    ),
    ("liqo_gateway_", RUNTIME),
    ("liqo_gateway_", SOURCE),
    (
        "liqo_route_agent_",
        include_str!("../../../route-agent/src/metrics.rs"),
    ),
    ("liqo_route_agent_", RUNTIME),
    ("liqo_route_agent_", SOURCE),
    (
        "liqo_",
        include_str!("../../../gateway/src/shell/metrics/upstream.rs"),
    ),
];

/// Suffixes that the Prometheus encoder appends to a registered name.
const SUFFIXES: [&str; 6] = [
    "",
    "_total",
    "_bytes_total",
    "_seconds",
    "_seconds_bucket",
    "_bytes",
];

#[test]
fn every_expression_is_promql_and_every_metric_in_it_is_exported() {
    let expressions = [panels_expressions(), alerts_expressions()].concat();
    assert!(expressions.len() > 20, "{}", expressions.len());

    for (place, expression) in expressions {
        let names =
            metrics(&expression).unwrap_or_else(|error| panic!("{place}: {expression}: {error}"));
        assert!(!names.is_empty(), "{place}: no metric in {expression}");
        for name in names {
            assert!(is_exported(&name), "{place}: no process exports {name}");
        }
    }
}

#[test]
fn the_metrics_of_upstreams_dashboard_are_exported() {
    for name in [
        "liqo_peer_is_connected",
        "liqo_peer_latency_us",
        "liqo_peer_receive_bytes_total",
        "liqo_peer_transmit_bytes_total",
    ] {
        assert!(is_exported(name), "{name}");
    }
}

#[test]
fn a_wrong_name_and_a_wrong_expression_are_detected() {
    assert!(!is_exported("liqo_gateway_peer_upp"));
    assert!(!is_exported("node_load1"));
    assert!(metrics("sum by (x (liqo_gateway_up)").is_err());
    assert_eq!(
        metrics("absent(liqo_gateway_up == 1) or rate(liqo_gateway_rx_bytes_total[5m])").unwrap(),
        ["liqo_gateway_rx_bytes_total", "liqo_gateway_up"]
            .map(str::to_owned)
            .into(),
    );
}

#[test]
fn panels_have_titles_units_and_unique_ids() {
    let mut numbers = BTreeSet::new();
    for panel in panels() {
        let title = panel["title"].as_str().unwrap_or_default();
        assert!(!title.is_empty(), "{panel}");
        assert!(
            numbers.insert(panel["id"].as_u64().unwrap()),
            "{title}: another panel has the same id"
        );
        if panel["type"] == "row" {
            continue;
        }
        let unit = &panel["fieldConfig"]["defaults"]["unit"];
        assert!(
            unit.as_str().is_some_and(|unit| !unit.is_empty()),
            "{title} has no unit"
        );
        assert!(!panel["targets"].as_array().unwrap().is_empty(), "{title}");
    }
}

#[test]
fn alerts_have_a_severity_a_summary_and_a_description() {
    let mut names = BTreeSet::new();
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap().to_owned();
        let severity = alert["labels"]["severity"].as_str();
        assert!(
            matches!(severity, Some("critical" | "warning" | "info")),
            "{name}"
        );
        for text in ["summary", "description"] {
            assert!(alert["annotations"][text].is_string(), "{name}: {text}");
        }
        assert!(alert["for"].is_string(), "{name}");
        assert!(names.insert(name.clone()), "{name} is defined twice");
    }
}

/// In a pod, the gateway mounts no file systems, so it works with the default seccomp and AppArmor
/// profiles of the container runtime.
#[test]
fn the_gateway_runs_with_the_default_profiles_of_seccomp_and_apparmor() {
    for (name, golden) in GOLDEN {
        let gateway = golden
            .split("\n---\n")
            .find(|it| it.contains("kind: Deployment\n") && it.contains("  name: liqo-gateway\n"))
            .unwrap_or_else(|| panic!("{name}: no gateway"));

        let profile = "        seccompProfile: {type: RuntimeDefault}\n";
        assert!(gateway.contains(profile), "{name}: no {profile}");
        // On a node without AppArmor, the kubelet rejects a pod that names an AppArmor profile.
        assert!(!gateway.contains("appArmorProfile"), "{name}");
        assert!(!golden.contains("Unconfined"), "{name}");
    }
}

fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let rows = dashboard["panels"].as_array().unwrap().clone();
    let inner = rows.iter().filter_map(|row| row["panels"].as_array());
    let inner: Vec<_> = inner.flatten().cloned().collect();

    [rows, inner].concat()
}

fn panels_expressions() -> Vec<(String, String)> {
    let panels = panels();
    let targets = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(move |target| (text(&panel["title"]), text(&target["expr"])))
    });

    // Grafana replaces this variable before it sends an expression to Prometheus.
    let variable = "$__rate_interval";
    targets
        .map(|(title, expression)| (title, expression.replace(variable, "5m")))
        .collect()
}

fn alerts() -> Vec<Value> {
    serde_saphyr::from_str(ALERTS).unwrap()
}

fn alerts_expressions() -> Vec<(String, String)> {
    let alerts = alerts();
    let pairs = alerts
        .iter()
        .map(|alert| (text(&alert["alert"]), text(&alert["expr"])));
    pairs.collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns whether a process exports a metric with this name.
fn is_exported(name: &str) -> bool {
    SOURCES.iter().any(|(prefix, source)| {
        let Some(rest) = name.strip_prefix(prefix) else {
            return false;
        };
        let mut registered = SUFFIXES
            .iter()
            .filter_map(|suffix| rest.strip_suffix(suffix));
        registered.any(|registered| source.contains(&format!("\"{registered}\",")))
    })
}
