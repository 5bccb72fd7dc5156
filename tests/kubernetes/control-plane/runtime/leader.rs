//! Tests of leaders that are killed or paused.

use super::audit::{code, writes};
use super::copies;
use super::replica::{Replica, TIMING};
use crate::fixture::{Deadline, Fixture, SOON, Suite, parallel, until};
use crate::webhooks::server::Server;
use crate::webhooks::{self, Reviewed};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use nix::sys::signal::Signal;
use serde_json::json;
use std::pin::pin;
use std::time::{Duration, Instant};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_standby_writes_as_soon_as_the_lease_of_a_killed_leader_has_expired,
        a_leader_that_was_paused_sends_nothing_after_its_deadline,
        a_leader_whose_clock_is_set_back_keeps_the_lease_and_loses_no_change,
    );
}

/// The largest delay of the first write of a new leader.
const TAKE_OVER_MAX: Duration = Duration::from_millis(100);

/// The most requests that another client can complete in that delay: a take-over needs two, to write the
/// Lease and to write the first object. On a loaded machine they take longer than [`TAKE_OVER_MAX`].
const TAKE_OVER_REQUESTS: u32 = 4;

async fn a_standby_writes_as_soon_as_the_lease_of_a_killed_leader_has_expired(
    fixture: &'static Fixture,
) -> Result<()> {
    let namespace = "leader-killed";
    let client = fixture.namespace(namespace).await?;
    let names = copies::names("copy", 10);
    let server = fixture.control_plane.server();
    let mut leader = Replica::start(fixture, "killed-leader", namespace, server)?;
    copies::put(&client, namespace, &names, &["secret"], "1").await?;
    copies::until_copied(fixture, namespace, &names, "1").await?;
    let standby = Replica::start(fixture, "killed-standby", namespace, server)?;
    standby.until_watching(fixture).await?;
    let lists = standby.lists(fixture)?;
    // A standby counts from when it has seen a renewal, so one before its start would be counted too late.
    let watching = Timestamp::now();
    until(Deadline::after(SOON), "a renewal", async || {
        let renewed = last_renewal(&leader, fixture)?;
        ensure!(renewed > watching, "the last one was at {renewed}");
        Ok(())
    })
    .await?;

    leader.kill().await?;
    copies::put(&client, namespace, &names, &["secret"], "2").await?;
    let copied = copies::until_copied(fixture, namespace, &names, "2");
    let reference = slowest_write(&client, namespace, copied).await?;

    let expired = last_renewal(&leader, fixture)? + TIMING.lease_duration;
    let events = standby.events(fixture, "secrets")?;
    let first = writes(&events, "RequestReceived").next();
    let first = first.context("no write of the standby")?.stage_timestamp.0;
    let delay = first.duration_since(expired);
    eprintln!(
        "the standby wrote {} ms after the Lease had expired; another write took up to {} ms",
        delay.as_millis(),
        reference.as_millis()
    );
    ensure!(
        !delay.is_negative(),
        "{delay:?} before the Lease has expired"
    );
    let max = TAKE_OVER_MAX.max(reference * TAKE_OVER_REQUESTS);
    ensure!(delay.unsigned_abs() <= max, "{delay:?} too late");
    ensure!(standby.lists(fixture)? == lists, "it has listed again");
    Ok(())
}

/// Writes an object of the test repeatedly until `end` completes; returns the longest time of a write.
async fn slowest_write(
    client: &Client,
    namespace: &str,
    end: impl Future<Output = Result<()>>,
) -> Result<Duration> {
    let objects: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "reference"}});
    let (params, patch) = (PatchParams::apply("tests").force(), Patch::Apply(object));
    let mut slowest = Duration::ZERO;
    let mut end = pin!(end);
    loop {
        let start = Instant::now();
        let written = objects.patch("reference", &params, &patch);
        tokio::select! {
            biased;
            ended = &mut end => return ended.map(|()| slowest.max(start.elapsed())),
            written = written => written?,
        };
        slowest = slowest.max(start.elapsed());
    }
}

