//! Acquires and renews a Lease, and watches it meanwhile.

use super::{BootTime, Election, Leadership, LeaseSettings, Record, Step};
use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Validity that a leader gives the Lease when it stops, the least that the API accepts.
const RELEASED_SECONDS: i32 = 1;

/// A change of leadership that an election reports.
#[derive(Debug)]
pub enum ElectionEvent {
    /// This replica leads from now on.
    Leads(Leadership),
    /// This replica is a standby from now on.
    StandsBy,
    /// The Lease has an older version than before: etcd was restored.
    WentBack,
    /// The last request for the Lease failed, with this reason; or it no longer does.
    Access(Result<(), String>),
}

/// A replica's part in the election of a Lease.
#[derive(Debug)]
pub struct Candidate {
    /// The Lease.
    pub lease: LeaseSettings,
    /// Number of the election, which its events carry.
    pub election: usize,
    /// Identity of this replica.
    pub identity: String,
    /// Receives the events of the election.
    pub events: mpsc::Sender<(usize, ElectionEvent)>,
}

impl Candidate {
    /// Takes part in the election until `stop` changes, then releases the Lease.
    pub async fn run(self, client: Client, mut stop: watch::Receiver<bool>) {
        let api: Api<Lease> = Api::namespaced(client, &self.lease.namespace);
        let fields = format!("metadata.name={}", self.lease.name);
        let config = watcher::Config::default().fields(&fields);
        let mut changes = watcher::watcher(api.clone(), config)
            .default_backoff()
            .boxed();
        let mut holder = Holder {
            election: Election::new(&self.identity, self.lease.timing),
            candidate: self,
            api,
            lease: None,
            is_listed: false,
            leadership: Leadership::default(),
            access: Ok(()),
        };

        loop {
            let wait = match holder.next_step() {
                Step::Write => {
                    holder.write().await;
                    continue;
                }
                Step::Wait(wait) => wait,
                Step::Lost => {
                    holder.lose().await;
                    continue;
                }
            };
            tokio::select! {
                change = changes.next() => holder.observe(change).await,
                () = tokio::time::sleep(wait) => {}
                _ = stop.changed() => return holder.release().await,
            }
        }
    }

    async fn report(&self, event: ElectionEvent) {
        self.events.send((self.election, event)).await.ok();
    }
}

struct Holder {
    candidate: Candidate,
    api: Api<Lease>,
    election: Election,
    /// The Lease as it was read or written last.
    lease: Option<Lease>,
    /// Whether the watch has completed its first list.
    is_listed: bool,
    /// That of the present or last period as the leader.
    leadership: Leadership,
    /// Whether the last request succeeded.
    access: Result<(), String>,
}

impl Holder {
    async fn note(&mut self, access: Result<(), String>) {
        if access != self.access {
            self.access.clone_from(&access);
            self.candidate.report(ElectionEvent::Access(access)).await;
        }
    }

    fn next_step(&self) -> Step {
        if !self.is_listed {
            return Step::Wait(self.candidate.lease.timing.retry_period);
        }
        self.election.step(BootTime::now())
    }

    async fn observe(&mut self, change: Option<watcher::Result<Event<Lease>>>) {
        if let Some(Ok(event)) = &change
            && !matches!(event, Event::Init)
        {
            // `Init` is no answer: it precedes the list. A resumed watch has no list, so a standby
            // learns by the next renewal that the API server answers again.
            self.note(Ok(())).await;
        }
        match change {
            Some(Ok(Event::Apply(lease) | Event::InitApply(lease))) => self.see(Some(lease)),
            Some(Ok(Event::Delete(_))) => self.see(None),
            Some(Ok(Event::InitDone)) => self.is_listed = true,
            Some(Ok(Event::Init)) => {}
            Some(Err(error)) => self.note(Err(error.to_string())).await,
            None => tokio::time::sleep(self.candidate.lease.timing.retry_period).await,
        }
    }

    fn see(&mut self, lease: Option<Lease>) {
        let (old, new) = (version(self.lease.as_ref()), version(lease.as_ref()));
        if new.is_some() && new < old {
            // The watch may report a renewal after its answer. Then the UID and the holder are
            // ours and the answer is newer; a restored etcd is seen by the next write's conflict.
            return;
        }
        self.election
            .observe(lease.as_ref().map(record), BootTime::now());
        self.lease = lease;
    }

    /// Reads the Lease after a conflict of the attempt that began at `began_at`.
    async fn read(&mut self, began_at: BootTime) {
        match self.api.get_opt(&self.candidate.lease.name).await {
            Ok(lease) => {
                if version(lease.as_ref()) < version(self.lease.as_ref()) {
                    tracing::warn!("the Lease is older than before: lists all objects again");
                    self.candidate.report(ElectionEvent::WentBack).await;
                }
                self.election
                    .observe(lease.as_ref().map(record), BootTime::now());
                self.lease = lease;
            }
            Err(error) => {
                self.note(Err(error.to_string())).await;
                self.election.failed(began_at);
            }
        }
    }

