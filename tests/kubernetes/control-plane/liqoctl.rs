//! Tests of `liqoctl` with two clusters whose controller managers authenticate peers and replicate their requests.

mod purge;

use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use anyhow::{Context as _, Result, bail, ensure};
use control_api::{Identity, ResourceSlice, Tenant, VirtualNode};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{ListParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, ResourceExt as _};
use kubernetes_lab::control_plane::{ObjectRef, Options};
use kubernetes_lab::suite::artifacts;
use serde_json::json;
use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::Command;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        clusters_authenticate_repeatedly_and_part,
        a_peering_is_made_in_time_and_leaves_nothing,
        an_unreachable_provider_is_left_by_force_only,
        a_peering_user_peers_until_it_is_deleted,
        the_reverse_peering_outlives_the_end_of_the_other,
    );
    purge::add(suite);
}

/// The environment variable that `cargo xtask test --kubernetes` sets to the program `liqoctl`.
const LIQOCTL: &str = "LIQO_LAB_LIQOCTL";

/// Limit of the requests of `liqoctl` for one peering in both clusters.
const OWN_REQUESTS_MAX: usize = 17;

/// Limit of the requests of `liqoctl` and the managers for one peering in both clusters.
const REQUESTS_MAX: usize = 57;

/// Time without further requests after which a peering is complete.
const QUIET: Duration = Duration::from_secs(2);

/// A proxy in front of the API server. No test connects to it.
const PROXY: &str = "http://192.0.2.1:8118";

/// User of `liqoctl` in the audit log.
const ADMINISTRATOR: &str = "admin";

/// Prefix of the controllers of Kubernetes.
const KUBE_SYSTEM: &str = "system:serviceaccount:kube-system:";

/// Time in which `unpeer` reports that the provider does not respond.
const REPORTED: Duration = Duration::from_secs(10);

async fn clusters_authenticate_repeatedly_and_part(_: &'static Fixture) -> Result<()> {
    let rome = Site::start("rome", "milan", &[]).await?;
    let milan = Site::start("milan", "rome", &[]).await?;
    // Each side keeps a signed nonce of an earlier peering.
    for site in [&rome, &milan] {
        let labels = json!({"liqo.io/signed-nonce": "true"});
        let data = json!({"nonce": ByteString(b"earlier".to_vec())});
        site.create_secret("liqo-signed-nonce", &labels, &data)
            .await?;
    }

    liqoctl(&rome, &milan, &["authenticate"]).await?;
    for site in [&rome, &milan] {
        let left = site.names::<Secret>("liqo.io/signed-nonce=true").await?;
        ensure!(left.is_empty(), "{}: {left:?}", site.tenant_namespace());
    }
    let tenants = milan.versions::<Tenant>().await?;
    let identities = rome.versions::<Identity>().await?;
    ensure!(tenants.len() == 1 && identities.len() == 1);
    liqoctl(&rome, &milan, &["authenticate"]).await?;
    ensure!(
        milan.versions::<Tenant>().await? == tenants,
        "it was written again"
    );
    ensure!(
        rome.versions::<Identity>().await? == identities,
        "it was written again"
    );

    // Authentication without a proxy removes that of an earlier one.
    let flag = format!("--proxy-url={PROXY}");
    liqoctl(&rome, &milan, &["authenticate", &flag]).await?;
    let with_proxy = Some(PROXY.to_owned());
    ensure!(proxies(&rome, &milan).await? == [with_proxy.clone(), with_proxy]);
    liqoctl(&rome, &milan, &["authenticate"]).await?;
    let without = proxies(&rome, &milan).await?;
    ensure!(without == [None, None], "{without:?}");

    liqoctl(&rome, &milan, &["unauthenticate"]).await?;
    ensure!(milan.names::<Tenant>("").await?.is_empty());
    ensure!(rome.names::<Identity>("").await?.is_empty());
    let again = liqoctl(&rome, &milan, &["unauthenticate"]).await?;
    ensure!(again.contains("Tenant already deleted"), "{again}");
    Ok(())
}

/// Returns the proxy in the Tenant of the provider, and in the Identity of the consumer.
async fn proxies(consumer: &Site, provider: &Site) -> Result<[Option<String>; 2]> {
    let tenants = Api::namespaced(provider.client.clone(), &provider.tenant_namespace());
    let tenant: Tenant = tenants.get(&consumer.name).await?;
    let identities = Api::namespaced(consumer.client.clone(), &consumer.tenant_namespace());
    let name = format!("controlplane-{}", provider.name);
    let identity: Identity = identities.get(&name).await?;
    let of_consumer = identity.spec.auth_params.and_then(|it| it.proxy_url);

    // An empty text is none: another field manager may own the field.
    let proxies = [tenant.spec.proxy_url, of_consumer];
    Ok(proxies.map(|url| url.filter(|url| !url.is_empty())))
}

