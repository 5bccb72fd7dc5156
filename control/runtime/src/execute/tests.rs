use super::*;
use control_client::object::{Cluster, Key};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use std::sync::Mutex;

fn object(namespace: &str, name: &str) -> Ref {
    Ref::of::<ConfigMap>(&Cluster::Local, &Key::new(namespace, name))
}

fn sent(write: &Write) -> (String, String, Value) {
    let request = request(write, "manager", false).unwrap();
    let line = format!("{} {}", request.method(), request.uri());
    let content_type = request.headers()[header::CONTENT_TYPE].to_str().unwrap();
    let body = serde_json::from_slice(request.body()).unwrap();
    (line, content_type.to_owned(), body)
}

#[test]
fn an_apply_names_object_field_manager_and_preconditions() {
    let mut write = Write::new(object("a", "b"), Action::Apply(json!({"data": {"k": "v"}})));
    write.resource_version = Some("7".into());
    write.server_timeout = Some(std::time::Duration::from_secs(4));

    let (line, content_type, body) = sent(&write);

    assert_eq!(
        line,
        "PATCH /api/v1/namespaces/a/configmaps/b?fieldManager=manager&force=false&timeout=4s"
    );
    assert_eq!(content_type, "application/apply-patch+yaml");
    let metadata = json!({"name": "b", "namespace": "a", "resourceVersion": "7"});
    let expected =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}});
    assert_eq!(body, expected);
}

#[test]
fn an_apply_by_force_says_so() {
    let write = Write::new(object("a", "b"), Action::Apply(json!({})));

    let request = request(&write, "manager", true).unwrap();

    let query = request.uri().query().unwrap();
    assert_eq!(query, "fieldManager=manager&force=true");
}

#[test]
fn a_creation_is_posted_to_the_collection() {
    let (line, _, body) = sent(&Write::new(object("a", "b"), Action::Create(json!({}))));

    assert_eq!(
        line,
        "POST /api/v1/namespaces/a/configmaps?fieldManager=manager"
    );
    assert_eq!(body["metadata"]["name"], "b");
}

#[test]
fn a_deletion_has_the_uid_as_precondition() {
    let mut write = Write::new(object("a", "b"), Action::Delete);
    write.uid = Some("u".into());

    let (line, _, body) = sent(&write);

    assert_eq!(line, "DELETE /api/v1/namespaces/a/configmaps/b");
    assert_eq!(
        body["preconditions"],
        json!({"uid": "u", "resourceVersion": null})
    );
}

#[test]
fn a_pod_is_gone_when_its_graceful_termination_ends() {
    let pod = |finalizers: &[&str]| {
        let time = "2026-11-21T07:20:00Z";
        let metadata = json!({"name": "b", "deletionTimestamp": time, "finalizers": finalizers});
        json!({"kind": "Pod", "metadata": metadata}).to_string()
    };
    let mut write = Write::new(object("a", "b"), Action::Delete);

    assert!(is_pending(&pod(&[]), &write));
    write.is_immediate = true;
    assert!(!is_pending(&pod(&[]), &write));
    assert!(is_pending(
        &pod(&["batch.kubernetes.io/job-tracking"]),
        &write
    ));
}

#[test]
fn a_subresource_is_part_of_the_path() {
    let node = Ref::of::<Node>(&Cluster::Local, &Key::cluster("rome-1"));
    let write = Write::new(node, Action::Merge(json!({"status": {}}))).subresource("status");

    let (line, content_type, body) = sent(&write);

    assert_eq!(
        line,
        "PATCH /api/v1/nodes/rome-1/status?fieldManager=manager"
    );
    assert_eq!(content_type, "application/merge-patch+json");
    assert_eq!(body, json!({"status": {}}));
}

