//! A running server with its two clusters.

use super::certificates::{Authority, Issued};
use super::client::Stream;
use super::fake::{Fake, Received, Reply, json, reply};
use crate::pod::kept;
use crate::server::certificate::issue::{Server as Subject, self_signed};
use crate::server::{
    Access, Api, ClientAuthority, Limits, Metrics, Provider, Scraper, Server, Serving, Streams,
    listen,
};
use crate::settings::Settings;
use control_api::NamespaceMap;
use control_runtime::{Cache, CacheReader, Clients, Cluster, Registration, Resource, Scope};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::{Value, json as object};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than a test may take.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// UID of the pod `shop/web`.
pub(super) const UID: &str = "uid-web";

/// The server of the Node `milan`, with the pod `shop/web`.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) home: Fake,
    pub(super) provider: Fake,
    pub(super) metrics: Metrics,
    pub(super) authority: ClientAuthority,
    pub(super) trusted: Authority,
    pub(super) api_server: Issued,
    pub(super) cache: CacheReader,
    stop: Option<oneshot::Sender<()>>,
    pub(super) task: JoinHandle<()>,
}

impl Running {
    /// Starts a server whose provider replies by a rule.
    pub(super) async fn start(rule: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::limited(rule, |_| {}).await
    }

    /// Starts a server with other limits.
    pub(super) async fn limited(
        rule: impl Fn(&Received) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut Limits),
    ) -> Self {
        let mut limits = Limits::default();
        change(&mut limits);
        let (home, provider) = (Fake::start(review).await, Fake::start(rule).await);
        let milan = Cluster::remote("milan");
        let clients = Clients::from_iter([
            (Cluster::Local, home.client("of-home")),
            (milan.clone(), provider.client("of-provider")),
        ]);
        let (trusted, authority) = (Authority::new("kubernetes"), ClientAuthority::default());
        authority.set(&trusted.pem()).unwrap();
        let settings = crate::side::settings();
        let (cache, serving) = (CacheReader::fixture(objects(&settings)), Serving::default());
        let subject = Subject {
            node: settings.node.clone(),
            address: [127, 0, 0, 1].into(),
        };
        serving.set(self_signed(&subject, Timestamp::now()).unwrap());
        let metrics = Metrics::new(&mut Registry::default());
        let provider_api = Provider::new(clients.clone(), milan);
        let api = Api {
            cache: cache.clone(),
            access: Access::new(clients, authority.clone(), &settings.node),
            scraper: Scraper::new(provider_api.clone(), &settings.home, metrics.clone()),
            provider: provider_api,
            streams: Streams::new(limits.streams, metrics.clone()),
            metrics: metrics.clone(),
            settings,
        };
        let server = Server::new(api, serving, limits).unwrap();
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(listener, async {
            stopped.await.ok();
        }));
        let api_server = trusted.client("apiserver", &["masters"]);
        let stop = Some(stop);
        Self {
            address,
            home,
            provider,
            metrics,
            authority,
            trusted,
            api_server,
            cache,
            stop,
            task,
        }
    }

    pub(super) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Connects as the API server of this cluster.
    pub(super) async fn connect(&self) -> Stream {
        Stream::connect(self.address, Some(&self.api_server)).await
    }

    /// Sends a request as the API server of this cluster; returns status, head and body.
    pub(super) async fn send(&self, request: &str) -> (u16, String, String) {
        let mut stream = self.connect().await;
        stream.send(request).await;
        stream.response().await
    }

    /// Sends a GET.
    pub(super) async fn get(&self, path: &str) -> (u16, String, String) {
        self.send(&get(path, "")).await
    }

    /// Returns method and target of each request to the provider.
    pub(super) fn forwarded(&self) -> Vec<String> {
        let received = self.provider.received();
        let line = |it: &Received| format!("{} {}", it.method, it.target);
        received.iter().map(line).collect()
    }

    /// Returns verb and subresource of each review of a right, with the user.
    pub(super) fn reviews(&self) -> Vec<String> {
        let received = self.home.received();
        let reviews = received
            .iter()
            .filter(|it| it.target.contains("subjectaccess"));
        let text = |it: &Received| {
            let spec = &it.body["spec"];
            let resource = &spec["resourceAttributes"];
            assert_eq!(
                (&resource["resource"], &resource["name"]),
                (&object!("nodes"), &object!("milan"))
            );
            let [user, verb, subresource] =
                [&spec["user"], &resource["verb"], &resource["subresource"]]
                    .map(|it| it.as_str().unwrap());
            format!("{user}: {verb} {subresource}")
        };
        reviews.map(text).collect()
    }
}

