//! A Service with endpoints in the consumer and at the provider, and a client of it at the provider.

use super::reflected::selector;
use super::workload::Workload;
use crate::fixture::SOON;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::{Namespace, Running};
use kubernetes_lab::underlay::node_netns;
use kubernetes_lab::wait::{Deadline, until};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The Service [`SERVICE`] of the pods of a [`Workload`] and of a pod in the consumer, and [`CLIENT`] at the provider.
const MANIFEST: &str = include_str!("../manifests/offloaded-both-sides.yaml");

/// The name of the Service.
pub(super) const SERVICE: &str = "both";

/// The part of a reply by which the pod in the consumer is known.
const NEAR: &str = " pod=near ";

/// The pod that sends requests at the provider.
const CLIENT: &str = "client-there";

/// The Service and its client.
pub(super) struct BothSides {
    /// The namespace at the provider.
    remote: Namespace,
    /// The requests that failed before the Service had endpoints of both clusters.
    early_failures: usize,
}

/// The outcomes of the client's requests.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// Replies of the pod in the consumer.
    near: usize,
    /// Replies of the pods at the provider.
    far: usize,
    failures: Vec<String>,
}

impl BothSides {
    /// Creates the Service, its pod in the consumer and its client. Waits for replies of both clusters.
    pub(super) async fn start(workload: &Workload) -> Result<Self> {
        workload.home.apply(MANIFEST).await?;
        for pod in ["near", CLIENT] {
            workload.home.wait(&format!("pod/{pod}"), "Ready").await?;
        }
        let mut both = Self {
            remote: workload.remote.clone(),
            early_failures: 0,
        };
        both.replies_after_now().await?;
        both.early_failures = both.outcomes().await?.failures.len();

        Ok(both)
    }

    /// Waits for further replies of the pod in the consumer, and of pods at the provider.
    pub(super) async fn replies_after_now(&self) -> Result<()> {
        let mut before = None;
        let what = format!("replies of both clusters to {CLIENT}");
        until(Deadline::after(SOON), &what, async || {
            let now = self.outcomes().await?;
            let (near, far) = *before.get_or_insert((now.near, now.far));
            ensure!(now.near > near && now.far > far, "{now:?}");
            Ok(())
        })
        .await
    }

    /// Returns the outcomes of the client's requests so far.
    pub(super) async fn outcomes(&self) -> Result<Outcomes> {
        let log = self.remote.kubectl(&["logs", CLIENT]).await?;
        let mut outcomes = Outcomes::default();
        for line in log.lines() {
            match line.starts_with("reply ") {
                true if line.contains(NEAR) => outcomes.near += 1,
                true => outcomes.far += 1,
                false => outcomes.failures.push(line.to_owned()),
            }
        }

        Ok(outcomes)
    }

    /// Checks that no request has failed since the start, and that the client got at least one reply in each second since
    /// `before`, a duration of `time` ago.
    pub(super) async fn ensure_no_request_failed(
        &self,
        before: &Outcomes,
        time: Duration,
    ) -> Result<()> {
        let now = self.outcomes().await?;
        let replies = [
            now.near.saturating_sub(before.near),
            now.far.saturating_sub(before.far),
        ];
        eprintln!("{CLIENT}: {replies:?} replies of pods in the consumer and at the provider");
        let failures = now.failures.get(self.early_failures..);
        let failures = failures.context("the log of the client is shorter")?;
        ensure!(failures.is_empty(), "{CLIENT}: {failures:?}");
        let [near, far] = replies;
        let expected = usize::try_from(time.as_secs())?;
        ensure!(near > 0 && far > 0, "a cluster did not reply: {replies:?}");
        ensure!(
            near + far >= expected,
            "{replies:?} replies instead of {expected} in {time:?}"
        );

        Ok(())
    }

    /// Prints at each change whether the reflected endpoint, which is the pod in the consumer, is ready: `true` or `false`.
    ///
    /// `kubectl` runs in the network of the provider's control plane. Otherwise it could not reach the API server while the
    /// provider has no uplink.
    pub(super) fn watch_reflected(&self) -> Result<Running> {
        let selector = selector(SERVICE);
        let path = "jsonpath={.endpoints[*].conditions.ready}{\"\\n\"}";
        let words = ["get", "endpointslices", "--watch", "-l", &selector];
        let kubectl = self
            .remote
            .command(&[words.as_slice(), &["-o", path]].concat());
        let node = self.remote.cluster().node(0);
        let mut inside = Command::new("ip");
        inside
            .args(["netns", "exec", &node_netns(node.name())])
            .arg(kubectl.get_program())
            .args(kubectl.get_args())
            .stdin(Stdio::null());
        for (name, value) in kubectl.get_envs() {
            inside.env(name, value.context("a variable is removed")?);
        }

        Running::start(&mut inside)
    }
}
