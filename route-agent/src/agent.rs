//! The event loop, which handles changes of the desired state, probe replies and kernel
//! notifications, and changes the kernel's state accordingly.

use crate::diff::{Op, diff, may_continue};
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
use crate::view::View;
use control_fabric::{Fabric, FabricChange};
use control_source::{Metrics, Origin, Reading, Scope, Source};
use ipnet::Ipv4Net;
use schedule::Schedule;
use std::collections::BTreeMap;
use std::time::Instant;
use tunnels::Tunnels;

mod echo;
mod report;
mod schedule;
mod tunnels;

/// Options of the command `run`.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Source of the desired state.
    pub(crate) origin: Origin,
    /// Name of this node.
    pub(crate) node: String,
    pub(crate) settings: Settings,
    /// Timing of the probes of gateway replicas.
    pub(crate) liveness: liveness::Config,
    /// Metrics of the source.
    pub(crate) metrics: Metrics,
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

/// The event loop's state for one node.
pub(crate) struct Agent {
    options: Options,
    status: Shared,
    fabric: Fabric,
    source: Source,
    /// The invalid and incomplete objects in the desired state, as they were logged last.
    unserved: Vec<String>,
    kernel: Kernel,
    events: Events,
    liveness: Liveness,
    probe: Option<probe::Socket>,
    paths: Paths,
    echo: Option<echo_responder::Socket>,
    tunnels: Tunnels,
    /// Remapped CIDRs of all remote clusters. Only echo requests from these CIDRs get a reply.
    remote: Vec<Ipv4Net>,
    /// The kernel's state at the last observation, updated by the agent's own changes since then.
    state: State,
    underlay: Underlay,
    /// Whether `state` is the planned one, so that a change of the desired state changes a part of it.
    is_converged: bool,
    /// The last logged phase of each gateway replica, by the replica's name.
    phases: BTreeMap<String, Phase>,
    replicas_reported_at: Option<Instant>,
    schedule: Schedule,
}

impl Agent {
    /// Creates the agent, reads the desired state, and applies it to the kernel.
    ///
    /// The agent adopts the kernel state that a previous process has left. If the desired state
    /// comes from a file, the file must be valid and contain this node. If it comes from the API
    /// server, the agent waits until it is valid and contains this node.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if a step fails.
    pub(crate) async fn start(options: Options, status: Shared) -> Result<Self, Error> {
        let settings = options.settings.clone();
        // Watch the source before reading it, so that no change between the two steps is missed.
        let mut source = Source::open(&options.origin, Scope::Node, &options.metrics).await?;
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
            tunnels: Tunnels::new(now),
            remote: Vec::new(),
            state,
            underlay: Underlay::default(),
            is_converged: false,
            phases: BTreeMap::new(),
            replicas_reported_at: None,
            schedule: Schedule::default(),
        };
        agent.report_start();
        agent.report_unserved(&reading.refused, &reading.waiting);

        agent.observe_underlay().await;
        agent.adopt()?;
        agent.converge().await?;
        agent.open_probe().await?;