async fn a_peering_is_made_in_time_and_leaves_nothing(_: &'static Fixture) -> Result<()> {
    let rome = audited("rome", "milan").await?;
    let milan = audited("milan", "rome").await?;
    settle(&[&rome, &milan]).await?;
    settled([&rome, &milan], &BTreeMap::new()).await?;
    let before = requests([&rome, &milan])?;
    let start = Instant::now();
    let peer = ["peer", "--networking-disabled", "--cpu=2", "--memory=1Gi"];
    let out = liqoctl(&rome, &milan, &peer).await?;
    let taken = start.elapsed();
    let used = settled([&rome, &milan], &before).await?;
    let is_own = |it: &&String| it.contains(&format!(": {ADMINISTRATOR} "));
    let (all, own) = (used.len(), used.iter().filter(is_own).count());
    eprintln!("peer: {taken:?}, {all} requests, {own} of them by liqoctl");
    ensure!(out.contains("ResourceSlice resources: Accepted"), "{out}");
    ensure!(rome.names::<VirtualNode>("").await? == ["milan"]);
    let is_frugal = all <= REQUESTS_MAX && own <= OWN_REQUESTS_MAX;
    ensure!(
        is_frugal,
        "{all} requests, {own} by liqoctl:\n{}",
        used.join("\n")
    );

    let slices = rome.versions::<ResourceSlice>().await?;
    liqoctl(&rome, &milan, &peer).await?;
    ensure!(
        rome.versions::<ResourceSlice>().await? == slices,
        "it was written again"
    );
    let error = refusal(&rome, &milan.kubeconfig(), &["unauthenticate"]).await?;
    ensure!(error.contains("liqoctl unpeer"), "{error}");

    // An object of a user keeps the namespace of one side.
    let maps: Api<ConfigMap> = Api::namespaced(rome.client.clone(), &rome.tenant_namespace());
    let map = serde_json::from_value(json!({"metadata": {"name": "notes"}}))?;
    maps.create(&PostParams::default(), &map).await?;
    let start = Instant::now();
    let out = liqoctl(&rome, &milan, &["unpeer"]).await?;
    eprintln!("unpeer: {:?}", start.elapsed());
    ensure!(
        out.contains("is kept: it contains ConfigMap notes"),
        "{out}"
    );
    for (site, is_kept) in [(&rome, true), (&milan, false)] {
        ensure!(site.names::<Tenant>("").await?.is_empty());
        ensure!(site.names::<Identity>("").await?.is_empty());
        ensure!(site.names::<ResourceSlice>("").await?.is_empty());
        ensure!(site.names::<VirtualNode>("").await?.is_empty());
        let namespace = site.namespace().await?;
        ensure!(namespace.metadata.deletion_timestamp.is_none() == is_kept);
    }

    // The namespace that is being deleted is waited for.
    liqoctl(&rome, &milan, &peer).await?;
    ensure!(rome.names::<VirtualNode>("").await? == ["milan"]);
    Ok(())
}

async fn an_unreachable_provider_is_left_by_force_only(_: &'static Fixture) -> Result<()> {
    let rome = Site::start("rome", "milan", &[]).await?;
    let milan = Site::start("milan", "rome", &[]).await?;
    liqoctl(&rome, &milan, &["authenticate"]).await?;
    let nowhere = milan.kubeconfig_to("https://127.0.0.1:1")?;

    let start = Instant::now();
    let error = refusal(&rome, &nowhere, &["unpeer"]).await?;
    ensure!(start.elapsed() < REPORTED, "{:?}", start.elapsed());
    ensure!(error.contains("nothing was changed"), "{error}");
    ensure!(error.contains("liqoctl force unpeer ID"), "{error}");
    ensure!(error.contains("known peers: milan"), "{error}");
    ensure!(rome.names::<Identity>("").await?.len() == 1);

    let error = refusal(&rome, &nowhere, &["force", "unpeer", "turin"]).await?;
    ensure!(error.contains("no peer turin"), "{error}");
    run(&rome, &["force", "unpeer", "milan"]).await?;
    ensure!(rome.names::<Identity>("").await?.is_empty());
    // The command waits for the end of the namespace.
    let namespace = rome.find_namespace().await?;
    ensure!(namespace.is_none(), "{namespace:?}");
    Ok(())
}

