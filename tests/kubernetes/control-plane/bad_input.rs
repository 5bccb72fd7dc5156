//! Tests of wrong flags, kubeconfigs, rights and objects: each ends in a message that names the cause and the remedy, and
//! other tenants are not affected.

use crate::authentication::site::{Site, tenant_namespace};
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::liqoctl::{execute, liqoctl, refusal, run};
use anyhow::{Context as _, Result, ensure};
use control_api::{Identity, ResourceSlice, Tenant, VirtualNode};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, ObjectList};
use kube::config::Kubeconfig;
use kube::{Api, ResourceExt as _};
use kubernetes_lab::pki::Subject;
use serde_json::{Value, json};
use std::path::PathBuf;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        wrong_flags_kubeconfigs_and_rights_are_explained,
        wrong_objects_are_reported_and_other_tenants_are_untouched,
    );
}

const PEER: [&str; 2] = ["peer", "--networking-disabled"];

async fn wrong_flags_kubeconfigs_and_rights_are_explained(_: &'static Fixture) -> Result<()> {
    let (rome, milan) = Site::pair().await?;
    // Flags: before any request.
    let long = "a".repeat(52);
    for (words, part) in [
        (vec!["--cpu=-4"], "--cpu"),
        (vec!["--memory=lots"], "500m or 4Gi"),
        (vec!["--pods=1e999"], "--pods"),
        (vec!["--resource=nvidia.com/gpu=-1"], "--resource"),
        (vec!["--timeout=never"], "--timeout"),
        (
            vec!["--in-band", "--proxy-url=http://192.0.2.1:8118"],
            "--proxy-url",
        ),
    ] {
        let words = [&PEER[..], &words].concat();
        let error = refusal(&rome, &milan.kubeconfig(), &words).await?;
        ensure!(error.contains(part), "{words:?}: {error}");
    }
    let name = "a".repeat(64);
    let words = [
        "create",
        "resourceslice",
        &name,
        "--remote-cluster-id=milan",
    ];
    let (is_success, _, error) = execute(&rome, &words).await?;
    ensure!(!is_success && error.contains("use 63 at most"), "{error}");
    for (id, part) in [
        (long.as_str(), "use 51 at most"),
        ("Rome", "lower-case"),
        ("", "lower-case"),
        ("rome.example", "lower-case"),
    ] {
        let id = format!("--remote-cluster-id={id}");
        let (is_success, _, error) = execute(&milan, &["create", "nonce", &id]).await?;
        ensure!(!is_success && error.contains(part), "{id}: {error}");
    }

    // Kubeconfigs.
    let error = refusal(&rome, &rome.kubeconfig(), &PEER).await?;
    ensure!(error.contains("are the same"), "{error}");
    let error = refusal(&rome, &PathBuf::from("/nowhere/milan.yaml"), &PEER).await?;
    ensure!(error.contains("/nowhere/milan.yaml"), "{error}");
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "interactiveMode": "Never",
    });
    let failing = kubeconfig_with(&milan, "failing", &json!({"exec": exec}))?;
    let error = refusal(&rome, &failing, &PEER).await?;
    ensure!(error.contains("/bin/false"), "{error}");
    let expired = kubeconfig_with(&milan, "expired", &json!({"token": "expired"}))?;
    let error = refusal(&rome, &expired, &PEER).await?;
    ensure!(
        error.contains("remote cluster") && error.contains("refused the credentials"),
        "{error}"
    );

    // Rights: the message names the verb and the resource.
    let subject = Subject {
        user: "intern",
        group: None,
    };
    let intern = milan
        .control_plane()
        .kubeconfig_as(subject, milan.server())?;
    let error = refusal(&rome, &intern, &PEER).await?;
    ensure!(
        error.contains("User \"intern\" cannot list resource \"configmaps\""),
        "{error}"
    );
    ensure!(error.contains("request this right"), "{error}");
    for site in [&rome, &milan] {
        ensure!(site.names::<Tenant>("").await?.is_empty());
        ensure!(site.names::<Identity>("").await?.is_empty());
        ensure!(site.names::<ResourceSlice>("").await?.is_empty());
    }

    // Two namespaces for one peer.
    let labels = json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/tenant-namespace": "true"});
    let second = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "second", "labels": labels},
    });
    rome.apply(&second).await?;
    let error = refusal(&rome, &milan.kubeconfig(), &PEER).await?;
    ensure!(
        error.contains("several tenant namespaces are labelled for peer milan")
            && error.contains("second"),
        "{error}"
    );
    Ok(())
}

