//! The event loop: desired state, probe replies and kernel notifications in, changes of the kernel out.

use crate::diff::{diff, may_continue};
use crate::echo_responder;
use crate::kernel::events::{Events, Touched};
use crate::kernel::{self, Kernel};
use crate::liveness::{self, Liveness, Phase};
use crate::mutant;
use crate::path::Paths;
use crate::plan::{self, Input, plan};
use crate::probe;
use crate::settings::Settings;
use crate::state::State;
use crate::status::Shared;
use crate::underlay::{Destinations, Underlay};
use control_api::fabric::Fabric;
use control_source::{Origin, Reading, Scope, Source};
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

mod echo;
mod report;

/// From the first kernel notification to the observation: one change by another program
/// causes several notifications.
const DEBOUNCE: Duration = Duration::from_millis(75);

/// Minimum time between two repairs, which bounds the cost if another program keeps changing
/// our state. Below the two seconds within which changes are repaired.
const REAPPLY_GAP: Duration = Duration::from_secs(1);

/// From a failed change of the kernel to the next attempt.
const RETRY: Duration = Duration::from_secs(1);

/// Command line options.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Source of the desired state.
    pub(crate) origin: Origin,
    /// Name of this node.
    pub(crate) node: String,
    pub(crate) settings: Settings,
    /// Timing of the probes of gateway replicas.
    pub(crate) liveness: liveness::Config,
}

