//! Tests of failures of the API server, of etcd, and of the network between them and a controller:
//! it converges, and no write is lost or repeated.

use super::audit::{code, writes};
use super::copies;
use super::relay::Relay;
use super::replica::{Replica, TIMING};
use crate::fixture::{Deadline, Fixture, Suite, serial, until};
use anyhow::{Context as _, Result, ensure};
use futures_util::future::ready;
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use kubernetes_lab::control_plane::Component;
use std::time::Duration;
use tokio::time::{sleep, timeout};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_restart_of_the_api_server_loses_no_change,
        an_expired_watch_history_loses_no_change,
        a_cut_network_loses_no_change,
        a_restored_snapshot_is_listed_again,
        a_restored_snapshot_is_listed_again_by_quiet_watches_without_a_lease,
        a_renewal_after_the_deadline_loses_no_change,
    );
}

/// The time limit of the convergence after a failure.
const CONVERGED: Duration = Duration::from_secs(60);

/// The duration of a cut. The transport gives up silent connections after 45 s, and delays grow to their limits
/// meanwhile.
const CUT: Duration = Duration::from_secs(300);

/// A controller, and the objects that it copies.
struct Setup {
    fixture: &'static Fixture,
    client: Client,
    namespace: &'static str,
    names: Vec<String>,
    relay: Relay,
    replica: Replica,
}

impl Setup {
    /// Starts a controller that is the user `namespace`, and waits until it has copied the value 1.
    async fn start(fixture: &'static Fixture, namespace: &'static str) -> Result<Self> {
        Self::start_with(fixture, namespace, Replica::start).await
    }

