//! Memory and processor time of a process, and idle requests.

use super::{REQUESTS_OTHER_MAX, REQUESTS_PER_MINUTE_MAX};
use crate::authentication::site::Site;
use crate::fixture::{Deadline, SOON, until};
use crate::manager::Manager;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::control_plane::{AuditEvent, ControlPlane};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

/// Time without a request, after which clients are idle.
const QUIET: Duration = Duration::from_secs(3);

/// Time for which idle requests are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// The shortest duration of a watch, which the controller manager requests again then.
const WATCH_MIN: Duration = Duration::from_secs(290);

/// The requests of idle clients, without the renewal of Leases.
#[derive(Debug)]
pub(crate) struct Idle {
    /// The requests in [`WINDOW`] by verb and resource.
    requests: BTreeMap<String, usize>,
    /// The number of watches.
    watches: usize,
}

impl Idle {
    /// Waits until the clients are idle, which may probe the health of the API server, and counts the requests of those that `is_counted` selects.
    pub(crate) async fn measure(
        control_plane: &ControlPlane,
        is_counted: impl Fn(&AuditEvent) -> bool,
    ) -> Result<Self> {
        let log = control_plane.audit_log();
        let mut end = (log.end()?, Instant::now());
        until(Deadline::after(SOON), "idle clients", async || {
            let events = log.since(end.0)?;
            let is_work = |it: &AuditEvent| it.object_ref.is_some() && is_request(it);
            if events.iter().any(|it| is_work(it) && is_counted(it)) {
                end = (log.end()?, Instant::now());
            }
            ensure!(end.1.elapsed() >= QUIET, "there are requests");
            Ok(())
        })
        .await?;
        let watches = watches(&log.since(0)?, &is_counted);
        let start = log.end()?;
        tokio::time::sleep(WINDOW).await;
        let mut requests = BTreeMap::new();
        for event in log.since(start)? {
            if is_request(&event) && is_counted(&event) {
                let object = event.object_ref.unwrap_or_default();
                let name = format!("{} {}", event.verb, object.resource);
                *requests.entry(name).or_default() += 1;
            }
        }

        Ok(Self { requests, watches })
    }

    /// Checks that the requests of `peers` peers are within the limit. Each watch counts with its shortest duration.
    pub(crate) fn check(&self, peers: usize) -> Result<()> {
        let sent = self.per_minute();
        let limit = number(peers) * REQUESTS_PER_MINUTE_MAX + REQUESTS_OTHER_MAX;
        ensure!(sent <= limit, "{self}, more than {limit:.0}");
        Ok(())
    }

    fn per_minute(&self) -> f64 {
        let requests: usize = self.requests.values().sum();
        let restarts = number(self.watches) / WATCH_MIN.as_secs_f64();
        (number(requests) / WINDOW.as_secs_f64() + restarts) * 60.0
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, watches } = self;
        let sum = self.per_minute();
        write!(
            f,
            "{sum:.0} requests per minute: {watches} watches, {requests:?}"
        )
    }
}

fn is_request(event: &AuditEvent) -> bool {
    let object = event.object_ref.as_ref();
    event.stage == "RequestReceived" && object.is_none_or(|it| it.resource != "leases")
}

/// Returns the number of watches that have not ended.
fn watches(events: &[AuditEvent], is_counted: impl Fn(&AuditEvent) -> bool) -> usize {
    let mut open = BTreeSet::new();
    for event in events
        .iter()
        .filter(|it| it.verb == "watch" && is_counted(it))
    {
        match event.stage.as_str() {
            "RequestReceived" => open.insert(&event.audit_id),
            _ => open.remove(&event.audit_id),
        };
    }
    open.len()
}

#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn number(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "the value is only compared")]
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

impl Manager {
    /// Returns the resident memory.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        Ok(kilobytes.context("no VmRSS")?.parse::<u64>()? << 10)
    }

    /// Returns the processor time of all threads.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        let mut nanoseconds = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid()?))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            let spent = text.split_whitespace().next().context("no schedstat")?;
            nanoseconds += spent.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanoseconds))
    }
}

impl Site {
    /// Returns whether a request is of the controller manager.
    pub(crate) fn is_manager(event: &AuditEvent) -> bool {
        event.user.username == crate::authentication::site::MANAGER
    }
}
