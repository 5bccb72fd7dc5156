//! The loop: what the desired state, the replicas and the kernel say in; changes to the kernel out.

use crate::diff::{diff, may_go_on};
use crate::kernel::events::{Events, Touched};
use crate::kernel::{self, Kernel};
use crate::liveness::{self, Liveness, Phase};
use crate::mutant;
use crate::path::Paths;
use crate::plan::{self, Input, plan};
use crate::probe;
use crate::reflector;
use crate::settings::Settings;
use crate::state::State;
use crate::status::Shared;
use crate::underlay::{Destinations, Underlay};
use control_api::fabric::Fabric;
use control_source::{Origin, Reading, Scope, Source};
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

mod check;
mod report;

/// How long the kernel's announcements are gathered before it is looked at: one change
/// of somebody else's comes as many.
const DEBOUNCE: Duration = Duration::from_millis(75);

/// The least time between two looks that found something to put back, so that a
/// fight with another program costs little. Below the two seconds within which we do.
const REAPPLY_GAP: Duration = Duration::from_secs(1);

/// When to try again after the kernel has refused a change.
const RETRY: Duration = Duration::from_secs(1);

/// What the agent is told on its command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Where the desired state is.
    pub(crate) origin: Origin,
    /// Name of this node.
    pub(crate) node: String,
    /// The numbers in use.
    pub(crate) settings: Settings,
    /// How often to probe the gateway replicas, and when to give up.
    pub(crate) liveness: liveness::Config,
}

