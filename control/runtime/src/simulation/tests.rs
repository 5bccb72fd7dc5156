use super::server::{Manager, Server};
use crate::controller::{Action, Outcome, Request, Write};
use crate::registration::{Registration, Scope};
use control_client::object::{Cluster, Key, Ref};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use serde_json::{Value, json};

const NAME: &str = "a/b";

fn server() -> Server {
    let mut server = Server::new(Cluster::Local);
    server.put_namespace("a");
    server
}

fn write(action: Action) -> Write {
    let key = Key::new("a", "b");
    Write::new(Ref::of::<ConfigMap>(&Cluster::Local, &key), action)
}

fn apply(data: Value) -> Write {
    write(Action::Apply(json!({"data": data})))
}

fn send(server: &mut Server, name: &'static str, write: Write) -> Outcome {
    send_as(server, manager(name, false), write)
}

fn manager(name: &'static str, force: bool) -> Manager {
    Manager {
        name,
        force,
        adopts: false,
    }
}

fn send_by_force(server: &mut Server, name: &'static str, write: Write) -> Outcome {
    send_as(server, manager(name, true), write)
}

fn send_as(server: &mut Server, manager: Manager, write: Write) -> Outcome {
    let registration = Registration::whole::<ConfigMap>(Scope::All);
    server.answer(&Request::Write(write), manager, Some(&*registration.form))
}

fn stored(server: &Server) -> &Value {
    let found = server.get::<ConfigMap>(&Key::new("a", "b"));
    found.unwrap_or_else(|| panic!("{NAME} does not exist"))
}

#[test]
fn an_apply_removes_the_fields_that_it_no_longer_names_and_leaves_others() {
    let mut server = server();
    send(&mut server, "one", apply(json!({"x": "1", "y": "1"})));
    send(&mut server, "two", apply(json!({"z": "2"})));

    send(&mut server, "one", apply(json!({"x": "3"})));

    assert_eq!(stored(&server)["data"], json!({"x": "3", "z": "2"}));
}

#[test]
fn an_apply_takes_fields_of_another_manager_by_force_only() {
    let mut server = server();
    send(&mut server, "one", apply(json!({"x": "1"})));
    let other = apply(json!({"x": "2"}));

    let refused = send(&mut server, "two", other.clone());
    assert!(matches!(refused, Outcome::Conflict(_)), "{refused:?}");
    assert!(send_by_force(&mut server, "two", other).is_success());

    // The first manager lost the field, so it does not remove it.
    send(&mut server, "one", apply(json!({})));
    assert_eq!(stored(&server)["data"], json!({"x": "2"}));
    assert!(server.shared_fields().is_empty());
}

#[test]
fn equal_values_of_two_managers_are_shared_fields() {
    let mut server = server();
    send(&mut server, "one", apply(json!({"x": "1"})));
    send(&mut server, "two", apply(json!({"x": "1"})));

    assert_eq!(
        server.shared_fields(),
        ["data.x of configmaps a/b: one, two"]
    );
}

#[test]
fn a_write_that_changes_nothing_keeps_the_version() {
    let mut server = server();
    send(&mut server, "one", apply(json!({"x": "1"})));
    let before = stored(&server).clone();

    send(&mut server, "one", apply(json!({"x": "1"})));

    assert_eq!(*stored(&server), before);
}

#[test]
fn preconditions_on_version_and_uid_refuse_writes() {
    let mut server = server();
    send(&mut server, "one", apply(json!({"x": "1"})));
    let mut update = write(Action::Update(json!({"data": {"x": "2"}})));
    update.resource_version = Some("1".into());
    let refused = send(&mut server, "one", update.clone());
    assert!(matches!(refused, Outcome::Conflict(_)), "{refused:?}");
    update.resource_version = Some("2".into());
    assert!(send(&mut server, "one", update).is_success());

    let mut delete = write(Action::Delete);
    delete.uid = Some("another".into());
    // The object of this UID is gone.
    assert!(matches!(
        send(&mut server, "one", delete.clone()),
        Outcome::Gone
    ));
    assert_eq!(stored(&server)["data"]["x"], "2");
    delete.uid = Some("uid-2".into());
    assert!(matches!(send(&mut server, "one", delete), Outcome::Gone));
    assert_eq!(server.get::<ConfigMap>(&Key::new("a", "b")), None);
}

