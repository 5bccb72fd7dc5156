//! Refusals, before which nothing is written.

use super::*;

/// Runs the command, and returns its error.
async fn refusal(rome: &Rome, arguments: &[&str]) -> String {
    let error = rome.offload(arguments).await.unwrap_err();
    assert_eq!(rome.writes(), 0, "{error:#}");
    format!("{error:#}")
}

#[tokio::test]
async fn a_change_of_an_immutable_field_is_refused_with_field_and_remedy() {
    let rome = Rome::start();
    let strategy = "--namespace-mapping-strategy=SelectedName";
    let existing = parse(&["demo", strategy, "--remote-namespace-name=twin"]);
    rome.server.put(DEMO, existing.desired().manifest("demo"));

    let error = refusal(&rome, &["shop", "demo"]).await;
    for part in [
        "spec.namespaceMappingStrategy of NamespaceOffloading demo/offloading is SelectedName and cannot be changed to DefaultName",
        "set --namespace-mapping-strategy SelectedName",
        "liqoctl unoffload namespace demo",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let error = refusal(&rome, &["demo", strategy, "--remote-namespace-name=other"]).await;
    for part in [
        "spec.remoteNamespaceName of NamespaceOffloading demo/offloading is twin and cannot be changed to other",
        "set --remote-namespace-name twin",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn an_absent_strategy_of_an_existing_object_is_the_default_one() {
    let rome = Rome::start();
    let mut existing = parse(&["demo"]).desired().manifest("demo");
    existing["spec"] = json!({});
    rome.server.put(DEMO, existing);

    let error = refusal(
        &rome,
        &["demo", "--namespace-mapping-strategy=EnforceSameName"],
    )
    .await;
    assert!(error.contains("is DefaultName and cannot be changed"));
    rome.offload_with(&["demo"], ready()).await.unwrap();
}

#[tokio::test]
async fn protected_and_missing_namespaces_are_refused_with_the_remedy() {
    let rome = Rome::start();
    put_namespace(&rome.server, "kube-system", json!({}));
    put_namespace(&rome.server, "liqo", json!({}));
    let labels = json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/tenant-namespace": "true"});
    put_namespace(&rome.server, "liqo-tenant-milan", labels);
    rome.server.put(
        "/api/v1/namespaces/leaving",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": "leaving", "deletionTimestamp": "2026-11-21T08:15:18Z",
        }}),
    );
    for (name, part) in [
        ("kube-system", "belongs to Kubernetes; create a namespace"),
        ("liqo", "Liqo is installed in it; create a namespace"),
        ("liqo-tenant-milan", "tenant namespace of milan"),
        ("leaving", "is being deleted; wait until it is gone"),
        ("absent", "create it with `kubectl create namespace absent`"),
    ] {
        let error = refusal(&rome, &["demo", name]).await;
        assert!(error.contains(part), "{name}: {error}");
    }
}

#[tokio::test]
async fn selected_namespaces_exclude_protected_ones() {
    let rome = Rome::start();
    put_namespace(&rome.server, "kube-system", json!({"team": "ops"}));
    put_namespace(&rome.server, "other", json!({"team": "ops"}));
    let flags = parse(&["--ns-selector=team=ops"]);

    let targets = read(&rome.cluster, &flags, &flags.desired()).await.unwrap();

    let names: Vec<&str> = targets.iter().map(|(it, _)| it.name.as_str()).collect();
    assert_eq!(names, ["other"]);
    let error = refusal(&rome, &["--ns-selector=team=none"]).await;
    assert!(
        error.contains("no namespace in the local cluster"),
        "{error}"
    );
    rome.server.remove("/api/v1/namespaces/other");
    let error = refusal(&rome, &["--ns-selector=team=ops"]).await;
    assert!(error.contains("no other namespace is selected"), "{error}");
}

#[tokio::test]
async fn a_name_that_several_remote_namespaces_would_have_is_refused() {
    let rome = Rome::start();
    let flags = [
        "--ns-selector=team=shop",
        "--namespace-mapping-strategy=SelectedName",
        "--remote-namespace-name=twin",
    ];

    let error = refusal(&rome, &flags).await;

    assert!(
        error.contains("twin is for one namespace, and 2 are chosen"),
        "{error}"
    );
}

#[tokio::test]
async fn a_remote_namespace_whose_name_is_too_long_is_refused() {
    let rome = Rome::start();
    let long = "a".repeat(59);
    put_namespace(&rome.server, &long, json!({}));

    let error = refusal(&rome, &[&long]).await;

    assert!(
        error.contains("--namespace-mapping-strategy SelectedName"),
        "{error}"
    );
    let flags = parse(&[&long, "--namespace-mapping-strategy=EnforceSameName"]);
    read(&rome.cluster, &flags, &flags.desired()).await.unwrap();
}

#[tokio::test]
async fn a_cluster_without_liqo_is_refused() {
    let rome = Rome::start();
    rome.server
        .remove("/api/v1/namespaces/liqo/configmaps/liqo-clusterid-configmap");

    let error = refusal(&rome, &["demo"]).await;

    assert!(error.contains("run `liqoctl install`"), "{error}");
}

#[tokio::test]
async fn a_silent_api_server_ends_the_command_at_its_limit() {
    let rome = Rome::start();
    rome.front.set(|_| Reply::Silence);
    let limit = Duration::from_millis(300);

    let error = rome.offload_within(&["demo"], limit).await.unwrap_err();

    let error = error.to_string();
    assert!(error.starts_with("nothing was changed"), "{error}");
}