async fn a_leader_that_was_paused_sends_nothing_after_its_deadline(
    fixture: &'static Fixture,
) -> Result<()> {
    let namespace = "leader-paused";
    let client = fixture.namespace(namespace).await?;
    // 32 writes are in flight, the others wait in the process.
    let (in_flight, names) = (32, copies::names("copy", 80));
    let server = fixture.control_plane.server();
    let mut leader = Replica::start(fixture, "paused-leader", namespace, server)?;
    copies::put(&client, namespace, &names, &["secret"], "1").await?;
    copies::until_copied(fixture, namespace, &names, "1").await?;
    let standby = Replica::start(fixture, "paused-standby", namespace, server)?;
    standby.until_watching(fixture).await?;
    let before = writes(&leader.events(fixture, "secrets")?, "RequestReceived").count();
    // The delay is longer than the standby needs to take over and to write.
    let webhook = Server::start(true, Duration::from_secs(8)).await?;
    let reviewed = Reviewed {
        user: "paused-leader",
        api: webhooks::CORE,
        resource: "secrets",
        operation: "UPDATE",
    };
    webhooks::register(fixture, namespace, &webhook, &reviewed).await?;
    webhooks::until_called(fixture, namespace, &webhook, reviewed.user, &names[0]).await?;

    copies::put(&client, namespace, &names, &["secret"], "2").await?;
    until(Deadline::after(SOON), "writes in flight", async || {
        let count = writes(&leader.events(fixture, "secrets")?, "RequestReceived").count();
        ensure!(count - before >= in_flight, "{}", count - before);
        Ok(())
    })
    .await?;
    leader.signal(Signal::SIGSTOP)?;
    copies::until_copied(fixture, namespace, &names, "2").await?;
    until(Deadline::after(SOON), "the responses", async || {
        let events = leader.events(fixture, "secrets")?;
        let late = writes(&events, "ResponseComplete").skip(before);
        let codes: Vec<_> = late.filter_map(code).collect();
        ensure!(codes == vec![409; in_flight], "{codes:?}");
        Ok(())
    })
    .await?;
    leader.signal(Signal::SIGCONT)?;
    until_seen_again(&leader, fixture).await?;
    leader.stop().await?;

    let deadline = last_renewal(&leader, fixture)? + TIMING.renew_deadline;
    let events = leader.events(fixture, "secrets")?;
    let sent: Vec<_> = writes(&events, "RequestReceived").collect();
    ensure!(
        sent.len() - before == in_flight,
        "{} writes",
        sent.len() - before
    );
    let late = sent.iter().find(|it| it.stage_timestamp.0 > deadline);
    ensure!(late.is_none(), "{late:?}");
    Ok(())
}

async fn a_leader_whose_clock_is_set_back_keeps_the_lease_and_loses_no_change(
    fixture: &'static Fixture,
) -> Result<()> {
    let namespace = "leader-clock";
    let client = fixture.namespace(namespace).await?;
    let names = copies::names("copy", 10);
    let server = fixture.control_plane.server();
    let mut leader = Replica::start(fixture, "clock-leader", namespace, server)?;
    copies::put(&client, namespace, &names, &["secret"], "1").await?;
    copies::until_copied(fixture, namespace, &names, "1").await?;
    let mut standby = Replica::start(fixture, "clock-standby", namespace, server)?;
    standby.until_watching(fixture).await?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let start = renew_time(&leases).await?;

    // The clock goes back, and then to the right time again.
    for (value, behind) in [("2", BEHIND), ("3", Duration::ZERO)] {
        leader.set_clock_back(behind).await?;
        until(Deadline::after(SOON), "the other time", async || {
            let is_behind = renew_time(&leases).await? < start;
            ensure!(is_behind == (behind == BEHIND), "it is as before");
            Ok(())
        })
        .await?;
        until_renewed(&leader, fixture, RENEWALS).await?;
        copies::put(&client, namespace, &names, &["secret"], value).await?;
        copies::until_copied(fixture, namespace, &names, value).await?;
    }
    standby.stop().await?;
    leader.stop().await?;

    let by_standby = standby.events(fixture, "secrets")?;
    ensure!(
        writes(&by_standby, "RequestReceived").next().is_none(),
        "the standby has written"
    );
    let by_leader = leader.events(fixture, "secrets")?;
    let count = writes(&by_leader, "RequestReceived").count();
    ensure!(count == 3 * names.len(), "{count} writes");
    Ok(())
}

/// The time by which the clock is set back. It is longer than all durations of an election, and
/// shorter than certificates are valid before they were issued.
const BEHIND: Duration = Duration::from_secs(4 * 60);

/// Renewals that take longer than a Lease is valid.
const RENEWALS: usize = 5;

/// Returns when the leader has renewed the Lease, by the clock of the leader.
async fn renew_time(leases: &Api<Lease>) -> Result<Timestamp> {
    let spec = leases.get("copies").await?.spec;
    let time = spec.and_then(|spec| spec.renew_time);

    Ok(time.context("the Lease has no time")?.0)
}

/// Waits until a replica has written the Lease `count` times from now on.
async fn until_renewed(replica: &Replica, fixture: &Fixture, count: usize) -> Result<()> {
    let written = || -> Result<usize> {
        let events = replica.events(fixture, "leases")?;
        Ok(writes(&events, "ResponseComplete").count())
    };
    let before = written()?;
    until(Deadline::after(SOON), "renewals", async || {
        let renewals = written()? - before;
        ensure!(renewals >= count, "{renewals} renewals");
        Ok(())
    })
    .await
}

/// Waits until the API server has received a request for the Lease after the pause.
async fn until_seen_again(leader: &Replica, fixture: &Fixture) -> Result<()> {
    let count = leader.events(fixture, "leases")?.len();
    until(
        Deadline::after(SOON),
        "the leader to continue",
        async || {
            ensure!(
                leader.events(fixture, "leases")?.len() > count,
                "no request"
            );
            Ok(())
        },
    )
    .await
}

/// Returns the time of the last write of the Lease that succeeded. The first one creates it.
fn last_renewal(leader: &Replica, fixture: &Fixture) -> Result<Timestamp> {
    let events = leader.events(fixture, "leases")?;
    let renewed =
        writes(&events, "ResponseComplete").filter(|it| matches!(code(it), Some(200 | 201)));
    let last = renewed.last().context("the Lease was not renewed")?;
    let received = writes(&events, "RequestReceived").find(|it| it.audit_id == last.audit_id);

    Ok(received
        .context("no receipt of the renewal")?
        .stage_timestamp
        .0)
}
