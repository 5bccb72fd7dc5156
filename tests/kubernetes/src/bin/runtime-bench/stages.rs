//! The stages of the benchmark: growing numbers of objects, in each of which processes are measured.

use crate::Cli;
use crate::generator::Generator;
use crate::objects;
use crate::process::Process;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::control_plane::{Component, ControlPlane};
use kubernetes_lab::wait::{Deadline, SOON, until};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

/// The numbers of pods and EndpointSlices of each stage.
const STAGES: [(usize, usize); 3] = [(0, 100), (0, 1_000), (5_000, 20_000)];

/// The address of the controller manager's metrics and health.
const HTTP: &str = "127.0.0.1:18080";

/// The time for which the number of watches of a process must not change.
const STABLE: Duration = Duration::from_secs(2);

/// All samples.
#[derive(Debug, Serialize)]
pub(crate) struct Samples {
    follower: Vec<FollowerSample>,
    manager: Vec<ProcessSample>,
}

/// A start of the process that follows Pods and EndpointSlices.
#[derive(Debug, Serialize)]
struct FollowerSample {
    pods: usize,
    slices: usize,
    #[serde(flatten)]
    process: ProcessSample,
    /// CPU time per change, in microseconds.
    change_us: f64,
    /// Memory after the changes, in bytes.
    changed_bytes: u64,
}

/// A start of a process.
#[derive(Debug, Serialize)]
struct ProcessSample {
    round: u32,
    /// Time from the start until all objects are in the cache, in seconds.
    listed_s: f64,
    /// Memory when all objects are in the cache, in bytes.
    resident_bytes: u64,
    peak_bytes: u64,
    /// CPU time from the start until all objects are in the cache, in seconds.
    listed_cpu_s: f64,
    watches: u64,
    connections: usize,
}

pub(crate) async fn run(control_plane: &ControlPlane, cli: &Cli) -> Result<Samples> {
    let client = control_plane.client().await?;
    let bench = Bench {
        generator: Generator { client },
        kubeconfig: control_plane.kubeconfig(),
        port: port(control_plane.server())?,
        cli,
    };
    bench.prepare().await?;
    // It would collect the pods, whose nodes do not exist, and uses CPU time.
    control_plane.stop_component(Component::ControllerManager)?;

    let mut samples = Samples {
        follower: Vec::new(),
        manager: Vec::new(),
    };
    let mut present = (0, 0);
    for stage in STAGES {
        bench.grow(present, stage).await?;
        present = stage;
        for round in 1..=cli.rounds {
            samples.follower.push(bench.follower(stage, round).await?);
        }
    }
    bench.settle_manager().await?;
    for round in 1..=cli.rounds {
        samples.manager.push(bench.manager(round).await?);
    }

    Ok(samples)
}

struct Bench<'a> {
    generator: Generator,
    kubeconfig: PathBuf,
    /// The TCP port of the API server.
    port: u16,
    cli: &'a Cli,
}