/// The agent failed to start, or to apply the desired state.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The desired state cannot be read.
    #[error(transparent)]
    Source(#[from] control_source::Error),

    /// The desired state does not fit this node.
    #[error(transparent)]
    Plan(#[from] plan::Error),

    /// A request to the kernel failed.
    #[error(transparent)]
    Kernel(#[from] kernel::Error),

    /// The probe socket cannot be bound.
    #[error(transparent)]
    Probe(#[from] probe::Error),
}

/// The agent of one node.
pub(crate) struct Agent {
    options: Options,
    status: Shared,
    fabric: Fabric,
    source: Source,
    /// The parts of the desired state that are invalid or incomplete, as last logged.
    unserved: Vec<String>,
    kernel: Kernel,
    events: Events,
    liveness: Liveness,
    probe: Option<probe::Socket>,
    paths: Paths,
    echo: Option<echo_responder::Socket>,
    /// Sources whose echo requests get a reply.
    remote: Vec<Ipv4Net>,
    /// The kernel's state at the last observation, with our changes since.
    state: State,
    underlay: Underlay,
    /// Phases of the replicas, as last logged.
    phases: BTreeMap<String, Phase>,
    replicas_reported_at: Option<Instant>,
    /// Notifications since the last observation, and when to observe.
    touched: Touched,
    observe_at: Option<Instant>,
    repaired_at: Option<Instant>,
}

impl Agent {
    /// Reads the desired state, takes over the state of a predecessor, and converges.
    ///
    /// A file must be valid and contain this node. In a cluster, missing objects are waited for.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if any of that fails.
    pub(crate) async fn start(options: Options, status: Shared) -> Result<Self, Error> {
        let settings = options.settings.clone();
        // Source and events are followed before the first read, so that no change is missed.
        let mut source = Source::open(&options.origin, Scope::Node).await?;
        source.follow()?;
        let reading = first(&mut source, &options, &status).await?;
        let events = Events::open(settings.clone()).map_err(kernel::Error::from)?;
        let mut kernel = Kernel::open(settings.clone())?;
        let state = kernel.observe().await?;
        let now = Instant::now();
        let mut agent = Self {
            liveness: Liveness::new(options.liveness, probe::random_sequence(), now),
            options,
            status,
            fabric: reading.fabric,
            source,
            unserved: Vec::new(),
            kernel,
            events,
            probe: None,
            paths: Paths::new(probe::random(), now),
            echo: None,
            remote: Vec::new(),
            state,
            underlay: Underlay::default(),
            phases: BTreeMap::new(),
            replicas_reported_at: None,
            touched: Touched::default(),
            observe_at: None,
            repaired_at: None,
        };
        agent.report_start();
        agent.report_unserved(&reading.refused, &reading.waiting);

        agent.observe_underlay().await;
        agent.adopt()?;
        agent.converge().await?;
        agent.open_probe().await?;

        Ok(agent)
    }

    /// The source of the desired state.
    pub(crate) fn source(&mut self) -> &mut Source {
        &mut self.source
    }

    /// Runs until dropped; the kernel's state stays.
    pub(crate) async fn run(&mut self) {
        loop {
            self.probe_replicas();
            self.probe_paths();
            if self.liveness.poll_change().is_some() {
                self.report_replicas_changed();
                self.converge_or_retry().await;
            }

            let next_probe = self.liveness.poll_timeout();
            let next_echo = self.paths.poll_timeout();
            tokio::select! {
                () = readable(self.probe.as_ref()) => {}
                () = echo::readable(self.echo.as_ref()) => {}
                () = until(next_probe) => {}
                () = until(next_echo) => {}
                touched = self.events.next() => self.schedule_observation(touched),
                () = until(self.observe_at) => self.repair().await,
                () = self.source.changed() => self.reload().await,
            }
        }
    }

    fn probe_replicas(&mut self) {
        let Some(probe) = &self.probe else {
            return;
        };
        // Before the timeout: a reply in the socket's queue is no miss.
        probe.receive(&mut self.liveness);
        self.liveness.handle_timeout(Instant::now());
        probe.send(&mut self.liveness);
        self.report_replicas();
    }

    /// Starts with the replicas in the nexthop groups of the predecessor.
    fn adopt(&mut self) -> Result<(), Error> {
        let view = plan::adopt(&self.fabric, &self.options.settings, &self.state);
        let probes = self.plan(&view)?.probes;
        self.liveness.set_clusters(cluster_ids(&self.fabric));
        self.liveness.set_replicas(&probes, Instant::now());
        self.liveness.adopt(&view);

        Ok(())
    }

    fn plan(&self, view: &crate::view::View) -> Result<plan::Plan, plan::Error> {
        plan(&Input {
            fabric: &self.fabric,
            node: &self.options.node,
            view,
            settings: &self.options.settings,
            underlay: &self.underlay,
            observed: &self.state,
        })
    }

    /// Applies the plan and returns the number of changes; goes on if only the filter cannot be set.
    async fn converge(&mut self) -> Result<usize, Error> {
        let plan = self.plan(&self.liveness.view())?;
        let ops = diff(&self.state, &plan.state);
        let mut filtered = Ok(());
        for (at, op) in ops.iter().enumerate() {
            tracing::debug!(?op, "changing the kernel's state");
            match self.kernel.apply(op, &self.state).await {
                Ok(()) => self.state.apply(op),
                Err(error) if may_continue(op, &ops[at + 1..], &self.state) => {
                    filtered = Err(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.liveness.set_replicas(&plan.probes, Instant::now());
        self.update_echo_targets();
        if !ops.is_empty() || self.probe.is_none() {
            self.report_warnings(&plan).await;
        }
        self.report_plan(&plan);
        filtered?;

        Ok(ops.len())
    }

    /// Like [`Agent::converge`]; a failure is reported and retried later.
    async fn converge_or_retry(&mut self) -> usize {
        let converged = self.converge().await;
        // Also after an error: if the address exists, the replicas can be probed.
        let opened = self.open_probe().await;
        match converged.and_then(|ops| opened.map(|()| ops)) {
            Ok(ops) => ops,
            Err(error) => {
                self.retry(&error);
                0
            }
        }
    }

    /// Reports the failure, and schedules an observation of everything.
    fn retry(&mut self, error: &Error) {
        self.report_failure(error);
        self.touched = Touched::ALL;
        let latest = Instant::now() + RETRY;
        self.observe_at = Some(self.observe_at.map_or(latest, |at| at.min(latest)));
    }

    /// Binds the probe socket, and again after the node's address has changed.
    async fn open_probe(&mut self) -> Result<(), Error> {
        let address = self.plan(&self.liveness.view())?.external_ip;
        if self.probe.as_ref().map(probe::Socket::address) != Some(address) {
            let port = self.options.settings.probe_port;
            self.probe = Some(probe::Socket::bind(address, port).await?);
        }
        self.bind_echo(address).await;

        Ok(())
    }

    fn schedule_observation(&mut self, touched: Touched) {
        if mutant::disables("reapply") {
            return;
        }
        self.touched |= touched;
        let earliest = Instant::now() + DEBOUNCE;
        let gap_ends = self.repaired_at.map(|at| at + REAPPLY_GAP);
        self.observe_at = self.observe_at.or(gap_ends.max(Some(earliest)));
    }

    /// Observes the parts that may have changed, and repairs them.
    async fn repair(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        self.observe_at = None;
        let underlay = self.underlay.clone();
        let unread = match self.observe(touched).await {
            // The table is observed last: the rest is repaired even if `nft` fails.
            Err(error @ Error::Kernel(kernel::Error::Nft(_))) => Some(error),
            Err(error) => {
                self.retry(&error);
                return;
            }
            Ok(()) => None,
        };

        let changes = self.converge_or_retry().await;
        if let Some(error) = unread {
            self.retry(&error);
        }
        // Our own changes cause notifications, too, but no further changes.
        if changes > 0 && underlay == self.underlay {
            self.repaired_at = Some(Instant::now());
            self.report_repair(changes);
        }
    }

    async fn observe(&mut self, touched: Touched) -> Result<(), Error> {
        if touched.underlay {
            self.observe_underlay().await;
        }
        if touched.netlink {
            let filter = self.state.filter.take();
            self.state = self.kernel.observe_netlink().await?;
            self.state.filter = filter;
        }
        if touched.filter {
            // A table that cannot be read counts as missing: no device is created without it.
            self.state.filter = None;
            self.state.filter = self.kernel.observe_filter().await?;
        }

        Ok(())
    }

    async fn observe_underlay(&mut self) {
        let destinations = Destinations::of(&self.fabric, &self.options.node);
        self.underlay = self.kernel.observe_underlay(&destinations).await;
    }

    /// Reads the desired state again; an invalid one changes nothing.
    async fn reload(&mut self) {
        let previous = self.fabric.clone();
        let read = self.source.read().map_err(Error::from);
        let checked = read.and_then(|reading| {
            self.fabric = reading.fabric;
            self.plan(&self.liveness.view())?;
            Ok((reading.refused, reading.waiting))
        });
        let (refused, waiting) = match checked {
            Ok(unserved) => unserved,
            Err(error) => {
                self.fabric = previous;
                self.report_invalid(&error);
                return;
            }
        };

        self.report_unserved(&refused, &waiting);
        self.report_valid();
        if self.fabric != previous {
            self.liveness.set_clusters(cluster_ids(&self.fabric));
            self.observe_underlay().await;
            self.converge_or_retry().await;
        }
    }
}

/// Returns the first desired state that contains this node.
async fn first(source: &mut Source, options: &Options, status: &Shared) -> Result<Reading, Error> {
    let mut logged = String::new();
    loop {
        let error = match source.read() {
            Ok(reading)
                if reading
                    .fabric
                    .nodes
                    .iter()
                    .any(|it| it.name == options.node) =>
            {
                return Ok(reading);
            }
            Ok(reading) => plan::Error::unknown_node(&reading.fabric, &options.node).into(),
            Err(error) => Error::from(error),
        };
        if let Source::File(_) = source {
            return Err(error);
        }
        let error = error.to_string();
        if logged != error {
            tracing::info!(error, "waiting until the desired state contains this node");
            status.update(|status| status.error = Some(error.clone()));
            logged = error;
        }
        source.changed().await;
    }
}

fn cluster_ids(fabric: &Fabric) -> Vec<String> {
    let mut ids: Vec<_> = fabric
        .peers
        .iter()
        .map(|it| it.cluster_id.clone())
        .collect();
    ids.sort();
    ids
}

/// Completes when a reply may be readable; never without a socket.
async fn readable(probe: Option<&probe::Socket>) {
    match probe {
        Some(probe) => probe.readable().await,
        None => std::future::pending().await,
    }
}

/// Completes at `deadline`; never without one.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
