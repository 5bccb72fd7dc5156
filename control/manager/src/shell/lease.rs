//! The Lease by which one of several managers is chosen.

use crate::election::{Election, LEASE_DURATION, Record, Step};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
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
}

impl Holder {
    /// Creates a candidate.
    pub(crate) fn new(client: Client, namespace: &str, identity: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            identity: identity.to_owned(),
            election: Election::new(identity),
            lease: None,
        }
    }

    /// Completes when this manager leads.
    pub(crate) async fn acquire(&mut self) {
        while !self.election.is_leader() {
            self.read().await;
            match self.election.step(Instant::now()) {
                Step::Write => {
                    if !self.write(&self.identity.clone(), LEASE_DURATION).await {
                        tokio::time::sleep(Duration::from_secs(2)).await;
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
            match self.election.step(Instant::now()) {
                Step::Write => {
                    if !self.write(&self.identity.clone(), LEASE_DURATION).await {
                        // Somebody else may have it, or have changed it.
                        self.read().await;
                        self.election.failed(Instant::now());
                    }
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

    async fn read(&mut self) {
        match tokio::time::timeout(TIMEOUT, self.api.get_opt(NAME)).await {
            Ok(Ok(lease)) => {
                self.election
                    .observe(lease.as_ref().map(record), Instant::now());
                self.lease = lease;
            }
            Ok(Err(error)) => tracing::warn!(%error, "failed to read the Lease {NAME}"),
            Err(_) => tracing::warn!("failed to read the Lease {NAME}: no answer"),
        }
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
