//! Tests of failures of the API server, of etcd, and of the network between them and a controller:
//! it converges, and no write is lost or repeated.

use super::audit::{code, writes};
use super::copies;
use super::relay::Relay;
use super::replica::{Replica, TIMING};
use crate::fixture::{Deadline, Fixture, Suite, serial, until};
use anyhow::{Result, ensure};
use kube::Client;
use kubernetes_lab::control_plane::Component;
use std::time::Duration;
use tokio::time::sleep;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_restart_of_the_api_server_loses_no_change,
        an_expired_watch_history_loses_no_change,
        a_cut_network_loses_no_change,
        a_restored_snapshot_is_listed_again,
        a_renewal_after_the_deadline_loses_no_change,
    );
}

/// The time limit of the convergence after a failure.
const CONVERGED: Duration = Duration::from_secs(60);

/// The duration of a cut. The transport gives up silent connections after 45 s. A longer cut has no
/// further effects but a later end.
const CUT: Duration = Duration::from_secs(50);

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
        let relay = Relay::start(fixture.control_plane.server()).await?;
        let replica = Replica::start(fixture, namespace, namespace, &relay.url())?;
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
    let snapshot = fixture.control_plane.snapshot()?;
    for value in ["2", "3"] {
        setup.put(value).await?;
        setup.until_copied(value).await?;
    }

    fixture.control_plane.restore(&snapshot).await?;
    setup.put("4").await?;
    setup.until_copied("4").await?;
    setup.end(4).await
}

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
