//! Ephemeral containers and resizes of pods that run at the provider.

use super::*;
use control_runtime::Request;

/// Returns `rome` with a pod that runs at a provider of this project, or of upstream's.
fn rome_with(applies_changes: bool) -> Side {
    let mut rome = Side::new(1);
    rome.put_map("Accepted");
    rome.put::<Pod>(json!({
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"nodeName": "milan", "containers": [
            {"name": "web", "image": "web:1", "resources": resources("1")},
            {"name": "log", "image": "log:1"},
        ], "volumes": [{"name": "scratch", "emptyDir": {}}]},
        "status": {"phase": "Pending"},
    }));
    rome.pass();
    create_remote(&mut rome, applies_changes);
    rome
}

fn create_remote(rome: &mut Side, applies_changes: bool) {
    rome.put_remote("web", &running("10.244.1.7"));
    if applies_changes {
        annotate_remote(rome, "liqo.io/applies-changes", "true");
    }
}

fn annotate_remote(rome: &mut Side, key: &str, value: &str) {
    let name = Key::new("shop-rome", "web");
    let mut remote = rome.provider().get::<Pod>(&name).unwrap().clone();
    remote["metadata"]["annotations"][key] = json!(value);
    rome.provider().put::<Pod>(remote);
    rome.pass();
}

fn resources(cpu: &str) -> Value {
    json!({"limits": {"cpu": cpu}, "requests": {"cpu": cpu}})
}

fn debug(rome: &mut Side) {
    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["spec"]["ephemeralContainers"] = json!([{"name": "debugger", "image": "sh:1"}]);
    });
}

fn resize(rome: &mut Side, cpu: &str) {
    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["spec"]["containers"][0]["resources"] = resources(cpu);
    });
}

/// Returns the Events about changes.
fn notes(rome: &Side) -> Vec<String> {
    let events = rome.events().into_iter();
    events
        .filter(|it| it.starts_with("FailedReflection"))
        .collect()
}

#[test]
fn an_ephemeral_container_and_a_resize_are_written_once_and_change_nothing_else() {
    let mut rome = rome_with(true);
    let mut expected = rome.shadow("web")["spec"].clone();
    let before = rome.writes::<ShadowPod>();

    debug(&mut rome);
    resize(&mut rome, "2");

    expected["pod"]["ephemeralContainers"] = json!([{"name": "debugger", "image": "sh:1"}]);
    expected["pod"]["containers"][0]["resources"] = resources("2");
    assert_eq!(rome.shadow("web")["spec"], expected);
    assert_eq!(rome.writes::<ShadowPod>(), before + 2, "one for each");
    assert_eq!(notes(&rome), [""; 0]);
    let replanned = rome.simulation.replan(Duration::from_secs(1));
    let of_pods = replanned.unwrap_or_default().into_iter();
    let of_pods = of_pods.filter(|it| it.request.object().is_some_and(|it| it.key == pod_key()));
    assert_eq!(of_pods.count(), 0);
}

#[test]
fn a_change_of_the_spec_names_the_version_that_it_changes() {
    let mut rome = rome_with(true);
    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["metadata"]["labels"]["a"] = json!("b")
    });
    resize(&mut rome, "2");

    let log = rome.simulation.log().iter();
    let changes = log.filter_map(|sent| match &sent.request {
        Request::Write(write) if write.action.verb() == "patch" => Some(write),
        Request::Write(_) | Request::Read(_) | Request::Probe(_) => None,
    });
    let of_shadow = changes.filter(|it| it.object.resource.kind == "ShadowPod");
    let versions: Vec<_> = of_shadow.map(|it| it.resource_version.is_some()).collect();
    assert_eq!(versions, [false, true], "metadata, spec");
}

#[test]
fn labels_and_resources_that_change_together_are_one_write() {
    let mut rome = rome_with(true);
    let before = rome.writes::<ShadowPod>();

    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["metadata"]["labels"]["version"] = json!("2");
        pod["spec"]["containers"][0]["resources"] = resources("2");
    });

    let shadow = rome.shadow("web");
    assert_eq!(shadow["metadata"]["labels"]["version"], "2");
    assert_eq!(
        shadow["spec"]["pod"]["containers"][0]["resources"],
        resources("2")
    );
    assert_eq!(rome.writes::<ShadowPod>(), before + 1);
}

#[test]
fn a_provider_of_upstreams_gets_no_change_and_an_event_says_so() {
    let mut rome = rome_with(false);
    let before = rome.shadow("web");

    debug(&mut rome);
    resize(&mut rome, "2");

    assert_eq!(rome.shadow("web"), before);
    let expected = "FailedReflection: the provider does not start ephemeral containers (debugger) and does not resize containers \
                    (web): create a new pod, or update the Liqo of the provider";
    assert_eq!(notes(&rome).last().map(String::as_str), Some(expected));
}

/// The pods of upstream's providers have the annotations of their ShadowPods.
#[test]
fn a_user_cannot_pretend_that_the_provider_applies_changes() {
    let mut rome = rome_with(false);
    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["metadata"]["annotations"]["liqo.io/applies-changes"] = json!("true");
    });
    debug(&mut rome);

    let shadow = rome.shadow("web");
    let annotations = shadow["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(Vec::from_iter(annotations.keys()), ["liqo.io/pod-uid"]);
    assert_eq!(shadow["spec"]["pod"]["ephemeralContainers"], Value::Null);
    assert_eq!(notes(&rome).len(), 1);
}