        Ok(agent)
    }

    pub(crate) fn source(&mut self) -> &mut Source {
        &mut self.source
    }

    /// Runs the event loop until the caller drops the future. The agent's device, routes and rules
    /// then remain in the kernel.
    pub(crate) async fn run(&mut self) {
        loop {
            self.probe_replicas();
            self.probe_paths();
            if self.liveness.poll_change().is_some() {
                self.report_replicas_changed();
                self.tunnels.handle_change(Instant::now());
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
                () = until(self.schedule.due()) => self.repair().await,
                listed = self.tunnels.next() => self.join_datagrams(listed),
                () = self.source.changed() => self.reload().await,
            }
        }
    }

    fn probe_replicas(&mut self) {
        let Some(probe) = &self.probe else {
            return;
        };
        // A reply in the socket's queue must not count as a miss, so read the socket before
        // handling time-outs.
        probe.receive(&mut self.liveness);
        self.liveness.handle_timeout(Instant::now());
        probe.send(&mut self.liveness);
        self.report_replicas();
    }

    /// Marks the replicas in the existing nexthop groups as serving, so that a restart of the agent
    /// does not interrupt traffic.
    fn adopt(&mut self) -> Result<(), Error> {
        let view = plan::adopt(&self.fabric, &self.options.settings, &self.state);
        let probes = self.plan(&view)?.probes;
        self.liveness.set_clusters(cluster_ids(&self.fabric));
        self.liveness.set_replicas(&probes, Instant::now());
        self.liveness.adopt(&view);

        Ok(())
    }

    fn plan(&self, view: &View) -> Result<plan::Plan, plan::Error> {
        plan(&self.input(view))
    }

    fn input<'a>(&'a self, view: &'a View) -> Input<'a> {
        Input {
            fabric: &self.fabric,
            node: &self.options.node,
            view,
            settings: &self.options.settings,
            underlay: &self.underlay,
            observed: &self.state,
        }
    }

    /// Applies the plan to the kernel, and returns the number of changes.
    ///
    /// If the nft table cannot be set, [`may_continue`] decides whether the remaining changes are
    /// applied before the error is returned.
    async fn converge(&mut self) -> Result<usize, Error> {
        let plan = self.plan(&self.liveness.view())?;
        let ops = diff(&self.state, &plan.state);
        let filtered = self.apply(&ops).await?;
        self.liveness.set_replicas(&plan.probes, Instant::now());
        self.update_echo_targets();
        if !ops.is_empty() || self.probe.is_none() {
            self.report_warnings(&plan).await;
        }
        self.report_plan(&plan);
        filtered?;
        self.is_converged = true;

        Ok(ops.len())
    }

    /// Applies the changes to the kernel. Returns the error of the nft table if the others could be
    /// applied nevertheless.
    async fn apply(&mut self, ops: &[Op]) -> Result<Result<(), Error>, Error> {
        let mut filtered = Ok(());
        for (at, op) in ops.iter().enumerate() {
            tracing::debug!(?op, "changing the kernel's state");
            match self.kernel.apply(op, &self.state).await {
                Ok(()) => self.state.apply(op),
                Err(error) if may_continue(op, &ops[at + 1..], &self.state) => {
                    filtered = Err(error.into());
                }
                Err(error) => return Err(error.into()),
            }
        }

        Ok(filtered)
    }

    /// Calls [`Agent::converge`] and returns the number of changes. Reports a failure, and
    /// schedules another attempt.
    async fn converge_or_retry(&mut self) -> usize {
        let converged = self.converge().await;
        // `converge` may have added the node's address before it failed. Probes need only this
        // address, so open the sockets in any case.
        let opened = self.open_probe().await;
        match converged.and_then(|ops| opened.map(|()| ops)) {
            Ok(ops) => ops,
            Err(error) => {
                self.retry(&error);
                0
            }
        }
    }

    /// Reports the failure, and schedules an observation of all parts of the kernel's state.
    fn retry(&mut self, error: &Error) {
        self.report_failure(error);
        self.is_converged = false;
        self.schedule.retry(Instant::now());
    }

    /// Binds the probe and echo sockets to the node's external address. Binds new sockets if the
    /// address has changed.
    async fn open_probe(&mut self) -> Result<(), Error> {
        let address = plan::node(&self.fabric, &self.options.node)?.external_ip;
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
        self.schedule.add(touched, Instant::now());
    }

    /// Observes the parts of the kernel's state that may have changed, and repairs them.
    async fn repair(&mut self) {
        let touched = self.schedule.take(Instant::now());
        let underlay = self.underlay.clone();
        let unread = match self.observe(touched).await {
            // `observe` reads the nft table last, so the other parts are known and can be repaired.
            Err(error @ Error::Kernel(kernel::Error::Nft(_))) => Some(error),
            Err(error) => {
                self.retry(&error);
                return;
            }
            Ok(()) => None,
        };
        let is_other_device = touched.is_underlay_only() && underlay == self.underlay;
        if is_other_device && self.is_converged && self.echo.is_some() {
            return;
        }

        let changes = self.converge_or_retry().await;
        if let Some(error) = unread {
            self.retry(&error);
        }
        // Report a repair only if another program has changed the agent's objects. After the
        // agent's own changes, `changes` is 0. If the underlay has changed, the plan has changed
        // too, so the changes may be no repairs.
        if changes > 0 && underlay == self.underlay {
            self.schedule.handle_repair(Instant::now());
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
            // If reading fails, the table counts as missing, so that the agent sets it again. As
            // long as that fails too, `may_continue` allows no creation of the device, because
            // packets would enter the node unfiltered.
            self.state.filter = None;
            self.state.filter = self.kernel.observe_filter().await?;
        }

        Ok(())
    }

    async fn observe_underlay(&mut self) {
        let destinations = Destinations::of(&self.fabric, &self.options.node);
        self.underlay = self.kernel.observe_underlay(&destinations).await;
        let cards = self.kernel.cards(&self.underlay.interfaces).await;
        self.report_cards(cards);
    }

    /// Reads the desired state again, and applies it. An invalid state is reported and not applied.
    async fn reload(&mut self) {
        let read = self.source.read().map_err(Error::from);
        let checked = read.and_then(|reading| {
            plan::node(&reading.fabric, &self.options.node)?;
            Ok(reading)
        });
        let reading = match checked {
            Ok(reading) => reading,
            Err(error) => return self.report_invalid(&error),
        };

        self.report_unserved(&reading.refused, &reading.waiting);
        self.report_valid();
        let old = std::mem::replace(&mut self.fabric, reading.fabric.clone());
        let change = reading.fabric.changes_since(&old);
        if !change.is_empty() {
            self.follow(&old, &change).await;
        }
    }

    /// Applies a change of the desired state, which leads from `old` to the current one.
    async fn follow(&mut self, old: &Fabric, change: &FabricChange<'_>) {
        let mut peers = change.peers.iter();
        if peers.any(|it| it.old.is_none() || it.new.is_none()) {
            self.liveness.set_clusters(cluster_ids(&self.fabric));
        }
        let node = &self.options.node;
        let underlay = self.underlay.clone();
        if Destinations::of(&self.fabric, node) != Destinations::of(old, node) {
            self.observe_underlay().await;
        }
        let view = self.liveness.view();
        let is_known = self.is_converged && self.underlay == underlay;
        // `converge_or_retry` also binds sockets that could not be bound before.
        let is_partial = is_known && self.echo.is_some();
        let ops = is_partial.then(|| plan::change::changes(&self.input(&view), old, change));
        let Some(ops) = ops.flatten() else {
            self.converge_or_retry().await;
            return;
        };

        let applied = self.apply(&ops).await;
        let rerouted = plan::change::rerouted(change);
        if !rerouted.is_empty() {
            self.update_echo_targets();
            self.report_peers(&rerouted);
        }
        if let Err(error) = applied.flatten() {
            self.retry(&error);
        }
    }
}

/// Waits until the desired state contains this node, and returns the state. Fails without waiting
/// if the state comes from a file.
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

/// Completes when a reply may be readable. Without a socket, the future never completes.
async fn readable(probe: Option<&probe::Socket>) {
    match probe {
        Some(probe) => probe.readable().await,
        None => std::future::pending().await,
    }
}

/// Completes at `deadline`. Without a deadline, the future never completes.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