    async fn start_with(
        fixture: &'static Fixture,
        namespace: &'static str,
        start: fn(&Fixture, &'static str, &str, &str) -> Result<Replica>,
    ) -> Result<Self> {
        let relay = Relay::start(fixture.control_plane.server()).await?;
        let replica = start(fixture, namespace, namespace, &relay.url())?;
        let setup = Self {
            fixture,
            client: fixture.namespace(namespace).await?,
            namespace,
            names: copies::names("copy", 20),
            relay,
            replica,
        };
        setup.put("1").await?;
        setup.until_copied("1").await?;

        Ok(setup)
    }

    async fn put(&self, value: &str) -> Result<()> {
        let (namespace, names) = (self.namespace, &self.names);
        copies::put(&self.client, namespace, names, &["secret"], value).await
    }

    async fn until_copied(&self, value: &str) -> Result<()> {
        until(Deadline::after(CONVERGED), "the copies", async || {
            copies::check(self.fixture, self.namespace, &self.names, value).await
        })
        .await
    }

    /// Waits until the controller has sent this number of lists.
    async fn until_listed(&self, count: usize) -> Result<()> {
        until(Deadline::after(CONVERGED), "the lists", async || {
            let lists = self.replica.lists(self.fixture)?;
            ensure!(lists >= count, "{lists} of {count} lists");
            Ok(())
        })
        .await
    }

    /// Stops the controller, and checks that no object was written more often than its value was
    /// changed, without the writes that the API server refused.
    async fn end(mut self, values: usize) -> Result<()> {
        self.replica.stop().await?;
        let events = self.replica.events(self.fixture, "secrets")?;
        for name in &self.names {
            let count = writes(&events, "ResponseComplete")
                .filter(|it| matches!(code(it), Some(200 | 201)))
                .filter(|it| it.object_ref.as_ref().is_some_and(|it| it.name == *name))
                .count();
            ensure!(count <= values, "{count} writes of {name}");
        }

        Ok(())
    }
}

async fn a_restart_of_the_api_server_loses_no_change(fixture: &'static Fixture) -> Result<()> {
    let setup = Setup::start(fixture, "runtime-restart").await?;
    setup.put("2").await?;
    fixture.control_plane.restart_api_server().await?;
    setup.until_copied("2").await?;
    setup.put("3").await?;
    setup.until_copied("3").await?;
    setup.end(3).await
}

async fn an_expired_watch_history_loses_no_change(fixture: &'static Fixture) -> Result<()> {
    let setup = Setup::start(fixture, "runtime-expired").await?;
    setup.relay.cut();
    setup.put("2").await?;
    fixture.control_plane.expire_resource_versions().await?;
    setup.relay.mend();
    setup.until_copied("2").await?;
    setup.put("3").await?;
    setup.until_copied("3").await?;
    ensure!(setup.replica.lists(fixture)? > 3, "it has not listed again");
    setup.end(3).await
}

async fn a_cut_network_loses_no_change(fixture: &'static Fixture) -> Result<()> {
    let setup = Setup::start(fixture, "runtime-cut").await?;
    setup.relay.cut();
    setup.put("2").await?;
    sleep(CUT).await;
    setup.put("3").await?;
    setup.relay.mend();
    setup.until_copied("3").await?;
    setup.end(3).await
}

async fn a_restored_snapshot_is_listed_again(fixture: &'static Fixture) -> Result<()> {
    let setup = Setup::start(fixture, "runtime-restored").await?;
    let later = ["created", "deleted"].map(str::to_owned);
    let inputs: Api<ConfigMap> = Api::namespaced(setup.client.clone(), setup.namespace);
    // The snapshot has the inputs, and not their copies.
    setup.relay.cut();
    setup.put("2").await?;
    copies::put(&setup.client, setup.namespace, &later, &["secret"], "2").await?;
    let snapshot = fixture.control_plane.snapshot()?;
    setup.relay.mend();
    setup.until_copied("2").await?;
    copies::until_copied(fixture, setup.namespace, &later, "2").await?;
    inputs.delete("deleted", &DeleteParams::default()).await?;
    let lists = setup.replica.lists(fixture)?;

    fixture.control_plane.restore(&snapshot).await?;

    // Nothing is written but by the controller: it copies the changes again, creates the copies that were
    // created after the snapshot, and copies the input that was deleted after it.
    setup.until_copied("2").await?;
    copies::until_copied(fixture, setup.namespace, &later, "2").await?;
    setup.until_listed(lists + RESOURCES).await?;
    setup.end(3).await
}

/// Resources that the controller watches.
const RESOURCES: usize = 3;

async fn a_restored_snapshot_is_listed_again_by_quiet_watches_without_a_lease(
    fixture: &'static Fixture,
) -> Result<()> {
    let namespace = "runtime-restored-quiet";
    let setup = Setup::start_with(fixture, namespace, Replica::start_active).await?;
    let snapshot = fixture.control_plane.snapshot()?;
    // The versions of ConfigMaps grow, but no object that the controller watches is changed.
    let other = fixture.namespace("runtime-restored-other").await?;
    for round in 0..20 {
        let value = round.to_string();
        copies::put(
            &other,
            "runtime-restored-other",
            &setup.names,
            &["secret"],
            &value,
        )
        .await?;
    }
    bookmarks(&setup.client, namespace).await?;
    let lists = setup.replica.lists(fixture)?;

    fixture.control_plane.restore(&snapshot).await?;

    setup.until_listed(lists + RESOURCES).await?;
    // Its version is lower than that of the bookmark.
    setup.put("2").await?;
    setup.until_copied("2").await?;
    setup.end(2).await
}

/// Waits until each watch of ConfigMaps that runs has received a bookmark. kube-apiserver sends one about
/// every minute to each watch, so another watch has received two then.
async fn bookmarks(client: &Client, namespace: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let version = api
        .list(&ListParams::default())
        .await?
        .metadata
        .resource_version;
    let version = version.context("a list without version")?;
    let events = api.watch(&WatchParams::default(), &version).await?;
    let bookmarks = events.try_filter(|it| ready(matches!(it, WatchEvent::Bookmark(_))));
    let received = bookmarks.take(2).try_collect::<Vec<_>>();
    let received = timeout(BOOKMARKS_MAX, received).await;
    let received = received.context("the API server sends no bookmarks")??;
    ensure!(received.len() == 2, "the watch has ended");

    Ok(())
}

/// The time limit of two bookmarks.
const BOOKMARKS_MAX: Duration = Duration::from_secs(200);

async fn a_renewal_after_the_deadline_loses_no_change(fixture: &'static Fixture) -> Result<()> {
    let namespace = "runtime-late-renewal";
    let client = fixture.namespace(namespace).await?;
    // 16 writes are in flight, the others wait until those have ended.
    let names = copies::names("copy", 40);
    let server = fixture.control_plane.server();
    let mut replica = Replica::start(fixture, namespace, namespace, server)?;
    copies::put(&client, namespace, &names, &["secret"], "0").await?;
    copies::until_copied(fixture, namespace, &names, "0").await?;

    for round in 1..=LATE_RENEWALS {
        let value = round.to_string();
        copies::put(&client, namespace, &names, &["secret"], &value).await?;
        // A renewal is sent before the deadline, and its response arrives after it.
        fixture
            .control_plane
            .pause_component(Component::ApiServer)?;
        sleep(TIMING.renew_deadline + Duration::from_millis(200)).await;
        fixture
            .control_plane
            .resume_component(Component::ApiServer)?;
        copies::until_copied(fixture, namespace, &names, &value).await?;
    }

    replica.stop().await
}

/// Number of late renewals. Only a renewal whose response arrives after the writes in flight could lose a
/// change.
const LATE_RENEWALS: usize = 5;
