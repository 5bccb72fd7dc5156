//! Unoffloading with an API server in memory.

use super::*;
use crate::progress::take_lines;
use fake_apiserver::{ApiServer, Front, Head, Reply};
use serde_json::{Value, json};

/// Path of the object of namespace `demo`.
const DEMO: &str =
    "/apis/offloading.liqo.io/v1beta1/namespaces/demo/namespaceoffloadings/offloading";

/// A cluster whose namespace `demo` is offloaded.
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
            "/api/v1/namespaces/demo",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}),
        );
        server.put(DEMO, offloading());
        let cluster = Cluster::behind(&front, "local");
        Self {
            server,
            front,
            cluster,
        }
    }

    async fn unoffload(&self, names: &[&str], limit: Duration) -> Result<()> {
        let words = ["liqoctl", "unoffload", "namespace"].iter().chain(names);
        let flags = parse(words.copied());
        let (targets, _) = read(&self.cluster, &flags).await?;
        unoffload(&self.cluster, targets, Deadline::after(limit)).await
    }

    /// Turns deletions into deletion timestamps, because a finalizer is left.
    fn keep(&self) {
        self.front.set(|head| match head.method.as_str() {
            "DELETE" => Reply::response("200 OK", "", offloading().to_string()),
            _ => Reply::Forward,
        });
    }
}

fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Namespace {
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Cli {
        #[command(flatten)]
        flags: Namespace,
    }
    Cli::parse_from(words.skip(2)).flags
}

fn offloading() -> Value {
    json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceOffloading",
        "metadata": {
            "name": "offloading", "namespace": "demo",
            "finalizers": ["namespaceoffloading-controller.liqo.io/finalizer"],
        },
        "spec": {},
    })
}

const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn the_lines_equal_upstreams() {
    let rome = Rome::start();

    rome.unoffload(&["demo"], LONG).await.unwrap();

    assert_eq!(rome.server.get(DEMO), None);
    assert_eq!(
        take_lines(),
        [
            "Disabling namespace offloading for \"demo\"",
            "INFO: Offloading of namespace \"demo\" correctly disabled",
            "Waiting for unoffloading of namespace \"demo\" to complete",
            "INFO: Unoffloading completed successfully",
        ]
    );
}

#[tokio::test]
async fn a_repeated_command_changes_nothing() {
    let rome = Rome::start();
    rome.unoffload(&["demo"], LONG).await.unwrap();
    take_lines();

    rome.unoffload(&["demo"], LONG).await.unwrap();

    assert_eq!(rome.front.count(|head| head.method != "GET"), 1);
    let line = "INFO: Offloading of namespace \"demo\" already disabled";
    assert_eq!(take_lines(), [line]);
}

#[tokio::test]
async fn the_command_ends_when_the_object_is_gone_and_not_before() {
    let rome = Rome::start();
    rome.keep();
    let controller = async {
        rome.front.received(Head::is_delete).await;
        let mut leaving = offloading();
        leaving["metadata"]["deletionTimestamp"] = "2026-11-21T08:15:18Z".into();
        rome.server.put(DEMO, leaving);
    };
    let unoffloading = rome.unoffload(&["demo"], LONG);
    let mut unoffloading = std::pin::pin!(unoffloading);
    tokio::select! {
        result = &mut unoffloading => panic!("{result:?}"),
        () = async { controller.await; rome.front.received(Head::is_watch).await } => {}
    }

    rome.server.remove(DEMO);
    unoffloading.await.unwrap();
    assert_eq!(rome.front.count(Head::is_delete), 1);
}

