//! Results of the controllers.

use super::*;

#[tokio::test]
async fn the_lines_equal_upstreams() {
    let rome = Rome::start();

    rome.offload_with(&["demo"], ready()).await.unwrap();

    assert_eq!(
        take_lines(),
        [
            "Enabling namespace offloading for \"demo\"",
            "INFO: Offloading of namespace \"demo\" correctly enabled",
            "Waiting for offloading of namespace \"demo\" to complete",
            "INFO: Offloading completed successfully",
        ]
    );
}

#[tokio::test]
async fn a_repeated_command_writes_nothing() {
    let rome = Rome::start();
    let arguments = ["demo", "--selector=region=europe,!staging", "--selector=b"];
    rome.offload_with(&arguments, ready()).await.unwrap();
    assert_eq!(rome.writes(), 1);

    rome.offload(&arguments).await.unwrap();

    assert_eq!(rome.writes(), 1);
}

#[tokio::test]
async fn changed_flags_replace_the_selector_and_the_pod_strategy() {
    let rome = Rome::start();
    let first = ["demo", "--selector=a", "--pod-offloading-strategy=Remote"];
    rome.offload_with(&first, ready()).await.unwrap();

    rome.offload(&["demo"]).await.unwrap();

    let spec = rome.server.get(DEMO).unwrap()["spec"].clone();
    assert_eq!(spec["clusterSelector"], json!({"nodeSelectorTerms": []}));
    assert_eq!(spec["podOffloadingStrategy"], "LocalAndRemote");
}

#[tokio::test]
async fn the_phase_of_an_earlier_generation_is_no_result() {
    let rome = Rome::start();
    let mut earlier = ready();
    earlier["observedGeneration"] = 0.into();
    let limit = Duration::from_millis(700);

    let (offloaded, ()) =
        tokio::join!(rome.offload_within(&["demo"], limit), rome.control(earlier));

    let error = offloaded.unwrap_err().to_string();
    assert!(error.contains("took longer than 700ms"), "{error}");
    assert!(error.contains("has not processed NamespaceOffloading demo/offloading"));
    assert!(error.contains("run the same command again"), "{error}");
}

#[tokio::test]
async fn a_timeout_names_the_clusters_that_are_not_ready() {
    let rome = Rome::start();
    let creating =
        json!({"type": "Ready", "status": "False", "reason": "Creating", "message": "waiting"});
    let limit = Duration::from_millis(700);

    let (offloaded, ()) = tokio::join!(
        rome.offload_within(&["demo"], limit),
        rome.control(status("InProgress", creating)),
    );

    let error = offloaded.unwrap_err().to_string();
    assert!(
        error.contains("namespace demo is in phase InProgress: cluster milan: Creating (waiting)"),
        "{error}"
    );
}

#[tokio::test]
async fn a_failure_names_each_cluster_with_reason_and_message() {
    let failed = json!({
        "type": "Ready", "status": "False", "reason": "CreationLoopBackOff", "message": "demo-rome exists",
    });
    for (phase, scope) in [
        ("AllFailed", "to any selected cluster"),
        ("SomeFailed", "to all selected clusters"),
    ] {
        let rome = Rome::start();
        let mut status = status(phase, failed.clone());
        status["remoteNamespacesConditions"]["turin"] = json!([
            {"type": "OffloadingRequired", "status": "False", "reason": "ClusterNotSelected"},
        ]);

        let error = rome.offload_with(&["demo"], status).await.unwrap_err();

        let error = error.to_string();
        let expected = format!(
            "namespace demo is not offloaded {scope}: cluster milan: CreationLoopBackOff (demo-rome exists); if"
        );
        assert!(error.starts_with(&expected), "{error}");
        assert!(!error.contains("turin"), "{error}");
    }
}

#[tokio::test]
async fn a_failed_namespace_does_not_stop_another_one() {
    let rome = Rome::start();
    let failed = json!({"type": "Ready", "status": "False", "reason": "CreationLoopBackOff"});

    let shop = DEMO.replace("demo", "shop");
    let (offloaded, (), ()) = tokio::join!(
        rome.offload(&["demo", "shop"]),
        rome.control(status("AllFailed", failed)),
        rome.control_at(&shop, ready()),
    );

    let error = offloaded.unwrap_err().to_string();
    assert!(error.contains("namespace demo is not offloaded"), "{error}");
    let lines = take_lines();
    let done = "INFO: Offloading completed successfully";
    assert!(lines.iter().any(|line| line == done), "{lines:?}");
}

#[tokio::test]
async fn no_selected_cluster_is_a_warning() {
    let rome = Rome::start();
    let status = json!({"observedGeneration": 1, "offloadingPhase": "NoClusterSelected"});

    rome.offload_with(&["demo"], status).await.unwrap();

    let lines = take_lines();
    let done = "INFO: Offloading completed successfully";
    assert!(lines.iter().all(|line| line != done), "{lines:?}");
}

#[test]
fn the_warning_about_no_cluster_shows_the_labels_to_select() {
    let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(json!({"metadata": {
        "name": "milan", "labels": {
            "kubernetes.io/hostname": "milan", "liqo.io/type": "virtual-node",
            "liqo.io/remote-cluster-id": "milan", "region": "asia",
        },
    }}))
    .unwrap();
    let flags = parse(&["demo", "--selector=region=europe"]);
    let warning = |nodes| outcome::none_selected("demo", &flags.desired(), nodes);

    assert!(warning(Some(&[])).contains("there is no virtual node: peer with a provider"));
    assert!(warning(None).contains("has the labels of the selector \"region=europe\"; change"));
    let shown = warning(Some(std::slice::from_ref(&node)));
    assert!(
        shown.contains("(virtual nodes: milan [liqo.io/remote-cluster-id=milan region=asia])"),
        "{shown}"
    );
    let many = vec![node.clone(); 12];
    assert!(warning(Some(&many)).contains(", and 2 more)"));
}

#[tokio::test]
async fn an_object_that_is_being_deleted_is_replaced_once_it_is_gone() {
    let rome = Rome::start();
    let mut leaving = parse(&["demo", "--namespace-mapping-strategy=EnforceSameName"])
        .desired()
        .manifest("demo");
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T08:15:18Z".into();
    rome.server.put(DEMO, leaving);

    let ends = async {
        rome.front.received(Head::is_watch).await;
        assert_eq!(rome.writes(), 0);
        rome.server.remove(DEMO);
        rome.control(ready()).await;
    };
    let (offloaded, ()) = tokio::join!(rome.offload(&["demo"]), ends);

    offloaded.unwrap();
    let spec = rome.server.get(DEMO).unwrap()["spec"].clone();
    assert_eq!(spec["namespaceMappingStrategy"], "DefaultName");
}

#[tokio::test]
async fn a_user_with_rights_in_the_namespace_only_can_offload_it() {
    let rome = Rome::start();
    rome.forbid(|head| !head.target.contains("/namespaceoffloadings"));

    rome.offload_with(&["demo"], ready()).await.unwrap();
}