impl Bench<'_> {
    /// Creates namespaces, nodes and peers.
    async fn prepare(&self) -> Result<()> {
        eprintln!("    {} tenants", objects::TENANTS);
        self.generator.create(objects::namespaces()).await?;
        self.generator.create(objects::cluster()).await?;
        for index in 0..objects::APPLICATIONS {
            self.generator
                .until_usable(&objects::application(index))
                .await?;
        }
        let peerings = (0..objects::TENANTS).flat_map(objects::peering);
        self.generator.create(peerings.collect()).await
    }

    /// Creates pods and EndpointSlices until there are as many as in a stage.
    async fn grow(&self, from: (usize, usize), to: (usize, usize)) -> Result<()> {
        let start = Instant::now();
        let pods = from.0..to.0;
        self.generator
            .create(pods.clone().map(objects::pod).collect())
            .await?;
        self.generator.patch(pods.map(objects::pod_status)).await?;
        let slices = from.1..to.1;
        self.generator
            .create(slices.map(objects::slice).collect())
            .await?;
        eprintln!(
            "    {} pods, {} EndpointSlices (created in {:.1} s)",
            to.0,
            to.1,
            start.elapsed().as_secs_f64()
        );

        Ok(())
    }

    /// Starts and measures the process that follows Pods and EndpointSlices.
    async fn follower(&self, (pods, slices): (usize, usize), round: u32) -> Result<FollowerSample> {
        let before = self.generator.watches().await?;
        let mut command = Command::new(&self.cli.follower);
        command
            .arg(objects::TENANTS.to_string())
            .env("KUBECONFIG", &self.kubeconfig);
        let mut process = Process::start(command)?;
        process.until_prints("listed").await?;
        let listed = process.started.elapsed();
        let sample = self.sample(&process, round, listed, before).await?;

        let changes = self.cli.changes as usize;
        let start = process.cpu_time()?;
        // Each change reverts the one before of the same object, also that of the round before.
        let before = (round as usize - 1) * changes.div_ceil(slices);
        let is_ready = |it: usize| (before + it / slices) % 2 == 1;
        let patches =
            (0..changes).map(|it| objects::slice_change(spread(it, slices), is_ready(it)));
        self.generator.patch(patches).await?;
        let marker = format!("{slices}-{round}");
        self.generator
            .patch([objects::slice_marker(0, &marker)])
            .await?;
        process.until_prints(&format!("seen {marker},")).await?;
        let spent = process.cpu_time()?.saturating_sub(start);
        let changed = process.memory()?;
        process.stop().await?;

        let sample = FollowerSample {
            pods,
            slices,
            process: sample,
            change_us: spent.as_secs_f64() * 1e6 / f64::from(self.cli.changes),
            changed_bytes: changed.resident,
        };
        eprintln!("    round {round}: {sample:?}");
        Ok(sample)
    }

    /// Lets the controller manager write what it writes about new peers.
    async fn settle_manager(&self) -> Result<()> {
        eprintln!("    controller manager");
        let process = Process::start(self.manager_command())?;
        self.generator.until_configured().await?;
        self.until_stable(0).await?;
        process.stop().await
    }

    async fn manager(&self, round: u32) -> Result<ProcessSample> {
        let before = self.generator.watches().await?;
        let process = Process::start(self.manager_command())?;
        until(Deadline::after(SOON), "readiness", async || {
            is_ready().await
        })
        .await?;
        let listed = process.started.elapsed();
        let sample = self.sample(&process, round, listed, before).await?;
        process.stop().await?;

        eprintln!("    round {round}: {sample:?}");
        Ok(sample)
    }

    fn manager_command(&self) -> Command {
        let mut command = Command::new(&self.cli.manager);
        command
            .arg(format!("--namespace={}", objects::LIQO))
            .arg(format!("--http={HTTP}"))
            .arg("--leader-elect=false")
            .env("KUBECONFIG", &self.kubeconfig)
            .env("RUST_LOG", "warn");
        command
    }

    /// Measures a process whose cache is complete, once the number of its watches is stable.
    async fn sample(
        &self,
        process: &Process,
        round: u32,
        listed: Duration,
        before: u64,
    ) -> Result<ProcessSample> {
        let cpu_time = process.cpu_time()?;
        let watches = self.until_stable(before).await?;
        let memory = process.memory()?;

        Ok(ProcessSample {
            round,
            listed_s: listed.as_secs_f64(),
            resident_bytes: memory.resident,
            peak_bytes: memory.peak,
            listed_cpu_s: cpu_time.as_secs_f64(),
            watches,
            connections: process.connections(self.port)?,
        })
    }

    /// Waits until the number of watches does not change, and returns how many more there are than
    /// `before`.
    async fn until_stable(&self, before: u64) -> Result<u64> {
        let mut last = (0, Instant::now());
        until(Deadline::after(SOON), "all watches", async || {
            let watches = self.generator.watches().await?;
            if watches != last.0 {
                last = (watches, Instant::now());
            }
            ensure!(last.1.elapsed() >= STABLE, "{watches} watches");
            Ok(watches.saturating_sub(before))
        })
        .await
    }
}

/// Returns an object for each change, spread over all.
fn spread(change: usize, objects: usize) -> usize {
    // The stride is prime, so all objects have their turn.
    change * 7_919 % objects
}

/// Checks that the controller manager is ready.
async fn is_ready() -> Result<()> {
    let mut stream = TcpStream::connect(HTTP).await?;
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
        .await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    ensure!(response.starts_with("HTTP/1.1 200"), "{response}");

    Ok(())
}

fn port(server: &str) -> Result<u16> {
    let (_, port) = server.rsplit_once(':').context("the URL has no port")?;
    port.parse().context("the port is no number")
}