async fn a_peering_user_peers_until_it_is_deleted(_: &'static Fixture) -> Result<()> {
    let rome = Site::start("rome", "milan", &[]).await?;
    let milan = Site::start("milan", "rome", &[]).await?;
    let generate = ["generate", "peering-user", "--consumer-cluster-id=rome"];
    let text = run(&milan, &generate).await?;
    // A user redirects the output to a file.
    ensure!(text.starts_with("apiVersion: v1\n"), "{text}");
    let path = milan
        .control_plane()
        .folder()
        .join("peering-user.kubeconfig");
    std::fs::write(&path, &text)?;
    let flag = format!("--remote-kubeconfig={}", path.display());
    let again = refusal(&milan, &path, &generate).await?;
    ensure!(again.contains("delete peering-user"), "{again}");

    // Twice, because the user may create a Secret and not change it.
    let peer = ["peer", "--networking-disabled", &flag];
    for _ in 0..2 {
        let out = run(&rome, &peer).await?;
        ensure!(out.contains("ResourceSlice resources: Accepted"), "{out}");
    }
    let out = run(&rome, &["unpeer", &flag]).await?;
    ensure!(
        out.contains("is kept: the user may not list its objects"),
        "{out}"
    );
    ensure!(milan.names::<Tenant>("").await?.is_empty());

    run(
        &milan,
        &["delete", "peering-user", "--consumer-cluster-id=rome"],
    )
    .await?;
    if let Some(namespace) = milan.find_namespace().await? {
        ensure!(namespace.metadata.deletion_timestamp.is_some());
    }
    let error = refusal(&rome, &path, &["peer", "--networking-disabled"]).await?;
    ensure!(error.contains("request this right"), "{error}");
    Ok(())
}

async fn the_reverse_peering_outlives_the_end_of_the_other(_: &'static Fixture) -> Result<()> {
    let rome = Site::start("rome", "milan", &[]).await?;
    let milan = Site::start("milan", "rome", &[]).await?;
    let peer = ["peer", "--networking-disabled"];
    let (forward, reverse) =
        tokio::join!(liqoctl(&rome, &milan, &peer), liqoctl(&milan, &rome, &peer));
    forward?;
    reverse?;
    let generate = ["generate", "peering-user", "--consumer-cluster-id=rome"];
    let error = refusal(&milan, &milan.kubeconfig(), &generate).await?;
    ensure!(error.contains("--allow-reverse-peering"), "{error}");

    let words = ["unpeer", "--delete-namespaces"];
    let error = refusal(&rome, &milan.kubeconfig(), &words).await?;
    ensure!(error.contains("is also a consumer"), "{error}");
    ensure!(rome.names::<VirtualNode>("").await? == ["milan"]);

    liqoctl(&rome, &milan, &["unpeer"]).await?;
    ensure!(rome.names::<VirtualNode>("").await?.is_empty());
    ensure!(milan.names::<Tenant>("").await?.is_empty());
    ensure!(milan.names::<VirtualNode>("").await? == ["rome"]);
    ensure!(rome.names::<Tenant>("").await? == ["milan"]);
    let provided = rome.names::<ResourceSlice>("liqo.io/replicated=true");
    ensure!(provided.await? == ["rome"]);
    for site in [&rome, &milan] {
        let namespace = site.namespace().await?;
        ensure!(namespace.metadata.deletion_timestamp.is_none());
    }

    liqoctl(&milan, &rome, &["unpeer"]).await?;
    ensure!(rome.names::<Tenant>("").await?.is_empty());
    for site in [&rome, &milan] {
        let namespace = site.namespace().await?;
        ensure!(namespace.metadata.deletion_timestamp.is_some());
    }
    Ok(())
}

/// Starts a cluster that records its requests.
async fn audited(name: &'static str, peer: &'static str) -> Result<Site> {
    let options = Options::new(artifacts()?);
    Site::start_with(name, peer, &[], options).await
}

