//! The requests of `liqoctl` and the controller managers, from the audit logs of both clusters.

use crate::site::Site;
use anyhow::{Result, ensure};
use k8s_openapi::jiff::Timestamp;
use kubernetes_lab::control_plane::AuditEvent;
use kubernetes_lab::wait::{Deadline, SOON, until};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time without a request, after which a command has no further effects.
const QUIET: Duration = Duration::from_secs(1);

/// The user of `liqoctl`.
const ADMINISTRATOR: &str = "admin";

/// Prefixes of the users of Kubernetes itself.
const KUBERNETES: [&str; 3] = [
    "system:kube",
    "system:apiserver",
    "system:serviceaccount:kube-system:",
];

/// The number of requests of a peering in both clusters, without renewals of Leases.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Requests {
    liqoctl: usize,
    managers: usize,
}

/// The ends of the audit logs at the start of a command.
pub(crate) struct Mark([u64; 2]);

/// A request, with its times.
struct Request {
    cluster: &'static str,
    text: String,
    is_of_liqoctl: bool,
    received: Timestamp,
    completed: Option<Timestamp>,
}

impl Mark {
    pub(crate) fn now(sites: [&Site; 2]) -> Result<Self> {
        let [one, other] = sites.map(|site| site.control_plane.audit_log().end());
        Ok(Self([one?, other?]))
    }

    /// Returns the number of requests since, once there were no others for [`QUIET`].
    pub(crate) async fn count(&self, sites: [&Site; 2]) -> Result<Requests> {
        let mut last = (0, Instant::now());
        let requests = until(Deadline::after(SOON), "the last request", async || {
            let requests = self.requests(sites)?;
            if requests.len() != last.0 {
                last = (requests.len(), Instant::now());
            }
            ensure!(last.1.elapsed() >= QUIET, "there are requests");
            Ok(requests)
        })
        .await?;
        let liqoctl = requests.iter().filter(|it| it.is_of_liqoctl).count();
        let managers = requests.len() - liqoctl;

        Ok(Requests { liqoctl, managers })
    }

    /// Prints the requests since, with times relative to the first one.
    pub(crate) fn trace(&self, sites: [&Site; 2]) -> Result<()> {
        let mut requests = self.requests(sites)?;
        requests.sort_by_key(|it| it.received);
        let Some(start) = requests.first().map(|it| it.received) else {
            return Ok(());
        };
        for request in &requests {
            let milliseconds = |at: Timestamp| at.duration_since(start).as_secs_f64() * 1e3;
            let received = milliseconds(request.received);
            let taken = request.completed.map(|it| milliseconds(it) - received);
            let taken = taken.map_or_else(|| "-".to_owned(), |it| format!("{it:.0}"));
            let Request { cluster, text, .. } = request;
            eprintln!("    {received:6.0} ms, {taken:>4} ms {cluster:5} {text}");
        }

        Ok(())
    }

    fn requests(&self, sites: [&Site; 2]) -> Result<Vec<Request>> {
        let mut all = Vec::new();
        for (site, position) in sites.into_iter().zip(self.0) {
            let mut of_site: BTreeMap<String, Request> = BTreeMap::new();
            for event in site.control_plane.audit_log().since(position)? {
                if !is_counted(&event) {
                    continue;
                }
                let at = event.stage_timestamp.0;
                let known = of_site.get_mut(&event.audit_id);
                match known {
                    Some(request) => {
                        let code = event.response_status.map(|it| it.code).unwrap_or_default();
                        request.text = format!("{code} {}", request.text);
                        request.completed = Some(at);
                    }
                    None if event.stage == "RequestReceived" => {
                        of_site.insert(event.audit_id.clone(), received(site.name, &event));
                    }
                    // It was received before, as a watch.
                    None => {}
                }
            }
            all.extend(of_site.into_values());
        }

        Ok(all)
    }
}

fn is_counted(event: &AuditEvent) -> bool {
    let user = &event.user.username;
    let is_lease = (event.object_ref.as_ref()).is_some_and(|it| it.resource == "leases");

    !is_lease && !KUBERNETES.iter().any(|it| user.starts_with(it))
}

fn received(cluster: &'static str, event: &AuditEvent) -> Request {
    let user = &event.user.username;
    let user = user.rsplit(':').next().unwrap_or_default();

    Request {
        cluster,
        text: format!("{user} {} {}", event.verb, event.request_uri),
        is_of_liqoctl: user == ADMINISTRATOR,
        received: event.stage_timestamp.0,
        completed: None,
    }
}