    async fn write(&mut self) {
        let began_at = BootTime::now();
        let lease = self.next(
            &self.candidate.identity,
            self.candidate.lease.timing.lease_duration,
        );
        match self.send(&lease).await {
            Ok(lease) => {
                self.election.written(record(&lease), began_at);
                self.lease = Some(lease);
                self.note(Ok(())).await;
                // Writes are dropped between the deadline and a late renewal, which may have begun before
                // the deadline, so they must be planned again.
                let deadline = self.election.deadline();
                if !self.leadership.may_write() || !self.leadership.set(deadline) {
                    self.leadership = Leadership::default();
                    self.leadership.set(deadline);
                    let leadership = self.leadership.clone();
                    self.candidate
                        .report(ElectionEvent::Leads(leadership))
                        .await;
                }
            }
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {
                // Another replica was faster, or the Lease was deleted or restored.
                self.read(began_at).await;
                if self.election.until_free(BootTime::now()).is_zero() {
                    self.note(Err(status.message.clone())).await;
                    self.election.failed(began_at);
                }
            }
            Err(error) => {
                self.note(Err(error.to_string())).await;
                self.election.failed(began_at);
            }
        }
    }

    /// Creates or replaces the Lease. With the version that was read, one of two replicas that
    /// write is refused.
    async fn send(&self, lease: &Lease) -> kube::Result<Lease> {
        let params = PostParams::default();
        if lease.metadata.resource_version.is_some() {
            self.api
                .replace(&self.candidate.lease.name, &params, lease)
                .await
        } else {
            self.api.create(&params, lease).await
        }
    }

    async fn lose(&mut self) {
        self.leadership.set(None);
        self.election.step_down();
        self.candidate.report(ElectionEvent::StandsBy).await;
    }

    /// Gives up the Lease, so that a standby need not wait until it expires.
    async fn release(mut self) {
        let was_leader = self.election.renewed_at.is_some();
        self.leadership.set(None);
        if was_leader {
            let mut lease = self.next("", Duration::from_secs(1));
            if let Some(spec) = &mut lease.spec {
                spec.lease_duration_seconds = Some(RELEASED_SECONDS);
            }
            if let Err(error) = self.send(&lease).await {
                tracing::debug!(%error, lease = self.candidate.lease.name, "failed to release the Lease");
            }
        }
        self.election.step_down();
    }

    fn next(&self, holder: &str, duration: Duration) -> Lease {
        let old = self.lease.clone().unwrap_or_default();
        let old_spec = old.spec.unwrap_or_default();
        let now = MicroTime(Timestamp::now());
        let is_same = old_spec.holder_identity.as_deref() == Some(holder);
        let transitions = old_spec.lease_transitions.unwrap_or_default();
        let acquired = old_spec.acquire_time.filter(|_| is_same);
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: i32::try_from(duration.as_secs()).ok(),
            acquire_time: acquired.or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions.saturating_add(i32::from(!is_same))),
            ..LeaseSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(self.candidate.lease.name.clone()),
            managed_fields: None,
            ..old.metadata
        };

        Lease {
            metadata,
            spec: Some(spec),
        }
    }
}

fn version(lease: Option<&Lease>) -> Option<u64> {
    lease?.metadata.resource_version.as_ref()?.parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::Timing;
    use kube::client::Body;
    use serde_json::{Value, json};
    use std::io::{self, Error};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Time after which the first renewal fails.
    const TIMEOUT: Duration = Duration::from_secs(3);

    /// A second delay of the length of the time-out would exceed the renew deadline.
    const TIMING: Timing = Timing {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(6),
        renew_period: Duration::from_millis(100),
        retry_period: TIMEOUT,
    };

    /// Returns the response to the request for the Lease; the first renewal, which is the second write, has
    /// none.
    async fn reply(request: http::Request<Body>, writes: Arc<AtomicU64>) -> io::Result<Value> {
        if request.method() != http::Method::GET {
            let version = writes.fetch_add(1, Ordering::Relaxed);
            if version == 1 {
                tokio::time::sleep(TIMEOUT).await;
                return Err(io::ErrorKind::TimedOut.into());
            }
            let lease = request.into_body().collect_bytes().await;
            let lease = lease.map_err(Error::other)?;
            let mut lease: Value = serde_json::from_slice(&lease)?;
            lease["metadata"]["resourceVersion"] = version.to_string().into();
            return Ok(lease);
        }
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") {
            std::future::pending::<()>().await;
        }
        Ok(
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList",
            "metadata": {"resourceVersion": "1"}, "items": []}),
        )
    }

    #[tokio::test]
    async fn a_leader_whose_renewal_times_out_renews_before_the_renew_deadline() {
        let writes = Arc::<AtomicU64>::default();
        let service = tower::service_fn(move |request| {
            let reply = reply(request, writes.clone());
            async move {
                let body = Body::from(reply.await?.to_string().into_bytes());
                Ok::<_, Error>(http::Response::new(body))
            }
        });
        let (events, mut taken) = mpsc::channel(8);
        let candidate = Candidate {
            lease: LeaseSettings {
                namespace: "a".into(),
                name: "b".into(),
                timing: TIMING,
            },
            election: 0,
            identity: "rome".into(),
            events,
        };
        let (_stop, stopped) = watch::channel(false);
        let run = tokio::spawn(candidate.run(Client::new(service, "a"), stopped));
        let mut next = async || {
            let event = tokio::time::timeout(TIMEOUT * 5, taken.recv()).await;
            event
                .expect("an event in time")
                .expect("a running election")
                .1
        };

        assert!(matches!(next().await, ElectionEvent::Leads(_)));
        assert!(matches!(next().await, ElectionEvent::Access(Err(_))));
        let event = next().await;
        assert!(matches!(event, ElectionEvent::Access(Ok(()))), "{event:?}");
        run.abort();
    }
}