/// The agent could not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The desired state cannot be had.
    #[error(transparent)]
    Source(#[from] control_source::Error),

    /// It does not fit this node.
    #[error(transparent)]
    Plan(#[from] plan::Error),

    /// The kernel refuses.
    #[error(transparent)]
    Kernel(#[from] kernel::Error),

    /// The probe's socket cannot be had.
    #[error(transparent)]
    Probe(#[from] probe::Error),
}

/// The agent of one node.
pub(crate) struct Agent {
    options: Options,
    status: Shared,
    fabric: Fabric,
    source: Source,
    /// What of the desired state is not served: a line each.
    unserved: Vec<String>,
    kernel: Kernel,
    events: Events,
    liveness: Liveness,
    probe: Option<probe::Socket>,
    /// Checks of the way to the remote clusters' nodes, and who may ask the same of this one.
    paths: Paths,
    checks: Option<reflector::Socket>,
    remote: Vec<Ipv4Net>,
    /// The kernel's state as it was last seen, with our changes since.
    state: State,
    underlay: Underlay,
    /// What was last said of each replica, and when the status was last refreshed.
    phases: BTreeMap<String, Phase>,
    replicas_reported_at: Option<Instant>,
    /// What has been announced since the last look, and when to look.
    touched: Touched,
    look_at: Option<Instant>,
    put_back_at: Option<Instant>,
}

impl Agent {
    /// Reads the desired state, takes over what a predecessor left, and makes the kernel obey.
    ///
    /// A file must be right; in a cluster somebody may be about to write what is missing, and
    /// is waited for.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if any of that fails.
    pub(crate) async fn start(options: Options, status: Shared) -> Result<Self, Error> {
        let settings = options.settings.clone();
        // Both before the first look, so that no change falls between the two.
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
            checks: None,
            remote: Vec::new(),
            state,
            underlay: Underlay::default(),
            phases: BTreeMap::new(),
            replicas_reported_at: None,
            touched: Touched::default(),
            look_at: None,
            put_back_at: None,
        };
        agent.report_start();
        agent.report_unserved(&reading.refused, &reading.waiting);

        agent.observe_underlay().await;
        agent.take_over()?;
        agent.converge().await?;
        agent.open_probe().await?;

        Ok(agent)
    }

    /// Returns where the desired state comes from.
    pub(crate) fn source(&mut self) -> &mut Source {
        &mut self.source
    }

    /// Runs until dropped; leaves everything in the kernel as it is.
    pub(crate) async fn run(&mut self) {
        loop {
            self.probe_replicas();
            self.check_paths();
            if self.liveness.poll_change().is_some() {
                self.report_replicas_changed();
                self.converge_or_retry().await;
            }

            let next_probe = self.liveness.poll_timeout();
            let next_check = self.paths.poll_timeout();
            tokio::select! {
                () = readable(self.probe.as_ref()) => {}
                () = check::readable(self.checks.as_ref()) => {}
                () = until(next_probe) => {}
                () = until(next_check) => {}
                touched = self.events.next() => self.note(touched),
                () = until(self.look_at) => self.look().await,
                () = self.source.changed() => self.reload().await,
            }
        }
    }

    /// Answers first: a probe whose answer waits in the socket is not unanswered.
    fn probe_replicas(&mut self) {
        let Some(probe) = &self.probe else {
            return;
        };
        probe.receive(&mut self.liveness);
        self.liveness.handle_timeout(Instant::now());
        probe.send(&mut self.liveness);
        self.report_replicas();
    }

    /// Starts with the replicas that the predecessor's groups lead to.
    fn take_over(&mut self) -> Result<(), Error> {
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

    /// Makes the kernel's state the planned one; without the filter, if that cannot be set.
    async fn converge(&mut self) -> Result<usize, Error> {
        let plan = self.plan(&self.liveness.view())?;
        let ops = diff(&self.state, &plan.state);
        let mut unfiltered = Ok(());
        for (at, op) in ops.iter().enumerate() {
            tracing::debug!(?op, "changing the kernel's state");
            match self.kernel.apply(op, &self.state).await {
                Ok(()) => self.state.apply(op),
                Err(error) if may_go_on(op, &ops[at + 1..], &self.state) => {
                    unfiltered = Err(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.liveness.set_replicas(&plan.probes, Instant::now());
        self.follow_peers();
        if !ops.is_empty() || self.probe.is_none() {
            self.report_oddities(&plan).await;
        }
        self.report_plan(&plan);
        unfiltered?;

        Ok(ops.len())
    }

    /// Like [`Agent::converge`]; where that fails, says so and looks again later.
    async fn converge_or_retry(&mut self) -> usize {
        let converged = self.converge().await;
        // Also after an error: the address may be there, and the replicas be probed.
        let opened = self.open_probe().await;
        match converged.and_then(|ops| opened.map(|()| ops)) {
            Ok(ops) => ops,
            Err(error) => {
                self.retry(&error);
                0
            }
        }
    }

    /// Says what failed, and looks again at everything after a while.
    fn retry(&mut self, error: &Error) {
        self.report_failure(error);
        self.touched = Touched::ALL;
        let latest = Instant::now() + RETRY;
        self.look_at = Some(self.look_at.map_or(latest, |at| at.min(latest)));
    }

    /// Binds the probe's socket, again where the node's address has changed.
    async fn open_probe(&mut self) -> Result<(), Error> {
        let address = self.plan(&self.liveness.view())?.external_ip;
        if self.probe.as_ref().map(probe::Socket::address) != Some(address) {
            let port = self.options.settings.probe_port;
            self.probe = Some(probe::Socket::bind(address, port).await?);
        }
        self.open_checks(address).await;

        Ok(())
    }

    fn note(&mut self, touched: Touched) {
        if mutant::disables("reapply") {
            return;
        }
        self.touched |= touched;
        let earliest = Instant::now() + DEBOUNCE;
        let gap_ends = self.put_back_at.map(|at| at + REAPPLY_GAP);
        self.look_at = self.look_at.or(gap_ends.max(Some(earliest)));
    }

    /// Looks at what was announced to have changed, and puts back what did.
    async fn look(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        self.look_at = None;
        let underlay = self.underlay.clone();
        let unread = match self.observe(touched).await {
            // Comes last: the rest was read, and need not wait for `nft`.
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
        // Our own changes are announced too, but leave nothing to do.
        if changes > 0 && underlay == self.underlay {
            self.put_back_at = Some(Instant::now());
            self.report_put_back(changes);
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
            // What cannot be read counts as missing: no device is made without.
            self.state.filter = None;
            self.state.filter = self.kernel.observe_filter().await?;
        }

        Ok(())
    }

    async fn observe_underlay(&mut self) {
        let destinations = Destinations::of(&self.fabric, &self.options.node);
        self.underlay = self.kernel.observe_underlay(&destinations).await;
    }

    /// Takes the desired state as it is now; an invalid one changes nothing.
    async fn reload(&mut self) {
        let previous = self.fabric.clone();
        let read = self.source.read().map_err(Error::from);
        let checked = read.and_then(|reading| {
            self.fabric = reading.fabric;
            self.plan(&self.liveness.view())?;
            Ok((reading.refused, reading.waiting))
        });
        let (refused, waiting) = match checked {
            Ok(left_out) => left_out,
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

/// Returns the first desired state in which this node can take part.
async fn first(source: &mut Source, options: &Options, status: &Shared) -> Result<Reading, Error> {
    let mut told = String::new();
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
        if told != error {
            tracing::info!(error, "waiting until this node can take part");
            status.update(|status| status.error = Some(error.clone()));
            told = error;
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

/// Completes when there may be an answer; never without a socket.
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
