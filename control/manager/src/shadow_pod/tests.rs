use crate::shadow_pod::{Settings, ShadowPodController};
use control_api::{Quota, ShadowPod, TenantPolicy};
use control_runtime::simulation::{Sent, Simulation};
use control_runtime::{Cluster, Key, Resource};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use serde_json::{Value, json};
use std::time::Duration;

const USER: &str = "milan-a8a4c692b93b";

/// The provider `milan`, whose consumer `rome` has the namespace `shop-rome`.
struct Side {
    simulation: Simulation,
}

impl Side {
    fn new(seed: u64, enforces_resources: bool) -> Self {
        let settings = Settings {
            namespace: "liqo".to_owned(),
            enforces_resources,
        };
        let make = move || ShadowPodController::new(settings.clone());
        let simulation = Simulation::new(seed).host(make).replicas(2);
        let mut side = Self { simulation };
        for namespace in ["liqo", "liqo-tenant-rome", "default"] {
            side.simulation.local().put_namespace(namespace);
        }
        for namespace in ["shop-rome", "books-rome"] {
            side.put::<Namespace>(json!({"metadata": {
                "name": namespace,
                "labels": {"liqo.io/remote-cluster-id": "rome"},
                "annotations": {"liqo.io/managed-by-namespace-map": "liqo-tenant-rome/milan"},
            }}));
        }
        side.put_quota("2", &json!({}));
        side
    }

    fn put<K: kube::Resource<DynamicType = ()>>(&mut self, object: Value) {
        self.simulation.local().put::<K>(object);
    }

    fn put_quota(&mut self, cpu: &str, change: &Value) {
        let mut spec = json!({"user": USER, "limitsEnforcement": "None", "resources": {"cpu": cpu, "pods": "10"}});
        spec.as_object_mut()
            .unwrap()
            .extend(change.as_object().cloned().unwrap());
        self.put::<Quota>(json!({
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "Quota",
            "metadata": {"name": USER, "namespace": "liqo-tenant-rome"},
            "spec": spec,
        }));
    }