/// Writes a kubeconfig with another user.
fn kubeconfig_with(site: &Site, name: &str, user: &Value) -> Result<PathBuf> {
    let path = site.control_plane().folder().join(format!("{name}.conf"));
    std::fs::write(&path, kubeconfig(site, user)?)?;
    Ok(path)
}

fn kubeconfig(site: &Site, user: &Value) -> Result<String> {
    let mut kubeconfig = serde_json::to_value(Kubeconfig::read_from(site.kubeconfig())?)?;
    for entry in kubeconfig["users"].as_array_mut().context("no users")? {
        entry["user"] = user.clone();
    }
    Ok(kubeconfig.to_string())
}

async fn wrong_objects_are_reported_and_other_tenants_are_untouched(
    _: &'static Fixture,
) -> Result<()> {
    let (rome, milan) = Site::pair().await?;
    let bystander = Bystander::create(&milan).await?;
    liqoctl(&rome, &milan, &PEER).await?;

    // A class that nothing serves: the command says so, and then the condition.
    let to_milan = ["--remote-cluster-id=milan"];
    let words = ["create", "resourceslice", "gold", "--class=gold"];
    let (is_success, _, error) = execute(&rome, &[&words[..], &to_milan].concat()).await?;
    ensure!(
        is_success && error.contains("no controller of the provider has decided on class gold"),
        "{error}"
    );
    // Quantities and names that the schema accepts.
    let long = "a".repeat(253);
    rome.apply(&slice("absurd", &json!({"cpu": "-4"}))).await?;
    rome.apply(&slice("huge", &json!({"cpu": "999999999999999999999999"})))
        .await?;
    rome.apply(&slice(&long, &json!({}))).await?;
    let longest = "b".repeat(63);
    rome.apply(&slice(&longest, &json!({}))).await?;
    until_node(&rome, &longest).await?;
    let nodes = rome.names::<VirtualNode>("").await?;
    ensure!(nodes.len() == 2, "{nodes:?}");
    until_denied(&rome, "absurd").await?;
    until_denied(&rome, "huge").await?;
    let event = event_of(&milan, "ResourceSlice", "absurd").await?;
    ensure!(event.contains("spec.resources.cpu is"), "{event}");
    let event = event_of(&rome, "ResourceSlice", &long).await?;
    ensure!(event.contains("InvalidName"), "{event}");

    // A name that an object of a user has already.
    let taken = json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "VirtualNode",
        "metadata": {"name": "taken", "namespace": rome.tenant_namespace()},
        "spec": {"clusterID": "milan"},
    });
    rome.apply(&taken).await?;
    rome.apply(&slice("taken", &json!({}))).await?;
    let event = event_of(&rome, "ResourceSlice", "taken").await?;
    ensure!(event.contains("VirtualNodeExists"), "{event}");

    credentials_of_others(&rome, &milan).await?;
    until_denied(&rome, "gold").await?;
    bystander.check(&milan).await?;
    let out = liqoctl(&rome, &milan, &["peer", "--networking-disabled"]).await?;
    ensure!(out.contains("ResourceSlice resources: Accepted"), "{out}");
    Ok(())
}

/// Kubeconfigs of the user for other providers: one that runs a program, and one of another cluster.
async fn credentials_of_others(rome: &Site, milan: &Site) -> Result<()> {
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false"});
    let labels = json!({"liqo.io/remote-cluster-id": "naples", "liqo.io/tenant-namespace": "true"});
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "liqo-tenant-naples", "labels": labels},
    });
    rome.apply(&namespace).await?;
    let secret = |kubeconfig: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "naples", "namespace": "liqo-tenant-naples",
                "labels": {"liqo.io/identity-type": "ControlPlane", "liqo.io/remote-cluster-id": "naples"},
                "annotations": {"liqo.io/remote-tenant-namespace": tenant_namespace("rome")},
            },
            "data": {"kubeconfig": ByteString(kubeconfig.as_bytes().to_vec())},
        })
    };
    rome.apply(&secret(&kubeconfig(milan, &json!({"exec": exec}))?))
        .await?;
    let naples = Api::<Event>::namespaced(rome.client.clone(), "liqo-tenant-naples");
    let event = event(&naples, "Secret", "naples").await?;
    ensure!(
        event.contains("InvalidKubeconfig") && event.contains("users[].user.exec"),
        "{event}"
    );

    // The credentials of rome at milan are no credentials at naples.
    let secrets: Api<Secret> = Api::namespaced(rome.client.clone(), &rome.tenant_namespace());
    let own = secrets.get("kubeconfig-controlplane-milan").await?;
    let own = own.data.and_then(|mut data| data.remove("kubeconfig"));
    let own = String::from_utf8(own.context("no kubeconfig")?.0)?;
    rome.apply(&secret(&own)).await?;
    let mut of_naples = slice("of-naples", &json!({}));
    of_naples["metadata"]["namespace"] = json!("liqo-tenant-naples");
    for label in ["liqo.io/remote-cluster-id", "liqo.io/remoteID"] {
        of_naples["metadata"]["labels"][label] = json!("naples");
    }
    of_naples["spec"]["providerClusterID"] = json!("naples");
    rome.apply(&of_naples).await?;
    let event = event_of(milan, "ResourceSlice", "of-naples").await?;
    ensure!(event.contains("OtherProvider"), "{event}");
    run(rome, &["force", "unpeer", "naples"]).await?;
    Ok(())
}

