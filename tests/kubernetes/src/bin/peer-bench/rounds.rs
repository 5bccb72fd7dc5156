//! The rounds of the benchmark, each with one sample of each measurement.

use crate::Cli;
use crate::requests::{Mark, Requests};
use crate::site::Site;
use crate::verified::verify;
use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kubernetes_lab::control_plane::Component;
use serde::Serialize;
use serde_json::json;
use std::time::{Duration, Instant};

/// The number of sequential creations that durations are compared with.
const CREATIONS: usize = 20;

const PEER: [&str; 2] = ["peer", "--networking-disabled"];

/// The samples of a round: durations in seconds.
#[derive(Debug, Serialize)]
pub(crate) struct Sample {
    round: u32,
    /// 20 sequential creations of a ConfigMap.
    creations_s: f64,
    /// `peer`, of clusters without tenant namespaces.
    peer_s: f64,
    /// `peer` of clusters that are peers already.
    repeated_s: f64,
    /// `unpeer --delete-namespaces=false`.
    unpeer_s: f64,
    /// `peer` directly after it.
    again_s: f64,
    /// `unpeer`, which deletes the tenant namespaces without waiting.
    unpeer_deleting_s: f64,
    /// `peer` directly after it, which waits until Kubernetes has deleted the namespaces.
    again_deleted_s: f64,
    /// `force unpeer` while the provider's API server does not respond.
    force_unpeer_s: f64,
    /// The requests of the first `peer`.
    requests: Requests,
}

pub(crate) async fn run(cli: &Cli) -> Result<Vec<Sample>> {
    let rome = Site::start(cli, "rome", "milan").await?;
    let milan = Site::start(cli, "milan", "rome").await?;
    let bench = Bench {
        rome,
        milan,
        trace: cli.trace,
    };
    let mut samples = Vec::new();
    // The first round fills caches, and is not kept.
    for round in 0..=cli.rounds {
        let sample = bench.round(round).await?;
        eprintln!("    {sample:?}");
        samples.extend((round > 0).then_some(sample));
    }

    Ok(samples)
}

struct Bench {
    rome: Site,
    milan: Site,
    trace: Option<f64>,
}

impl Bench {
    async fn round(&self, round: u32) -> Result<Sample> {
        let sites = [&self.rome, &self.milan];
        let creations = self.creations().await?;
        let mark = Mark::now(sites)?;
        let peer = self.rome.liqoctl(Some(&self.milan), &PEER).await?;
        let requests = mark.count(sites).await?;
        self.complete(peer, &mark).await?;
        let repeated = self.peer().await?;
        let unpeer = self.unpeer(&["--delete-namespaces=false"]).await?;
        let again = self.peer().await?;
        let unpeer_deleting = self.unpeer(&[]).await?;
        let again_deleted = self.peer().await?;
        let force_unpeer = self.force_unpeer().await?;

        Ok(Sample {
            round,
            creations_s: creations.as_secs_f64(),
            peer_s: peer.as_secs_f64(),
            repeated_s: repeated.as_secs_f64(),
            unpeer_s: unpeer.as_secs_f64(),
            again_s: again.as_secs_f64(),
            unpeer_deleting_s: unpeer_deleting.as_secs_f64(),
            again_deleted_s: again_deleted.as_secs_f64(),
            force_unpeer_s: force_unpeer.as_secs_f64(),
            requests,
        })
    }

    /// Creates ConfigMaps one after the other. Deletes them afterwards, which is not measured.
    async fn creations(&self) -> Result<Duration> {
        let api: Api<ConfigMap> = Api::namespaced(self.rome.client.clone(), "default");
        let start = Instant::now();
        for index in 0..CREATIONS {
            let map = json!({
                "metadata": {"name": format!("bench-{index}"), "labels": {"bench": "true"}},
                "data": {"key": "value"},
            });
            api.create(&PostParams::default(), &serde_json::from_value(map)?)
                .await?;
        }
        let taken = start.elapsed();
        let selected = ListParams::default().labels("bench=true");
        api.delete_collection(&DeleteParams::default(), &selected)
            .await?;

        Ok(taken)
    }

    /// Peers, and verifies the result.
    async fn peer(&self) -> Result<Duration> {
        let mark = Mark::now([&self.rome, &self.milan])?;
        let taken = self.rome.liqoctl(Some(&self.milan), &PEER).await?;
        self.complete(taken, &mark).await?;

        Ok(taken)
    }

    /// Prints the requests of a slow `peer`, and verifies its result.
    async fn complete(&self, taken: Duration, mark: &Mark) -> Result<()> {
        if let Some(limit) = self.trace
            && taken.as_secs_f64() > limit
        {
            eprintln!("    peer: {taken:?}");
            mark.trace([&self.rome, &self.milan])?;
        }
        verify(&self.rome).await
    }

    async fn unpeer(&self, flags: &[&str]) -> Result<Duration> {
        let words = [&["unpeer"], flags].concat();
        self.rome.liqoctl(Some(&self.milan), &words).await
    }

    /// Ends the peering while the provider does not respond. Then ends it at the provider, and waits until both are as
    /// before the round.
    async fn force_unpeer(&self) -> Result<Duration> {
        let provider = &self.milan.control_plane;
        provider.pause_component(Component::ApiServer)?;
        let taken = self.rome.liqoctl(None, &["force", "unpeer", "milan"]).await;
        provider.resume_component(Component::ApiServer)?;
        let taken = taken?;
        self.milan
            .liqoctl(None, &["force", "unpeer", "rome"])
            .await?;
        tokio::try_join!(self.rome.until_clean(), self.milan.until_clean())?;

        Ok(taken)
    }
}