#[tokio::test]
async fn a_timeout_names_the_finalizers_and_the_remote_namespaces() {
    let rome = Rome::start();
    for (provider, name, phase) in [
        ("turin", "demo-rome", "Terminating"),
        ("milan", "demo-rome\u{1b}[2J", "Accepted"),
        ("nice", "", ""),
    ] {
        let mapping = json!({"remoteNamespace": name, "phase": phase});
        let key = if phase.is_empty() { "other" } else { "demo" };
        let mapping = if phase.is_empty() { json!({}) } else { mapping };
        rome.server.put(
            &format!("/apis/offloading.liqo.io/v1beta1/namespaces/liqo-tenant-{provider}/namespacemaps/{provider}"),
            json!({
                "apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceMap",
                "metadata": {
                    "name": provider,
                    "labels": {"liqo.io/replication": "true", "liqo.io/remoteID": provider},
                },
                "spec": {}, "status": {"currentMapping": {key: mapping}},
            }),
        );
    }
    rome.keep();
    let controller = async {
        rome.front.received(Head::is_delete).await;
        let mut leaving = offloading();
        leaving["metadata"]["deletionTimestamp"] = "2026-11-21T08:15:18Z".into();
        rome.server.put(DEMO, leaving);
    };

    let limit = Duration::from_millis(700);
    let (unoffloaded, ()) = tokio::join!(rome.unoffload(&["demo"], limit), controller);

    let error = unoffloaded.unwrap_err().to_string();
    for part in [
        "took longer than 700ms: NamespaceOffloading demo/offloading still exists",
        "its finalizers namespaceoffloading-controller.liqo.io/finalizer wait",
        "in other clusters: without a valid name (cluster milan, Accepted), demo-rome (cluster turin, Terminating);",
        "liqoctl force unpeer milan",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    assert!(!error.contains("nice"), "{error}");
}

#[tokio::test]
async fn an_object_that_is_created_again_is_reported_and_kept() {
    let rome = Rome::start();
    // A watch would report the deletion in between, after which the command ends.
    rome.front.set(|head| match head.method.as_str() {
        "DELETE" => Reply::response("200 OK", "", offloading().to_string()),
        _ if head.is_watch() => Reply::status(403, "Forbidden", "the user cannot watch"),
        _ => Reply::Forward,
    });
    let user = async {
        rome.front.received(Head::is_delete).await;
        rome.server.remove(DEMO);
        rome.server.put(DEMO, offloading());
    };

    let (unoffloaded, ()) = tokio::join!(rome.unoffload(&["demo"], LONG), user);

    let error = unoffloaded.unwrap_err().to_string();
    assert!(error.contains("was created again"), "{error}");
    assert_eq!(rome.front.count(Head::is_delete), 1);
    assert!(rome.server.get(DEMO).is_some());
}

#[tokio::test]
async fn an_object_that_is_created_again_before_the_deletion_is_kept() {
    let rome = Rome::start();
    let flags = parse(["liqoctl", "unoffload", "namespace", "demo"].into_iter());
    let (targets, _) = read(&rome.cluster, &flags).await.unwrap();
    // While the command asks for confirmation.
    rome.server.remove(DEMO);
    rome.server.put(DEMO, offloading());

    let unoffloaded = unoffload(&rome.cluster, targets, Deadline::after(LONG)).await;

    // The watch may report the deletion of the first object, or only the second one.
    if let Err(error) = unoffloaded {
        assert!(error.to_string().contains("was created again"), "{error}");
    }
    assert_eq!(rome.front.count(Head::is_delete), 1);
    assert!(rome.server.get(DEMO).is_some());
}

#[tokio::test]
async fn a_missing_namespace_is_an_error() {
    let rome = Rome::start();

    let error = rome.unoffload(&["demo", "dmeo"], LONG).await.unwrap_err();

    assert!(error.to_string().contains("namespace dmeo does not exist"));
    assert!(rome.server.get(DEMO).is_some());
}

#[tokio::test]
async fn running_pods_on_virtual_nodes_are_named_before_their_deletion() {
    let rome = Rome::start();
    let put = |name: &str, labels: Value, phase: &str| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "demo", "labels": labels},
            "spec": {"containers": [], "nodeName": "milan"}, "status": {"phase": phase}});
        rome.server
            .put(&format!("/api/v1/namespaces/demo/pods/{name}"), pod);
    };
    let shadow = json!({"liqo.io/shadowPod": "true"});
    put("local", json!({}), "Running");
    put("done", shadow.clone(), "Succeeded");
    let flags = || parse(["liqoctl", "unoffload", "namespace", "demo"].into_iter());
    let (_, running) = read(&rome.cluster, &flags()).await.unwrap();
    assert_eq!(pods::describe(&running), None);

    for index in 0..7 {
        put(&format!("web-{index}"), shadow.clone(), "Running");
    }
    let (_, running) = read(&rome.cluster, &flags()).await.unwrap();

    let text = pods::describe(&running).unwrap();
    assert!(
        text.contains("demo (web-0 on milan, web-1 on milan"),
        "{text}"
    );
    assert!(text.ends_with("web-4 on milan, 2 more)"), "{text}");
}

#[tokio::test]
async fn a_user_who_may_not_list_pods_can_unoffload() {
    let rome = Rome::start();
    rome.front
        .set(|head| match head.target.contains("/namespaceoffloadings") {
            true => Reply::Forward,
            false => Reply::status(403, "Forbidden", "the user cannot do this"),
        });

    rome.unoffload(&["demo"], LONG).await.unwrap();

    assert_eq!(rome.server.get(DEMO), None);
}