/// A consumer of `milan` that does nothing.
struct Bystander {
    versions: Vec<Option<String>>,
}

impl Bystander {
    async fn create(milan: &Site) -> Result<Self> {
        let namespace = tenant_namespace("turin");
        let labels =
            json!({"liqo.io/remote-cluster-id": "turin", "liqo.io/tenant-namespace": "true"});
        milan
            .apply(&json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": namespace, "labels": labels},
            }))
            .await?;
        milan
            .apply(&json!({
                "apiVersion": "authentication.liqo.io/v1beta1", "kind": "Tenant",
                "metadata": {"name": "turin", "namespace": namespace},
                "spec": {"clusterID": "turin", "authzPolicy": "TolerateNoHandshake"},
            }))
            .await?;
        let tenants: Api<Tenant> = Api::namespaced(milan.client.clone(), &namespace);
        until(Deadline::after(SOON), "the Tenant of turin", async || {
            let status = tenants.get("turin").await?.status;
            ensure!(status.is_some(), "no status");
            Ok(())
        })
        .await?;

        Ok(Self {
            versions: Self::versions(milan).await?,
        })
    }

    async fn versions(milan: &Site) -> Result<Vec<Option<String>>> {
        let tenants: Api<Tenant> =
            Api::namespaced(milan.client.clone(), &tenant_namespace("turin"));
        let list: ObjectList<Tenant> = tenants.list(&ListParams::default()).await?;
        Ok(list.items.iter().map(|it| it.resource_version()).collect())
    }

    async fn check(&self, milan: &Site) -> Result<()> {
        let versions = Self::versions(milan).await?;
        ensure!(versions == self.versions, "{versions:?}");
        Ok(())
    }
}

fn slice(name: &str, resources: &Value) -> Value {
    json!({
        "apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice",
        "metadata": {
            "name": name, "namespace": tenant_namespace("milan"),
            "labels": {
                "liqo.io/remote-cluster-id": "milan",
                "liqo.io/remoteID": "milan",
                "liqo.io/replication": "true",
            },
            "annotations": {"liqo.io/create-virtual-node": "true"},
        },
        "spec": {"class": "default", "providerClusterID": "milan", "resources": resources},
    })
}

async fn until_node(site: &Site, name: &str) -> Result<()> {
    let nodes: Api<VirtualNode> = Api::namespaced(site.client.clone(), &site.tenant_namespace());
    until(Deadline::after(SOON), "the VirtualNode", async || {
        nodes.get(name).await?;
        Ok(())
    })
    .await
}

async fn until_denied(site: &Site, name: &str) -> Result<()> {
    let slices: Api<ResourceSlice> = Api::namespaced(site.client.clone(), &site.tenant_namespace());
    let what = format!("the denial of {name}");
    until(Deadline::after(SOON), &what, async || {
        let slice = json!(slices.get(name).await?);
        let conditions = slice["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let is_denied = conditions.any(|it| it["type"] == "Resources" && it["status"] == "Denied");
        ensure!(is_denied, "{slice}");
        Ok(())
    })
    .await
}

async fn event_of(site: &Site, kind: &str, name: &str) -> Result<String> {
    let events = Api::namespaced(site.client.clone(), &site.tenant_namespace());
    event(&events, kind, name).await
}

/// Waits for the warning about an object, and returns its reason and note.
async fn event(events: &Api<Event>, kind: &str, name: &str) -> Result<String> {
    let fields = format!("regarding.kind={kind},type=Warning");
    // An Event about an object with a long name refers to it as a related one.
    let is_about = |event: &&Event| {
        let objects = [&event.regarding, &event.related].into_iter().flatten();
        let mut names = objects.filter_map(|it| it.name.as_deref());
        names.any(|it| it == name)
    };
    let what = format!("a warning about {kind} {name}");
    until(Deadline::after(SOON), &what, async || {
        let list = events.list(&ListParams::default().fields(&fields)).await?;
        let found = list.items.iter().find(is_about).context("no Event")?;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Ok(format!("{}: {}", text(&found.reason), text(&found.note)))
    })
    .await
}