#[test]
fn a_change_before_the_provider_has_created_its_pod_waits() {
    let mut rome = Side::new(2);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();
    debug(&mut rome);
    resize(&mut rome, "2");
    assert_eq!(rome.writes::<ShadowPod>(), 1, "the creation");
    assert_eq!(notes(&rome), [""; 0]);

    create_remote(&mut rome, true);
    let pod = rome.shadow("web")["spec"]["pod"].clone();
    assert_eq!(pod["ephemeralContainers"][0]["name"], "debugger");
    assert_eq!(pod["containers"][0]["resources"], resources("2"));
}

#[test]
fn a_refused_change_is_reported_and_repeated() {
    let mut rome = rome_with(true);
    rome.provider()
        .refuse_right(Some(("patch", "shadowpods")), false);
    resize(&mut rome, "2");
    rome.simulation.pass(Duration::from_secs(10));

    let refused = "FailedReflection: the provider refuses the change of the ShadowPod:";
    assert!(
        notes(&rome).iter().any(|it| it.starts_with(refused)),
        "{:?}",
        notes(&rome)
    );
    rome.provider().refuse_right(None, false);
    rome.simulation.pass(Duration::from_secs(60));
    let pod = rome.shadow("web")["spec"]["pod"].clone();
    assert_eq!(pod["containers"][0]["resources"], resources("2"));
}

#[test]
fn a_refusal_is_not_reported_with_a_later_change() {
    let mut rome = rome_with(true);
    rome.provider()
        .refuse_right(Some(("patch", "shadowpods")), false);
    resize(&mut rome, "2");
    resize(&mut rome, "1");
    rome.simulation.pass(Duration::from_secs(60));
    rome.provider().refuse_right(None, false);
    let before = notes(&rome).len();

    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["metadata"]["labels"]["a"] = json!("b")
    });

    assert_eq!(rome.shadow("web")["metadata"]["labels"]["a"], "b");
    assert_eq!(notes(&rome).len(), before);
}

#[test]
fn the_refusal_of_the_providers_manager_is_reported() {
    let mut rome = rome_with(true);
    let message = format!("exceeded quota: cpu\u{7}{}", "x".repeat(5000));
    annotate_remote(&mut rome, "liqo.io/change-refused", &message);

    let notes = notes(&rome);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].starts_with(
            "FailedReflection: the provider refuses the change of the pod: exceeded quota: cpu x"
        ),
        "{notes:?}"
    );
    assert!(notes[0].len() < 700, "{}", notes[0].len());
}

#[test]
fn a_pod_that_ends_is_not_changed() {
    let mut rome = rome_with(true);
    let before = rome.writes::<ShadowPod>();
    let name = Key::new("shop-rome", "web");
    rome.provider().remove::<Pod>(&name);
    rome.pass();
    resize(&mut rome, "2");

    assert_eq!(rome.writes::<ShadowPod>(), before);
}

/// The remote pod counts its own generations, and `kubectl wait` compares that of a condition with the pod's.
#[test]
fn a_status_has_the_generation_of_a_change_only_if_the_provider_has_the_change() {
    let observed = |applies_changes: bool| {
        let mut rome = rome_with(applies_changes);
        let name = Key::new("shop-rome", "web");
        let mut remote = rome.provider().get::<Pod>(&name).unwrap().clone();
        remote["metadata"]["generation"] = json!(1);
        remote["status"]["observedGeneration"] = json!(1);
        rome.provider().put::<Pod>(remote);
        rome.edit::<Pod>(&pod_key(), |pod| pod["metadata"]["generation"] = json!(1));
        debug(&mut rome);
        rome.edit::<Pod>(&pod_key(), |pod| pod["metadata"]["generation"] = json!(2));
        rome.pass();
        rome.pod("web")["status"]["observedGeneration"].as_i64()
    };

    assert_eq!(observed(true), Some(2));
    assert_eq!(observed(false), Some(1));
}

/// For instance by a StatefulSet, after a deletion by force while no virtual kubelet ran.
#[test]
fn a_pod_that_replaced_another_one_does_not_take_its_shadow_pod() {
    let mut rome = rome(31);
    let uid = rome.pod("web")["metadata"]["uid"].clone();
    assert_eq!(
        rome.shadow("web")["metadata"]["annotations"]["liqo.io/pod-uid"],
        uid
    );

    let key = Key::new("shop-rome", "web");
    let mut former = rome.shadow("web");
    let former_uid = former["metadata"]["uid"].clone();
    former["metadata"]["annotations"]["liqo.io/pod-uid"] = json!("former");
    rome.provider().put::<ShadowPod>(former);
    rome.pass();
    assert_eq!(rome.shadow("web"), Value::Null);
    rome.remove_remote("web");
    rome.pass();

    let shadow = rome.provider().get::<ShadowPod>(&key).cloned().unwrap();
    assert_ne!(shadow["metadata"]["uid"], former_uid);
    assert_eq!(shadow["metadata"]["annotations"]["liqo.io/pod-uid"], uid);
    assert!(rome.redundant().is_empty(), "{:?}", rome.redundant());
}