#[test]
fn a_deletion_waits_for_finalizers() {
    let mut server = server();
    let finalizers = |list: Value| write(Action::Apply(json!({"metadata": {"finalizers": list}})));
    send(&mut server, "one", finalizers(json!(["liqo.io/x"])));

    let pending = send(&mut server, "one", write(Action::Delete));
    assert!(matches!(pending, Outcome::Stored(_)), "{pending:?}");
    assert!(!stored(&server)["metadata"]["deletionTimestamp"].is_null());
    let gone = send(&mut server, "one", finalizers(json!([])));

    assert!(matches!(gone, Outcome::Gone), "{gone:?}");
    assert_eq!(server.get::<ConfigMap>(&Key::new("a", "b")), None);
}

#[test]
fn the_status_is_written_by_its_subresource_only() {
    let mut server = server();
    let status = |value: &str| json!({"status": {"x": value}, "data": {"y": value}});
    send(&mut server, "one", write(Action::Create(status("1"))));
    assert_eq!(stored(&server)["status"], Value::Null);

    for action in [
        Action::Apply(status("2")),
        Action::Merge(status("3")),
        Action::Update(status("4")),
    ] {
        let expected = match &action {
            Action::Apply(value) | Action::Merge(value) | Action::Update(value) => {
                value["status"].clone()
            }
            Action::Create(_) | Action::Delete | Action::Finalize(_) | Action::Post(_) => {
                Value::Null
            }
        };
        let write = write(action).subresource("status");
        assert!(send_by_force(&mut server, "two", write).is_success());
        assert_eq!(stored(&server)["status"], expected);
        assert_eq!(stored(&server)["data"], json!({"y": "1"}));
    }
    let merge = json!({"data": {"y": null, "z": "5"}, "status": null});
    send(&mut server, "one", write(Action::Merge(merge)));
    assert_eq!(stored(&server)["data"], json!({"z": "5"}));
    assert_eq!(stored(&server)["status"], json!({"x": "4"}));
}

/// As `podStatusStrategy` of kube-apiserver.
#[test]
fn labels_of_a_pod_are_written_with_its_status() {
    let mut server = server();
    let key = Key::new("a", "b");
    server
        .put::<Pod>(json!({"metadata": {"name": "b", "namespace": "a", "labels": {"app": "web"}}}));
    let merge = json!({"metadata": {"labels": {"x": "1"}, "annotations": {"y": "2"}}, "spec": {"z": "3"}, "status": {"phase": "Running"}});
    let object = Ref::of::<Pod>(&Cluster::Local, &key);
    let write = Write::new(object, Action::Merge(merge)).subresource("status");
    let registration = Registration::whole::<Pod>(Scope::All);
    let manager = manager("one", false);
    let outcome = server.answer(&Request::Write(write), manager, Some(&*registration.form));
    assert!(outcome.is_success(), "{outcome:?}");

    let pod = server.get::<Pod>(&key).unwrap();
    assert_eq!(pod["metadata"]["labels"], json!({"app": "web", "x": "1"}));
    assert_eq!(pod["metadata"]["annotations"], Value::Null);
    assert_eq!(pod["spec"], Value::Null);
    assert_eq!(pod["status"]["phase"], "Running");
}

#[test]
fn an_existing_name_and_a_missing_namespace_refuse_a_creation() {
    let mut server = server();
    let create = || write(Action::Create(json!({"data": {"x": "1"}})));
    assert!(send(&mut server, "one", create()).is_success());

    let exists = send(&mut server, "one", create());
    let Outcome::AlreadyExists(Some(entry)) = exists else {
        panic!("{exists:?}");
    };
    assert_eq!(entry.uid, "uid-2");
    server.remove::<Namespace>(&Key::cluster("a"));
    let refused = send(&mut server, "one", create());
    assert!(matches!(refused, Outcome::Failed(_)), "{refused:?}");
}
