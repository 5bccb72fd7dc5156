//! A test of a user's slow webhook: it delays the writes that it reviews, and no others.

use super::audit::{code, writes};
use super::copies;
use super::replica::Replica;
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::webhooks::server::Server;
use crate::webhooks::{self, Reviewed};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kubernetes_lab::control_plane::AuditEvent;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::interval;

pub(crate) fn add(suite: &mut Suite) {
    // Not concurrent with other tests, because it compares durations.
    serial!(suite, a_slow_webhook_delays_no_other_writes);
}

const NAMESPACE: &str = "slow-webhook";

/// The user of the replica, whose new Secrets are reviewed.
const USER: &str = "slow-webhook";

/// The delay of the webhook. 100 writes, of which 16 are in flight, take 70 s.
const DELAY: Duration = Duration::from_secs(10);

const TENANTS: usize = 100;

/// The number of writes whose durations are compared, and the interval between them.
const PROBES: usize = 200;
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// A 99th percentile up to this duration is not caused by the webhook: a busy machine has it as well.
const NOISE: Duration = Duration::from_millis(200);

async fn a_slow_webhook_delays_no_other_writes(fixture: &'static Fixture) -> Result<()> {
    let client = fixture.namespace(NAMESPACE).await?;
    let server = fixture.control_plane.server();
    let mut replica = Replica::start(fixture, USER, NAMESPACE, server)?;
    let first = copies::names("first", 1);
    copies::put(&client, NAMESPACE, &first, &["secret"], "1").await?;
    copies::until_copied(fixture, NAMESPACE, &first, "1").await?;
    let before = copies::names("before", TENANTS);
    let without = probe(fixture, &replica, &client, &before).await?;
    let webhook = Server::start(true, DELAY).await?;
    let reviewed = Reviewed {
        user: USER,
        api: webhooks::CORE,
        resource: "secrets",
        operation: "CREATE",
    };
    webhooks::register(fixture, NAMESPACE, &webhook, &reviewed).await?;
    webhooks::until_called(fixture, NAMESPACE, &webhook, USER, "probe").await?;

    let tenants = copies::names("tenant", TENANTS);
    let with = probe(fixture, &replica, &client, &tenants).await?;
    let pending = copies::check(fixture, NAMESPACE, &tenants, "1").await;
    copies::until_copied(fixture, NAMESPACE, &tenants, "1").await?;
    replica.stop().await?;

    ensure!(pending.is_err(), "the writes ended before the others");
    sent_once(&replica.events(fixture, "secrets")?, &tenants)?;
    let accounts = replica.events(fixture, "serviceaccounts")?;
    sent_once(&accounts, &tenants)?;
    eprintln!("99th percentile of other writes: {without:?} without, {with:?} with the webhook");
    ensure!(
        with <= NOISE.max(without * 2),
        "{with:?}, {without:?} without"
    );
    Ok(())
}

/// Lets the replica write objects of both kinds for tenants, and at the same time objects of the other
/// kind for others. Returns the 99th percentile of the time from a change to its copy for the latter.
async fn probe(
    fixture: &Fixture,
    replica: &Replica,
    client: &Client,
    tenants: &[String],
) -> Result<Duration> {
    copies::put(client, NAMESPACE, tenants, &["secret", "account"], "1").await?;
    let names = copies::names(&format!("other-{}", tenants[0]), PROBES);
    let mut times = interval(PROBE_INTERVAL);
    for name in names.chunks(1) {
        times.tick().await;
        copies::put(client, NAMESPACE, name, &["account"], "1").await?;
    }
    let mut copied = BTreeMap::new();
    until(Deadline::after(SOON), "the other copies", async || {
        copied = completed(&replica.events(fixture, "serviceaccounts")?);
        let count = names
            .iter()
            .filter(|name| copied.contains_key(*name))
            .count();
        ensure!(count == names.len(), "{count} of {}", names.len());
        Ok(())
    })
    .await?;
    let mut events = fixture.control_plane.audit_log().since(0)?;
    events.retain(|it| {
        it.object_ref
            .as_ref()
            .is_some_and(|it| it.namespace == NAMESPACE && it.resource == "configmaps")
    });
    let changed = completed(&events);

    let mut durations = Vec::new();
    for name in &names {
        let changed = changed.get(name).context("no audit event of a change")?;
        durations.push(copied[name].duration_since(*changed).unsigned_abs());
    }
    durations.sort();
    Ok(durations[PROBES * 99 / 100 - 1])
}

/// Returns when the first write of each object has succeeded.
fn completed(events: &[AuditEvent]) -> BTreeMap<String, Timestamp> {
    let mut times = BTreeMap::new();
    let succeeded = |it: &&AuditEvent| matches!(code(it), Some(200 | 201));
    for event in writes(events, "ResponseComplete").filter(succeeded) {
        let name = event.object_ref.as_ref().map(|it| it.name.clone());
        times
            .entry(name.unwrap_or_default())
            .or_insert(event.stage_timestamp.0);
    }

    times
}

/// Checks that each object was written by one request, which succeeded.
fn sent_once(events: &[AuditEvent], names: &[String]) -> Result<()> {
    let completed = completed(events);
    for name in names {
        let is_named = |it: &&AuditEvent| it.object_ref.as_ref().is_some_and(|it| it.name == *name);
        let count = writes(events, "RequestReceived").filter(is_named).count();
        ensure!(count == 1, "{count} requests for {name}");
        ensure!(completed.contains_key(name), "{name} was refused");
    }

    Ok(())
}