/// Waits until a condition holds.
pub(super) async fn eventually(condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, holds)
        .await
        .expect("the condition holds in time");
}

/// Returns a GET that is the last request of its connection.
pub(super) fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: milan\r\nConnection: close\r\n{headers}\r\n")
}

/// Replies to anything with an empty object.
pub(super) fn nothing(_: &Received) -> Reply {
    reply(200, "{}")
}

/// The API server of this cluster: `apiserver` and tokens with `admin` may do anything, `scraper` reads metrics.
fn review(request: &Received) -> Reply {
    let spec = &request.body["spec"];
    if request.target.contains("tokenreviews") {
        let token = spec["token"].as_str().unwrap();
        let status = match token {
            "broken" => return reply(500, "{}"),
            "admin" | "scraper" | "guest" => {
                object!({"authenticated": true, "user": {"username": token, "groups": ["g"]}})
            }
            _ => object!({"authenticated": false}),
        };
        return json(201, &object!({"spec": spec, "status": status}));
    }
    let user = spec["user"].as_str().unwrap();
    let subresource = spec["resourceAttributes"]["subresource"].as_str().unwrap();
    let allowed = match user {
        "apiserver" | "admin" => true,
        "scraper" => matches!(subresource, "metrics" | "stats"),
        _ => false,
    };
    json(
        201,
        &object!({"spec": spec, "status": {"allowed": allowed}}),
    )
}

fn registrations() -> [Registration; 3] {
    [
        kept::pods(Scope::All),
        Registration::whole::<NamespaceMap>(Scope::All),
        Registration::whole::<Node>(Scope::All),
    ]
}

fn objects(settings: &Settings) -> Cache {
    let mut cache = Cache::fixture(&registrations()).unwrap();
    put::<NamespaceMap>(
        &mut cache,
        object!({
            "metadata": {"name": "milan", "namespace": settings.tenant_namespace},
            "spec": {"desiredMapping": {"shop": "shop-rome", "new": "new-rome"}},
            "status": {"currentMapping": {
                "shop": {"phase": "Accepted", "remoteNamespace": "shop-rome"},
                "new": {"phase": "CreationLoopBackOff", "remoteNamespace": "new-rome"},
            }},
        }),
    );
    for (namespace, name, node) in [
        ("shop", "web", "milan"),
        ("shop", "pending", "milan"),
        ("shop", "foreign", "milan"),
        ("shop", "local", "rome-1"),
        ("new", "web", "milan"),
        ("other", "web", "milan"),
    ] {
        put::<Pod>(
            &mut cache,
            object!({
                "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{name}")},
                "spec": {"nodeName": node, "containers": [{"name": "web"}]},
            }),
        );
    }
    for (namespace, name, node) in [
        ("shop-rome", "web", "milan"),
        ("shop-rome", "local", "milan"),
        ("shop-rome", "foreign", "other"),
        ("new-rome", "web", "milan"),
    ] {
        put_remote(&mut cache, namespace, name, node);
    }
    cache
}

fn put<K: kube::Resource<DynamicType = ()>>(cache: &mut Cache, object: Value) {
    let (registration, entry) = entry::<K>(object);
    cache.fixture_put(&registration, entry);
}

fn entry<K: kube::Resource<DynamicType = ()>>(
    mut object: Value,
) -> (Registration, control_runtime::Entry) {
    let resource = Resource::of::<K>();
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = resource.kind.as_ref().into();
    object["metadata"]["resourceVersion"] = "1".into();
    let found = registrations()
        .into_iter()
        .find(|it| it.resource == resource);
    let registration = found.unwrap();
    let entry = registration.decode(&object.to_string()).unwrap();
    (registration, entry)
}

pub(super) fn put_remote(cache: &mut Cache, namespace: &str, name: &str, node: &str) {
    let labels = object!({
        "offloading.liqo.io/origin": "rome",
        "offloading.liqo.io/destination": "milan",
        "offloading.liqo.io/nodename": node,
    });
    let pod =
        object!({"metadata": {"namespace": namespace, "name": name, "uid": "1", "labels": labels}});
    let (registration, entry) = entry::<Pod>(pod);
    cache.fixture_put_remote(&Cluster::remote("milan"), &registration, entry);
}
