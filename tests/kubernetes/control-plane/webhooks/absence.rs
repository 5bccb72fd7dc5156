//! Requests while no controller manager serves the admission webhooks of the chart.

use super::metrics::Metrics;
use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, LIQO, SOON, Suite, chart, serial, until};
use crate::liqoctl::run;
use crate::rights::attack::{Refusal, Request, User};
use anyhow::{Context as _, Result, bail, ensure};
use http::header::CONTENT_TYPE;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::ListParams;
use kube::{Api, Client};
use kubernetes_lab::control_plane::Options;
use kubernetes_lab::suite::artifacts;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        without_a_manager_no_request_outside_of_offloaded_namespaces_waits_or_fails,
    );
}

/// Address of the webhooks.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 9, 2);

/// The webhooks of the chart.
const PODS: &str = "pod.mutate.liqo.io";
const DAEMON_SETS: &str = "daemonset.mutate.liqo.io";
const SHADOW_PODS: &str = "shadowpod.mutate.liqo.io";
const WEBHOOKS: [&str; 4] = [PODS, DAEMON_SETS, SHADOW_PODS, "shadowpod.validate.liqo.io"];

/// Longest creation of a DaemonSet: the time-out of its webhook of 2 s, and a slow machine.
const DAEMON_SET_MAX: Duration = Duration::from_secs(4);

/// Longest call of a webhook whose connection is refused, in seconds. It is far below all time-outs.
const REFUSED_MAX: f64 = 1.0;

async fn without_a_manager_no_request_outside_of_offloaded_namespaces_waits_or_fails(
    _: &'static Fixture,
) -> Result<()> {
    let rome = Site::start_unmanaged("rome", "milan", Options::new(artifacts()?)).await?;
    let control_plane = rome.control_plane();
    control_plane
        .install_webhooks(&chart()?, LIQO, ADDRESS)
        .await?;
    let client = &rome.client;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    until(Deadline::after(SOON), "the ServiceAccount", async || {
        Ok(accounts.get("default").await?)
    })
    .await?;
    let labels = json!({"liqo.io/scheduling-enabled": "true"});
    create(
        client,
        "/api/v1/namespaces",
        &namespace("offloaded", &labels),
    )
    .await?;
    until(Deadline::after(SOON), "the webhooks", async || {
        is_not_reviewed(
            client,
            PODS,
            "/api/v1/namespaces/offloaded/pods",
            &pod("web"),
        )
        .await
    })
    .await?;

    no_webhook_is_called(client).await?;
    daemon_sets_are_created(client).await?;
    shadow_pods_that_name_their_creator_need_no_review(client).await?;
    policies_go_on_refusing(client).await?;
    uninstall_ends(&rome).await
}

/// The server of the webhooks accepts connections and sends nothing, which is the longest that it can delay a request.
async fn no_webhook_is_called(client: &Client) -> Result<()> {
    let _silent = TcpListener::bind((ADDRESS, 9443)).context("the address is not free")?;
    let before = Metrics::read(client).await?;
    let none = json!({});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": pod("web")["spec"]});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    for (path, object) in [
        ("/api/v1/namespaces", namespace("plain", &none)),
        ("/api/v1/namespaces/default/pods", pod("web")),
        ("/apis/apps/v1/namespaces/default/deployments", deployment),
        (
            "/api/v1/nodes",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}),
        ),
    ] {
        create(client, path, &object).await?;
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    until(
        Deadline::after(SOON),
        "a pod of the Deployment",
        async || {
            let found = pods.list(&ListParams::default().labels("app=web")).await?;
            ensure!(!found.items.is_empty(), "none");
            Ok(())
        },
    )
    .await?;

    let after = Metrics::read(client).await?;
    for webhook in WEBHOOKS {
        let (before, after) = (before.calls(webhook), after.calls(webhook));
        ensure!(
            before.total_cmp(&after).is_eq(),
            "{webhook}: {before} calls, then {after}"
        );
    }
    Ok(())
}

async fn daemon_sets_are_created(client: &Client) -> Result<()> {
    let before = Metrics::read(client).await?;
    let daemon_set = |name: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod(name)["spec"]},
            },
        })
    };
    let path = "/apis/apps/v1/namespaces/default/daemonsets";
    let silent = TcpListener::bind((ADDRESS, 9443)).context("the address is not free")?;
    let start = Instant::now();
    create(client, path, &daemon_set("silent")).await?;
    let elapsed = start.elapsed();
    ensure!(elapsed < DAEMON_SET_MAX, "{elapsed:?}");
    drop(silent);

    // Without pods of the manager, Kubernetes refuses connections to the Service.
    let silent = Metrics::read(client).await?;
    create(client, path, &daemon_set("refused")).await?;
    let after = Metrics::read(client).await?;
    let duration = after.duration(DAEMON_SETS) - silent.duration(DAEMON_SETS);
    let open = after.fail_open(DAEMON_SETS) - before.fail_open(DAEMON_SETS);
    eprintln!(
        "a DaemonSet took {elapsed:?} with a silent server, the refused call {duration:.4} s"
    );
    ensure!(duration < REFUSED_MAX, "{duration} s");
    ensure!(
        open.total_cmp(&2.0).is_eq(),
        "{open} DaemonSets were not reviewed"
    );
    Ok(())
}

