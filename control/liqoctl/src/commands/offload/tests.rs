//! Offloading with an API server in memory; a task writes the results of the controllers.

use super::*;
use crate::progress::take_lines;
use clap::Parser;
use fake_apiserver::{ApiServer, Front, Head, Reply};
use serde_json::{Value, json};

mod refusals;
mod results;

/// Path of the object of namespace `demo`.
const DEMO: &str =
    "/apis/offloading.liqo.io/v1beta1/namespaces/demo/namespaceoffloadings/offloading";

#[derive(Parser, Debug)]
struct Command {
    #[command(flatten)]
    flags: Namespace,
}

fn parse(arguments: &[&str]) -> Namespace {
    let program = ["offload"].iter();
    Command::parse_from(program.chain(arguments)).flags
}

/// A cluster with Liqo, and the namespaces `demo` and `shop`.
struct Rome {
    server: ApiServer,
    front: Front,
    cluster: Cluster,
}

impl Rome {
    fn start() -> Self {
        let server = ApiServer::start();
        let front = Front::start(&server, |_| Reply::Forward);
        server.put(
            "/api/v1/namespaces/liqo/configmaps/liqo-clusterid-configmap",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"CLUSTER_ID": "rome"}, "metadata": {
                "name": "liqo-clusterid-configmap", "namespace": "liqo",
                "labels": {"app.kubernetes.io/name": "clusterid-configmap"},
            }}),
        );
        for name in ["demo", "shop"] {
            put_namespace(&server, name, json!({"team": "shop"}));
        }
        let cluster = Cluster::behind(&front, "local");
        Self {
            server,
            front,
            cluster,
        }
    }

    async fn offload(&self, arguments: &[&str]) -> Result<()> {
        self.offload_within(arguments, Duration::from_secs(10))
            .await
    }

    async fn offload_within(&self, arguments: &[&str], limit: Duration) -> Result<()> {
        let flags = parse(arguments);
        let deadline = Deadline::after(limit);
        offload(&self.cluster, &flags, &flags.desired(), deadline).await
    }

    /// Runs the command while a controller writes this status.
    async fn offload_with(&self, arguments: &[&str], status: Value) -> Result<()> {
        let (offloaded, ()) = tokio::join!(self.offload(arguments), self.control(status));
        offloaded
    }

    /// Writes a status once the object of namespace `demo` exists.
    async fn control(&self, status: Value) {
        self.control_at(DEMO, status).await;
    }

    /// Writes a status once an object exists that is not being deleted.
    async fn control_at(&self, path: &str, status: Value) {
        let written = async {
            loop {
                match self.server.get(path) {
                    Some(object) if object["metadata"]["deletionTimestamp"].is_null() => {
                        break object;
                    }
                    Some(_) | None => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        let written = tokio::time::timeout(Duration::from_secs(10), written).await;
        let mut object = written.expect("the command writes the object");
        object["metadata"]["generation"] = 1.into();
        object["status"] = status;
        self.server.put(path, object);
    }

    /// Returns the number of requests that change objects.
    fn writes(&self) -> usize {
        self.front.count(|head| head.method != "GET")
    }

    /// Refuses some requests as those of a user without rights.
    fn forbid(&self, is_forbidden: fn(&Head) -> bool) {
        self.front.set(move |head| match is_forbidden(head) {
            true => Reply::status(403, "Forbidden", "the user cannot do this"),
            false => Reply::Forward,
        });
    }
}

fn put_namespace(server: &ApiServer, name: &str, labels: Value) {
    server.put(
        &format!("/api/v1/namespaces/{name}"),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}),
    );
}

/// Returns the status of namespace `demo` with one cluster, milan.
fn status(phase: &str, ready: Value) -> Value {
    json!({
        "observedGeneration": 1,
        "offloadingPhase": phase,
        "remoteNamespaceName": "demo-rome",
        "remoteNamespacesConditions": {"milan": [
            {"type": "OffloadingRequired", "status": "True", "reason": "ClusterSelected"},
            ready,
        ]},
    })
}

fn ready() -> Value {
    let ready = json!({"type": "Ready", "status": "True", "reason": "NamespaceCreated"});
    status("Ready", ready)
}

#[test]
fn the_printed_object_equals_upstreams() {
    let flags = parse(&["demo2"]);

    assert_eq!(
        manifest::yaml(flags.desired().manifest("demo2")),
        "\
apiVersion: offloading.liqo.io/v1beta1
kind: NamespaceOffloading
metadata:
  name: offloading
  namespace: demo2
spec:
  clusterSelector:
    nodeSelectorTerms: []
  namespaceMappingStrategy: DefaultName
  podOffloadingStrategy: LocalAndRemote
status: {}
"
    );
}

#[test]
fn each_selector_is_an_alternative() {
    let flags = parse(&[
        "demo",
        "--selector=region in (europe,us-west), !staging",
        "-l",
        "provider=aws",
        "--pod-offloading-strategy=Remote",
        "--namespace-mapping-strategy",
        "SelectedName",
        "--remote-namespace-name=twin",
    ]);

    assert_eq!(
        flags.desired().manifest("demo")["spec"],
        json!({
            "clusterSelector": {"nodeSelectorTerms": [
                {"matchExpressions": [
                    {"key": "region", "operator": "In", "values": ["europe", "us-west"]},
                    {"key": "staging", "operator": "DoesNotExist"},
                ]},
                {"matchExpressions": [
                    {"key": "provider", "operator": "In", "values": ["aws"]},
                ]},
            ]},
            "namespaceMappingStrategy": "SelectedName",
            "podOffloadingStrategy": "Remote",
            "remoteNamespaceName": "twin",
        })
    );
}

#[test]
fn a_remote_name_is_required_with_selected_name_and_ignored_otherwise() {
    let without = ["test", "demo", "--namespace-mapping-strategy=SelectedName"];
    assert!(Command::try_parse_from(without).is_err());

    let flags = parse(&["demo", "--remote-namespace-name=twin"]);
    let spec = flags.desired().manifest("demo")["spec"].clone();
    assert_eq!(spec["remoteNamespaceName"], Value::Null);
}

#[test]
fn a_namespace_or_a_selector_of_namespaces_is_required() {
    assert!(Command::try_parse_from(["test"]).is_err());
    assert!(Command::try_parse_from(["test", "--ns-selector=a=b"]).is_ok());
    assert!(Command::try_parse_from(["test", "a", "b", "a"]).is_ok());
    assert!(Command::try_parse_from(["test", "a/b"]).is_err());
}