/// Waits until the managers have created the keys of their clusters.
async fn settle(sites: &[&Site]) -> Result<()> {
    for site in sites {
        let secrets: Api<Secret> = Api::namespaced(site.client.clone(), "liqo");
        until(Deadline::after(SOON), "the key", async || {
            secrets.get("authentication-keys").await?;
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Returns the requests of a peering after those of `before`, once the managers send no more.
async fn settled(sites: [&Site; 2], before: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let mut count = 0;
    let mut quiet_since = Instant::now();
    until(Deadline::after(SOON), "the last request", async || {
        let mut used = requests(sites)?;
        used.retain(|id, _| !before.contains_key(id));
        if used.len() != count {
            (count, quiet_since) = (used.len(), Instant::now());
        }
        ensure!(quiet_since.elapsed() > QUIET, "{count} requests so far");
        let mut used = Vec::from_iter(used.into_values());
        used.sort();
        Ok(used)
    })
    .await
}

/// Returns the requests of `liqoctl` and the managers so far by ID. Those that an idle peering has, too, are not counted: the
/// renewal of Leases, and probes.
fn requests(sites: [&Site; 2]) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for site in sites {
        for event in site.control_plane().audit_log().since(0)? {
            let object = event.object_ref.unwrap_or_default();
            let user = event.user.username;
            let is_of_kubernetes = ["system:kube", "system:apiserver", KUBE_SYSTEM]
                .iter()
                .any(|prefix| user.starts_with(prefix));
            let is_idle = object.resource == "leases" || event.request_uri == "/livez";
            if !is_idle && !is_of_kubernetes {
                let ObjectRef {
                    resource,
                    subresource,
                    name,
                    ..
                } = object;
                let request = format!(
                    "{}: {user} {} {resource} {subresource} {name}",
                    site.name, event.verb
                );
                found.insert(event.audit_id, request);
            }
        }
    }
    Ok(found)
}

pub(crate) async fn liqoctl(local: &Site, remote: &Site, words: &[&str]) -> Result<String> {
    let flag = format!("--remote-kubeconfig={}", remote.kubeconfig().display());
    run(local, &[words, &[&flag]].concat()).await
}

/// Runs `liqoctl`, and returns its output.
pub(crate) async fn run(local: &Site, words: &[&str]) -> Result<String> {
    let (is_success, out, error) = execute(local, words).await?;
    if !is_success {
        bail!("`liqoctl {}` failed:\n{out}{error}", words.join(" "));
    }
    Ok(out)
}

/// Returns the message of a command that must fail.
pub(crate) async fn refusal(
    local: &Site,
    remote: &std::path::Path,
    words: &[&str],
) -> Result<String> {
    let flag = format!("--remote-kubeconfig={}", remote.display());
    let words = match words.first() {
        Some(&("force" | "generate")) => words.to_vec(),
        _ => [words, &[&flag]].concat(),
    };
    let (is_success, out, error) = execute(local, &words).await?;
    ensure!(
        !is_success,
        "`liqoctl {}` succeeded:\n{out}",
        words.join(" ")
    );
    Ok(error)
}

/// Returns the command, with the kubeconfig of a cluster.
pub(crate) fn command(local: &Site, words: &[&str]) -> Result<Command> {
    let program = env::var_os(LIQOCTL).with_context(|| format!("{LIQOCTL} is not set"))?;
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("KUBECONFIG", local.kubeconfig())
        .args(words)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if !words.iter().any(|word| word.starts_with("--timeout")) {
        command.arg("--timeout=60s");
    }
    Ok(command)
}

/// Returns whether a command succeeds, and what it prints to standard output and to standard error.
pub(crate) async fn execute(local: &Site, words: &[&str]) -> Result<(bool, String, String)> {
    let output = command(local, words)?.output().await?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((
        output.status.success(),
        text(output.stdout),
        text(output.stderr),
    ))
}

impl Site {
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.control_plane().kubeconfig()
    }

    /// Writes a copy of the kubeconfig with another address.
    fn kubeconfig_to(&self, server: &str) -> Result<PathBuf> {
        let mut kubeconfig = Kubeconfig::read_from(self.kubeconfig())?;
        for cluster in &mut kubeconfig.clusters {
            if let Some(cluster) = &mut cluster.cluster {
                cluster.server = Some(server.to_owned());
            }
        }
        let path = self.control_plane().folder().join("nowhere.kubeconfig");
        std::fs::write(&path, serde_json::to_string(&kubeconfig)?)?;
        Ok(path)
    }

    /// Returns the names of the objects in the tenant namespace.
    pub(crate) async fn names<K: Kind>(&self, selector: &str) -> Result<Vec<String>> {
        let objects = self.objects::<K>(selector).await?;
        Ok(objects.iter().map(|it| it.name_any()).collect())
    }

    /// Returns names and resource versions of the objects in the tenant namespace.
    pub(crate) async fn versions<K: Kind>(&self) -> Result<Vec<(String, Option<String>)>> {
        let objects = self.objects::<K>("").await?;
        let version = |it: &K| (it.name_any(), it.resource_version());
        Ok(objects.iter().map(version).collect())
    }

    pub(crate) async fn objects<K: Kind>(&self, selector: &str) -> Result<Vec<K>> {
        let api = Api::<K>::namespaced(self.client.clone(), &self.tenant_namespace());
        Ok(api
            .list(&ListParams::default().labels(selector))
            .await?
            .items)
    }

    /// Returns the tenant namespace.
    ///
    /// # Errors
    ///
    /// Fails if it does not exist.
    pub(crate) async fn namespace(&self) -> Result<Namespace> {
        let name = self.tenant_namespace();
        self.find_namespace()
            .await?
            .with_context(|| format!("no namespace {name}"))
    }

    /// Returns the tenant namespace if it exists.
    async fn find_namespace(&self) -> Result<Option<Namespace>> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        Ok(api.get_opt(&self.tenant_namespace()).await?)
    }
}

pub(crate) trait Kind:
    kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + serde::de::DeserializeOwned
{
}

impl<K> Kind for K where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
{
}