#[test]
fn outcomes_follow_from_status_and_action() {
    let status = |code, reason: &str| {
        let mut status = Status::failure("message", reason);
        status.code = code;
        Box::new(status)
    };
    let create = Write::new(object("a", "b"), Action::Create(json!({})));
    let mut delete = Write::new(object("a", "b"), Action::Delete);
    delete.uid = Some("u".into());

    assert!(matches!(refusal(status(404, "NotFound")), Outcome::Gone));
    assert!(matches!(
        missing(&create, Outcome::Gone),
        Outcome::Failed(_)
    ));
    assert!(matches!(missing(&delete, Outcome::Gone), Outcome::Gone));
    let conflict = refusal(status(409, "Conflict"));
    assert!(matches!(missing(&delete, conflict.clone()), Outcome::Gone));
    assert!(matches!(missing(&create, conflict), Outcome::Conflict(_)));
    assert!(matches!(
        refusal(status(409, "AlreadyExists")),
        Outcome::AlreadyExists(None)
    ));
    assert!(matches!(refusal(status(504, "Timeout")), Outcome::TimedOut));
    for (code, reason) in [(429, "TooManyRequests"), (503, "ServiceUnavailable")] {
        assert!(matches!(refusal(status(code, reason)), Outcome::Failed(_)));
    }
    assert!(matches!(
        refusal(status(422, "Invalid")),
        Outcome::Refused(_)
    ));
}

#[tokio::test]
async fn an_apply_of_a_field_that_is_not_declared_is_not_sent() {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("sent"))
    });
    let context = Context {
        force: false,
        client: Client::new(service, "a"),
        leadership: Leadership::permanent(),
        form: None,
        field_manager: "manager",
        fields: vec!["data"],
        adopts_late: false,
        adopted: Vec::new(),
    };
    let apply = |fields| {
        let write = Write::new(object("a", "b"), Action::Apply(fields));
        Request::Write(write)
    };

    let undeclared = context.execute(&apply(json!({"immutable": true}))).await;
    assert!(matches!(undeclared, Outcome::Failed(reason) if reason.contains("immutable")));
    let declared = context.execute(&apply(json!({"data": {}}))).await;
    assert!(matches!(declared, Outcome::Failed(reason) if reason.contains("sent")));
}

#[test]
fn finalizers_are_patched_under_a_field_manager_of_their_own() {
    let mut write = Write::new(object("a", "b"), Action::Finalize(vec!["x".into()]));
    write.uid = Some("u".into());
    write.resource_version = Some("7".into());

    let (line, content_type, body) = sent(&write);

    assert_eq!(
        line,
        "PATCH /api/v1/namespaces/a/configmaps/b?fieldManager=manager-finalizers"
    );
    assert_eq!(content_type, "application/merge-patch+json");
    let metadata = json!({"finalizers": ["x"], "uid": "u", "resourceVersion": "7"});
    assert_eq!(body, json!({"metadata": metadata}));
}

#[test]
fn finalizers_are_not_changed_without_a_version_to_compare() {
    let mut write = Write::new(object("a", "b"), Action::Finalize(Vec::new()));
    write.uid = Some("u".into());
    assert!(invalid(&write, &[]).is_some());

    write.resource_version = Some("7".into());
    assert_eq!(invalid(&write, &[]), None);
}

#[test]
fn a_deletion_without_uid_is_not_sent() {
    let mut write = Write::new(object("a", "b"), Action::Delete);
    assert!(invalid(&write, &[]).is_some());

    write.uid = Some("u".into());
    assert_eq!(invalid(&write, &[]), None);
}

/// Returns a client of `address` that has no server.
fn client(address: std::net::SocketAddr) -> Client {
    let uri = format!("http://{address}").parse().unwrap();
    control_client::transport::client(&kube::Config::new(uri)).unwrap()
}

#[tokio::test]
async fn only_a_write_of_a_leader_needs_the_leadership() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let context = Context {
        force: false,
        client: client(address),
        leadership: Leadership::default(),
        form: None,
        field_manager: "manager",
        fields: Vec::new(),
        adopts_late: false,
        adopted: Vec::new(),
    };
    let mut write = Write::new(object("a", "b"), Action::Apply(json!({})));

    let outcome = context.execute(&Request::Write(write.clone())).await;
    assert!(matches!(outcome, Outcome::NotLeader), "{outcome:?}");

    write.gate = Gate::Always;
    let outcome = context.execute(&Request::Write(write)).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    let outcome = context.execute(&Request::Read(object("a", "b"))).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
}