/// Virtual kubelets of this project name themselves in the ShadowPods that they create.
async fn shadow_pods_that_name_their_creator_need_no_review(client: &Client) -> Result<()> {
    let labels = json!({"liqo.io/remote-cluster-id": "milan"});
    create(client, "/api/v1/namespaces", &namespace("books", &labels)).await?;
    let path = "/apis/offloading.liqo.io/v1beta1/namespaces/books/shadowpods";
    let shadow_pod = |name: &str, creator: Option<&str>| {
        json!({
            "apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod",
            "metadata": {
                "name": name,
                "labels": {"offloading.liqo.io/origin": "milan", "liqo.io/creator-user": creator},
            },
            "spec": {"pod": pod(name)["spec"]},
        })
    };
    create(client, path, &shadow_pod("named", Some("admin"))).await?;
    for creator in [None, Some("another-user")] {
        is_not_reviewed(client, SHADOW_PODS, path, &shadow_pod("web", creator)).await?;
    }

    let change = |creator: Option<&str>| {
        let labels = json!({"app": "web", "liqo.io/creator-user": creator});
        patch(
            client,
            format!("{path}/named"),
            json!({"metadata": {"labels": labels}}),
        )
    };
    for creator in [None, Some("another-user")] {
        is_unavailable(change(creator).await, SHADOW_PODS)?;
    }
    // The webhook that limits the fields which may change reviews each change.
    is_unavailable(change(Some("admin")).await, "shadowpod.validate.liqo.io")
}

async fn policies_go_on_refusing(client: &Client) -> Result<()> {
    let object = |api: &str, kind: &str, namespace: &str, name: &str| {
        json!({
            "apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": {},
        })
    };
    let (offloading, authentication) = (
        "offloading.liqo.io/v1beta1",
        "authentication.liqo.io/v1beta1",
    );
    let administrator = User(client.clone());
    for (object, policy) in [
        (
            object(offloading, "NamespaceOffloading", "plain", "other"),
            "liqo-namespace-offloadings",
        ),
        (
            object(authentication, "TenantPolicy", "plain", "default"),
            "liqo-tenant-policies",
        ),
    ] {
        let request = Request::Create(object);
        let refusal = Refusal::Policy(policy);
        administrator.is_refused(&request, refusal).await?;
    }
    let path = "/apis/offloading.liqo.io/v1beta1/namespaces/plain/shadowpods";
    let shadow_pod = object(offloading, "ShadowPod", "plain", "web");
    is_not_reviewed(client, "shadowpod.mutate.liqo.io", path, &shadow_pod).await
}

/// `liqoctl uninstall` removes webhook configurations first, and policies next.
async fn uninstall_ends(rome: &Site) -> Result<()> {
    run(rome, &["uninstall", "--skip-confirm"]).await?;

    let events = rome.control_plane().audit_log().since(0)?;
    let resources = events.iter().filter(|it| {
        it.verb == "delete" && it.user.username == "admin" && it.stage == "ResponseComplete"
    });
    let resources = resources.filter_map(|it| it.object_ref.as_ref());
    let mut resources: Vec<_> = resources.map(|it| it.resource.as_str()).collect();
    resources.dedup();
    let first = [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicies",
    ];
    ensure!(resources.starts_with(&first), "{resources:?}");
    until(
        Deadline::after(SOON),
        "the end of the webhooks",
        async || {
            create(
                &rome.client,
                "/api/v1/namespaces/offloaded/pods",
                &pod("web"),
            )
            .await
        },
    )
    .await
}

/// Checks that a request is refused because a webhook cannot be called.
async fn is_not_reviewed(client: &Client, webhook: &str, path: &str, object: &Value) -> Result<()> {
    is_unavailable(create(client, path, object).await, webhook)
}

fn is_unavailable(response: Result<()>, webhook: &str) -> Result<()> {
    match response {
        Ok(()) => bail!("{webhook}: the request was permitted"),
        Err(error) => {
            let named = format!("failed calling webhook \"{webhook}\"");
            ensure!(format!("{error:#}").contains(&named), "{error:#}");
            Ok(())
        }
    }
}

async fn patch(client: &Client, path: String, patch: Value) -> Result<()> {
    let request = http::Request::patch(&path).header(CONTENT_TYPE, "application/merge-patch+json");
    let request = request.body(patch.to_string().into_bytes())?;
    let patched: kube::Result<Value> = client.request(request).await;
    patched.map(drop).context(path)
}

async fn create(client: &Client, path: &str, object: &Value) -> Result<()> {
    let request = http::Request::post(path).header(CONTENT_TYPE, "application/json");
    let request = request.body(object.to_string().into_bytes())?;
    let created: kube::Result<Value> = client.request(request).await;
    created.map(drop).with_context(|| path.to_owned())
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "web", "image": "web"}]},
    })
}
