//! The Lease by which one of several managers is chosen.

use super::State;
use crate::election::{Election, Record, Step, Timing};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the Lease.
const NAME: &str = "liqo-controller-manager";

/// How long the API server may take: several attempts fit into the time a leader has.
const TIMEOUT: Duration = Duration::from_secs(3);

/// One manager's hold on the Lease.
pub(crate) struct Holder {
    api: Api<Lease>,
    identity: String,
    election: Election,
    /// As it was read or written last.
    lease: Option<Lease>,
    state: Arc<State>,
}

impl Holder {
    /// Creates a candidate.
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        identity: &str,
        timing: Timing,
        state: Arc<State>,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            identity: identity.to_owned(),
            election: Election::new(identity, timing),
            lease: None,
            state,
        }
    }

    /// Steps down, then completes when this manager leads (again).
    pub(crate) async fn acquire(&mut self) {
        self.election.step_down();
        while !self.election.is_leader() {
            self.read().await;
            match self.election.step(Instant::now()) {
                Step::Write => {
                    if !self.renew().await {
                        tokio::time::sleep(self.election.timing.retry_period).await;
                    }
                }
                Step::Wait(time) => tokio::time::sleep(time).await,
                Step::Lost => return,
            }
        }
    }

    /// Renews the Lease; completes when it is lost.
    pub(crate) async fn keep(&mut self) {
        loop {
            let now = Instant::now();
            match self.election.step(now) {
                Step::Write => {
                    let left = self.election.left(now);
                    // However silent the API server is, the deadline is kept.
                    drop(tokio::time::timeout(left, self.try_to_keep()).await);
                }
                Step::Wait(time) => tokio::time::sleep(time).await,
                Step::Lost => return,
            }
        }
    }

    /// Lets others lead at once.
    pub(crate) async fn release(&mut self) {
        if self.election.is_leader() {
            self.write("", Duration::from_secs(1)).await;
        }
    }

    async fn try_to_keep(&mut self) {
        if !self.renew().await {
            // Somebody else may have it, or have changed it.
            self.read().await;
            self.election.failed(Instant::now());
        }
    }

    async fn read(&mut self) {
        match tokio::time::timeout(TIMEOUT, self.api.get_opt(NAME)).await {
            Ok(Ok(lease)) => {
                self.state.note_answer(None);
                self.election
                    .observe(lease.as_ref().map(record), Instant::now());
                self.lease = lease;
            }
            Ok(Err(error)) => self.state.note_answer(Some(error.to_string())),
            Err(_) => self.state.note_answer(Some("no answer".to_owned())),
        }
    }

    /// Writes the Lease as this manager's; returns whether that got through.
    pub(super) async fn renew(&mut self) -> bool {
        let identity = self.identity.clone();
        self.write(&identity, self.election.timing.lease_duration)
            .await
    }

    async fn write(&mut self, holder: &str, duration: Duration) -> bool {
        let began_at = Instant::now();
        let lease = self.next(holder, duration);
        let params = PostParams::default();
        let request = async {
            // With the version that was read: of two who write, one is refused.
            if lease.metadata.resource_version.is_some() {
                self.api.replace(NAME, &params, &lease).await
            } else {
                self.api.create(&params, &lease).await
            }
        };
        match tokio::time::timeout(TIMEOUT, request).await {
            Ok(Ok(lease)) => {
                self.state.note_answer(None);
                self.election.written(record(&lease), began_at);
                self.lease = Some(lease);
                true
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "failed to write the Lease {NAME}");
                self.election.failed(Instant::now());
                false
            }
            Err(_) => {
                self.election.failed(Instant::now());
                false
            }
        }
    }

    fn next(&self, holder: &str, duration: Duration) -> Lease {
        let old = self.lease.clone().unwrap_or_default();
        let old_spec = old.spec.unwrap_or_default();
        let now = MicroTime(Timestamp::now());
        let is_same = old_spec.holder_identity.as_deref() == Some(holder);
        let transitions = old_spec.lease_transitions.unwrap_or_default();
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: i32::try_from(duration.as_secs()).ok(),
            acquire_time: old_spec
                .acquire_time
                .filter(|_| is_same)
                .or(Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions.saturating_add(i32::from(!is_same))),
            ..LeaseSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(NAME.to_owned()),
            ..old.metadata
        };

        Lease {
            metadata,
            spec: Some(spec),
        }
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.unwrap_or_default();

    Record {
        holder: spec.holder_identity.unwrap_or_default(),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        duration: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
    }
}