/// Sends an Apply of a Service, which the API server refuses at first for a field. `fields` are the entries of the object's managedFields. Returns
/// the methods and content types of the requests.
async fn apply_contradicting(
    (reason, refused): (&'static str, &'static str),
    fields: Value,
    adopted: Vec<&'static str>,
) -> (Outcome, Vec<String>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let known = Arc::clone(&requests);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let content = request.headers().get("content-type");
        let content = content.map_or("", |it| it.to_str().unwrap());
        let line = format!("{} {content}", request.method());
        let mut known = known.lock().unwrap();
        known.push(line);
        let (code, body) = match known.len() {
            1 => (
                422,
                json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": "Duplicate value",
                    "details": {"causes": [{"reason": reason, "field": refused}]}}),
            ),
            _ => (
                200,
                json!({"kind": "Service", "metadata": {"resourceVersion": "7", "managedFields": fields}}),
            ),
        };
        let body = kube::client::Body::from(body.to_string().into_bytes());
        let response = http::Response::builder().status(code).body(body).unwrap();
        async { Ok::<_, std::io::Error>(response) }
    });
    let context = Context {
        force: true,
        client: Client::new(service, "a"),
        leadership: Leadership::permanent(),
        form: None,
        field_manager: "manager",
        fields: Vec::new(),
        adopts_late: true,
        adopted,
    };
    let body = json!({"spec": {"ports": [{"name": "http", "port": 81}]}});
    let write = Write::new(object("a", "b"), Action::Apply(body));

    let outcome = context.execute(&Request::Write(write)).await;
    let sent = requests.lock().unwrap().clone();
    (outcome, sent)
}

const PORT: (&str, &str) = (DUPLICATE, "spec.ports[1].name");

const APPLY: &str = "PATCH application/apply-patch+yaml";

const ASSIGN: &str = "PATCH application/json-patch+json";

#[tokio::test]
async fn an_apply_that_contradicts_fields_of_an_earlier_manager_takes_them() {
    let ports = |number: u16| json!({"f:spec": {"f:ports": {format!("k:{{port:{number}}}"): {}}}});
    let fields = json!([
        {"manager": "manager", "operation": "Update", "fieldsV1": ports(80)},
        {"manager": "manager", "operation": "Apply", "fieldsV1": {"f:spec": {"f:type": {}}}},
    ]);

    // Also a field that is no list, for instance one that another field excludes.
    for refused in [PORT, ("FieldValueInvalid", "spec.externalName")] {
        let (outcome, sent) = apply_contradicting(refused, fields.clone(), vec!["manager"]).await;

        assert!(matches!(outcome, Outcome::Answer(_)), "{outcome:?}");
        assert_eq!(sent, [APPLY, "GET ", ASSIGN, APPLY]);
    }
}

#[tokio::test]
async fn an_apply_that_contradicts_members_that_others_have_added_to_its_list_takes_them() {
    let ports = |number: u16| json!({"f:spec": {"f:ports": {format!("k:{{port:{number}}}"): {}}}});
    let fields = json!([
        {"manager": "manager", "operation": "Apply", "fieldsV1": ports(80)},
        {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": ports(65_000)},
    ]);

    let (outcome, sent) = apply_contradicting(PORT, fields, Vec::new()).await;

    assert!(matches!(outcome, Outcome::Answer(_)), "{outcome:?}");
    assert_eq!(sent, [APPLY, "GET ", ASSIGN, APPLY]);
}

#[tokio::test]
async fn a_field_of_another_manager_outside_of_lists_is_not_taken() {
    let fields = json!([{"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:ports": {}}}}]);

    let refusals = [
        (DUPLICATE, "spec.externalName"),
        (DUPLICATE, "spec.other[0].name"),
        // A value that is missing, which no other manager contradicts.
        ("FieldValueRequired", "spec.ports[0].port"),
    ];
    for refused in refusals {
        let (outcome, sent) = apply_contradicting(refused, fields.clone(), Vec::new()).await;
        assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
        assert_eq!(sent, [APPLY]);
    }
}

#[tokio::test]
async fn an_apply_that_no_other_manager_contradicts_stays_refused() {
    let fields = json!([{"manager": "manager", "operation": "Apply", "fieldsV1": {"f:spec": {"f:ports": {}}}}]);

    let (outcome, sent) = apply_contradicting(PORT, fields, Vec::new()).await;

    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    assert_eq!(sent, [APPLY, "GET "]);
}