    fn shadow(namespace: &str, name: &str, cpu: &str) -> Value {
        json!({
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "ShadowPod",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": "2026-11-21T07:20:00Z",
                "labels": {"app": "web", "offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan",
                    "offloading.liqo.io/nodename": "milan", "liqo.io/creator-user": USER}},
            "spec": {"pod": {"automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}},
        })
    }

    fn put_shadow(&mut self, name: &str, cpu: &str) {
        self.put::<ShadowPod>(Self::shadow("shop-rome", name, cpu));
        self.pass();
    }

    /// Adds the consumer `naples` with the namespace `shop-naples`.
    fn put_naples(&mut self) {
        self.put::<Namespace>(json!({"metadata": {
            "name": "shop-naples",
            "labels": {"liqo.io/remote-cluster-id": "naples"},
            "annotations": {"liqo.io/managed-by-namespace-map": "liqo-tenant-naples/milan"},
        }}));
    }

    fn put_shadow_of_naples(&mut self, name: &str, cpu: &str) {
        let mut shadow = Self::shadow("shop-naples", name, cpu);
        shadow["metadata"]["labels"]["offloading.liqo.io/origin"] = json!("naples");
        self.put::<ShadowPod>(shadow);
        self.pass();
    }

    fn edit<K: kube::Resource<DynamicType = ()>>(
        &mut self,
        name: &str,
        edit: impl FnOnce(&mut Value),
    ) {
        let mut object = self.object::<K>(name);
        assert!(object.is_object(), "{name}");
        edit(&mut object);
        self.put::<K>(object);
        self.pass();
    }

    fn object<K: kube::Resource<DynamicType = ()>>(&mut self, name: &str) -> Value {
        let key = Key::new("shop-rome", name);
        self.simulation
            .local()
            .get::<K>(&key)
            .cloned()
            .unwrap_or_default()
    }

    fn pass(&mut self) {
        self.simulation.pass(Duration::from_secs(2));
    }

    /// Returns the names of the pods in all namespaces.
    fn pods(&mut self) -> Vec<String> {
        let pods = self.simulation.local().all::<Pod>().into_iter();
        pods.map(|it| it["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    fn has_warning(&self, text: &str) -> bool {
        let events = self.simulation.events(0);
        events
            .iter()
            .any(|it| it.is_warning && it.reason == "FailedCreatePod" && it.note.contains(text))
    }

    fn writes<K: kube::Resource<DynamicType = ()>>(&self) -> usize {
        let log = self.simulation.log().iter();
        let objects = log.filter_map(|sent| sent.request.object());
        objects
            .filter(|it| it.resource == Resource::of::<K>())
            .count()
    }

    fn assert_stable(&mut self) {
        let replanned: Vec<Sent> = self.simulation.replan(Duration::from_secs(600)).unwrap();
        assert!(replanned.is_empty(), "{replanned:?}");
    }
}

#[test]
fn a_shadow_pod_becomes_a_pod_of_its_own() {
    let mut milan = Side::new(1, true);
    milan.put_shadow("web", "1");

    let pod = milan.object::<Pod>("web");
    assert_eq!(pod["metadata"]["labels"]["liqo.io/managed-by"], "shadowpod");
    assert_eq!(pod["metadata"]["labels"]["app"], "web");
    let uid = milan.object::<ShadowPod>("web")["metadata"]["uid"].clone();
    let owner = &pod["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"], &owner["controller"]),
        (&json!("ShadowPod"), &uid, &json!(true))
    );
    assert_eq!(pod["spec"]["containers"][0]["image"], "i");
    assert_eq!(
        milan.object::<ShadowPod>("web")["status"]["phase"],
        "Pending"
    );
    milan.edit::<Pod>("web", |pod| pod["status"] = json!({"phase": "Running"}));
    assert_eq!(
        milan.object::<ShadowPod>("web")["status"]["phase"],
        "Running"
    );
    assert_eq!(
        (milan.writes::<Pod>(), milan.writes::<ShadowPod>()),
        (1, 2),
        "once per change"
    );
    milan.assert_stable();
}

#[test]
fn labels_and_annotations_follow_the_shadow_pod() {
    let mut milan = Side::new(2, true);
    milan.put_shadow("web", "1");
    milan.edit::<ShadowPod>("web", |it| {
        it["metadata"]["labels"]["version"] = json!("2");
        it["metadata"]["annotations"] = json!({"note": "x"});
    });

    let metadata = milan.object::<Pod>("web")["metadata"].clone();
    assert_eq!(metadata["labels"]["version"], "2");
    assert_eq!(metadata["annotations"]["note"], "x");
    milan.assert_stable();
}

#[test]
fn a_pod_that_was_deleted_is_created_again_unless_it_has_ended() {
    let mut milan = Side::new(3, true);
    milan.put_shadow("web", "1");
    milan
        .simulation
        .local()
        .remove::<Pod>(&Key::new("shop-rome", "web"));
    milan.pass();
    assert_eq!(milan.pods(), ["web"]);

    milan.edit::<Pod>("web", |pod| pod["status"] = json!({"phase": "Succeeded"}));
    milan
        .simulation
        .local()
        .remove::<Pod>(&Key::new("shop-rome", "web"));
    milan.pass();
    assert_eq!(milan.pods(), [""; 0]);
    assert_eq!(
        milan.object::<ShadowPod>("web")["status"]["phase"],
        "Succeeded"
    );
}

#[test]
fn a_pod_that_exceeds_the_quota_waits_until_there_is_room() {
    let mut milan = Side::new(4, true);
    milan.put_shadow("a", "1500m");
    milan.put_shadow("b", "1");
    assert_eq!(milan.pods(), ["a"]);
    assert!(milan.has_warning("cpu is exceeded: the pod requests 1, and 0.5 of 2 are left"));

    milan.put_quota("3", &json!({}));
    milan.pass();
    assert_eq!(milan.pods(), ["a", "b"]);

    milan.put_shadow("c", "1");
    assert_eq!(milan.pods(), ["a", "b"]);
    milan.edit::<Pod>("a", |pod| pod["status"] = json!({"phase": "Succeeded"}));
    assert_eq!(milan.pods(), ["a", "b", "c"], "what has ended uses nothing");
    milan.assert_stable();
}

#[test]
fn the_quota_is_shared_by_all_namespaces_of_the_user() {
    let mut milan = Side::new(5, true);
    milan.put::<ShadowPod>(Side::shadow("books-rome", "a", "2"));
    milan.put_shadow("b", "1");

    assert_eq!(milan.pods(), ["a"]);
}

#[test]
fn a_cordon_stops_new_pods_and_no_others() {
    let mut milan = Side::new(6, true);
    milan.put_shadow("a", "1");
    milan.put_quota("2", &json!({"cordoned": true}));
    milan.pass();
    milan.put_shadow("b", "1");
    milan
        .simulation
        .local()
        .remove::<Pod>(&Key::new("shop-rome", "a"));
    milan.pass();

    assert_eq!(milan.pods(), ["a"], "a drained node moves it");
    assert!(milan.has_warning("cordoned"));
}

#[test]
fn without_quota_or_creator_there_is_no_pod() {
    let mut milan = Side::new(7, true);
    let mut shadow = Side::shadow("shop-rome", "a", "1");
    shadow["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove("liqo.io/creator-user");
    milan.put::<ShadowPod>(shadow);
    milan.pass();
    assert!(milan.has_warning("liqo.io/creator-user is missing"));
    let mut shadow = Side::shadow("shop-rome", "b", "1");
    shadow["metadata"]["labels"]["liqo.io/creator-user"] = json!("other");
    milan.put::<ShadowPod>(shadow);
    milan.pass();
    assert!(milan.has_warning("`other` has no Quota"));
    assert_eq!(milan.pods(), [""; 0]);

    let mut milan = Side::new(7, false);
    let mut shadow = Side::shadow("shop-rome", "a", "9");
    shadow["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove("liqo.io/creator-user");
    milan.put::<ShadowPod>(shadow);
    milan.pass();
    assert_eq!(milan.pods(), ["a"], "the enforcement is off");
}

#[test]
fn the_creator_of_another_tenant_has_no_quota_here() {
    let mut milan = Side::new(8, true);
    milan.put_naples();
    milan.put_shadow_of_naples("a", "1");

    assert_eq!(milan.pods(), [""; 0]);
}

#[test]
fn a_user_of_another_tenant_with_the_same_name_uses_its_own_quota() {
    let mut milan = Side::new(8, true);
    milan.put_naples();
    milan.put::<Quota>(json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "Quota",
        "metadata": {"name": USER, "namespace": "liqo-tenant-naples"},
        "spec": {"user": USER, "limitsEnforcement": "None", "resources": {"cpu": "2", "pods": "10"}},
    }));
    milan.put_shadow_of_naples("a", "2");
    milan.put_shadow("b", "1");

    assert_eq!(milan.pods(), ["a", "b"]);
}

#[test]
fn a_shadow_pod_has_no_pod_in_a_namespace_that_is_being_deleted() {
    let mut milan = Side::new(8, true);
    let namespace = Key::cluster("shop-rome");
    let mut object = milan
        .simulation
        .local()
        .get::<Namespace>(&namespace)
        .cloned()
        .unwrap();
    object["metadata"]["deletionTimestamp"] = json!("2026-11-21T07:20:00Z");
    object["metadata"]["finalizers"] = json!(["example.com/wait"]);
    milan.put::<Namespace>(object);
    milan.put_shadow("a", "1");

    assert_eq!(milan.pods(), [""; 0]);
}

#[test]
fn shadow_pods_have_an_effect_in_namespaces_of_their_consumer_only() {
    let mut milan = Side::new(9, true);
    milan.put::<ShadowPod>(Side::shadow("default", "a", "1"));
    milan.pass();
    assert!(milan.has_warning("namespace default was not created for a consumer"));
    let mut shadow = Side::shadow("shop-rome", "b", "1");
    shadow["metadata"]["labels"]["offloading.liqo.io/origin"] = json!("naples");
    milan.put::<ShadowPod>(shadow);
    milan.pass();

    assert!(milan.has_warning("is `naples`, and the namespace is of `rome`"));
    assert_eq!(milan.pods(), [""; 0]);
}

#[test]
fn pods_of_others_are_never_touched() {
    let mut milan = Side::new(10, true);
    milan.put::<Pod>(json!({
        "metadata": {"name": "web", "namespace": "shop-rome", "labels": {"liqo.io/managed-by": "shadowpod"}},
        "spec": {"containers": []},
    }));
    let before = milan.object::<Pod>("web");
    milan.put_shadow("web", "1");

    assert_eq!(milan.object::<Pod>("web"), before);
    assert!(milan.has_warning("exists and is not of this ShadowPod"));
    assert_eq!(milan.object::<ShadowPod>("web")["status"], Value::Null);
}

#[test]
fn the_policy_of_the_tenant_applies_and_its_change_too() {
    let mut milan = Side::new(11, true);
    let mut shadow = Side::shadow("shop-rome", "a", "1");
    shadow["spec"]["pod"]["priorityClassName"] = json!("batch");
    milan.put::<ShadowPod>(shadow);
    milan.pass();
    assert!(milan.has_warning("spec.priorityClasses"));

    milan.put::<TenantPolicy>(json!({
        "apiVersion": "authentication.liqo.io/v1beta1", "kind": "TenantPolicy",
        "metadata": {"name": "rome", "namespace": "liqo"},
        "spec": {"priorityClasses": ["batch"]},
    }));
    milan.pass();
    assert_eq!(milan.pods(), ["a"]);
}

#[test]
fn hostile_specs_are_refused_and_others_run() {
    let mut milan = Side::new(12, true);
    let refused: [fn(&mut Value); 5] = [
        |pod| pod["nodeName"] = json!("milan-1"),
        |pod| pod["containers"][0]["resources"]["requests"]["cpu"] = json!("-5"),
        |pod| pod["containers"][0]["resources"]["requests"]["cpu"] = json!("1e500"),
        |pod| pod["containers"][0]["resources"]["requests"]["example.com/gpu"] = json!("1"),
        |pod| pod["containers"][0]["env"] = json!([{"name": "A", "value": "x".repeat(1_200_000)}]),
    ];
    for (number, change) in refused.into_iter().enumerate() {
        let mut shadow = Side::shadow("shop-rome", &format!("bad-{number}"), "100m");
        change(&mut shadow["spec"]["pod"]);
        milan.put::<ShadowPod>(shadow);
    }
    let mut empty = Side::shadow("shop-rome", "empty", "1");
    empty["spec"] = json!({});
    milan.put::<ShadowPod>(empty);
    milan.put_shadow("good", "1");

    assert_eq!(milan.pods(), ["good"]);
    milan.assert_stable();
}

#[test]
fn crashes_and_partitions_neither_exceed_the_quota_nor_lose_pods() {
    for seed in 0..10 {
        let mut milan = Side::new(seed, true);
        for name in ["a", "b", "c", "d", "e"] {
            milan.put::<ShadowPod>(Side::shadow("shop-rome", name, "1"));
        }
        for leader in [1, 0, 1, 0] {
            milan.simulation.pass(Duration::from_millis(3));
            milan.simulation.crash(leader);
            milan.simulation.pass(Duration::from_millis(2));
            milan.simulation.hand_over(leader);
            milan.simulation.partition(&Cluster::Local);
            milan.simulation.pass(Duration::from_millis(5));
            milan.simulation.heal(&Cluster::Local);
            assert!(milan.pods().len() <= 2, "seed {seed}");
        }
        milan.simulation.pass(Duration::from_secs(300));
        assert_eq!(milan.pods().len(), 2, "seed {seed}");
        milan.assert_stable();
    }
}
