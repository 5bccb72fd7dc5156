//! Starts and stops a gateway.

use super::connections::Reporter;
use super::control::{Control, Parts};
use super::datapath_setup::{KernelParts, Plan};
use super::desired::{Desired, Error as DesiredError, KeyStore, Loader};
use super::lanes::{self, Ended, Resources};
use super::state::{Config, Identity, State};
use super::tap::Tap;
use super::udp::UdpPort;
use super::{keys, metrics, privilege};
use crate::cipher;
use crate::engine::{Clock, Engine, LaneId, Local};
use anyhow::{Context as _, anyhow};
use control_source::{Metrics, Origin};
use ebpf::Trace;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use telemetry::{http, status, stop};
use tokio::sync::oneshot;

/// The validated arguments of `gateway run`.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Source of the desired state.
    pub(crate) origin: Origin,
    /// Source of the private keys.
    pub(crate) keys: KeyStore,
    /// Name of this replica in the EndpointSlice.
    pub(crate) replica: String,
    /// Path of the status socket.
    pub(crate) socket: PathBuf,
    /// UDP port of WireGuard.
    pub(crate) listen_port: u16,
    /// Implementation of ChaCha20-Poly1305.
    pub(crate) cipher: cipher::Choice,
    /// Address of the HTTP server for metrics and health checks; `None` for no server.
    pub(crate) http: Option<SocketAddr>,
    /// Maximum time to wait at a stop until peers and nodes use other replicas.
    pub(crate) leave_timeout: Duration,
    /// Interval of liveness probes on a session without traffic.
    pub(crate) idle_probe_interval: Duration,
    /// Configuration of namespace, devices and eBPF programs.
    pub(crate) plan: Plan,
}

/// Runs a gateway until SIGTERM or SIGINT.
///
/// # Errors
///
/// Returns the first error of the start, or the error that ends a running gateway.
pub(crate) fn run(options: Options) -> anyhow::Result<()> {
    privilege::check()?;
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // A thread that started before `drop_set_up` keeps its capabilities. Idle threads therefore
        // end at once.
        .thread_keep_alive(Duration::ZERO)
        .build()
        .context("failed to start the runtime")?;
    let mut registry = Registry::default();
    let source_metrics = metrics::register_source(&mut registry);
    let first = runtime.block_on(async {
        tokio::select! {
            first = first_desired(&options, &source_metrics) => first.map(Some),
            signal = stop::requested() => {
                signal.context("failed to listen for signals")?;
                Ok(None)
            }
        }
    })?;
    let Some((mut loader, reporter, served)) = first else {
        return Ok(()); // A signal arrived before the first valid desired state.
    };
    let mut replicas = served.planned.fabric.replicas.iter();
    if !replicas.any(|replica| replica.name == options.replica) {
        tracing::warn!(
            replica = options.replica,
            "no EndpointSlice names this replica yet: nodes will not use it"
        );
    }
    // `bind` fails if another process runs with this instance name. It must precede all changes of
    // devices and programs, which the other process may use.
    let socket = runtime.block_on(status::Server::bind(&options.socket))?;
    let loops = usize::from(options.plan.lanes) * usize::from(options.plan.workers);
    let listen = UdpPort::open_all(options.listen_port, loops, None)?;
    let KernelParts {
        namespace,
        taps,
        datapath,
        trace,
        steering,
        socket_steering,
    } = options.plan.set_up(&served.planned.tables())?;
    privilege::drop_set_up()?;
    loader
        .check_readable(&served)
        .context("a running gateway has no CAP_DAC_OVERRIDE: make these files readable for it")?;
    // `follow` may start a thread, which inherits the capabilities. It must therefore follow
    // `drop_set_up`.
    loader.follow()?;
    trace.map(log_drops).transpose()?;

    let datapath = Arc::new(Mutex::new(datapath));
    let identity = Identity {
        instance: options.plan.instance.clone(),
        version: env!("CARGO_PKG_VERSION"),
        cluster_id: served.planned.fabric.cluster_id.clone(),
        replica: options.replica.clone(),
        namespace: namespace.name(),
        listen_port: options.listen_port,
        lanes: options.plan.lanes,
        udp_super_packets: taps.iter().all(Tap::uso),
        cipher: cipher::select(options.cipher),
    };
    let resources = Resources {
        workers: options.plan.workers.into(),
        taps,
        listen,
        datapath: Arc::clone(&datapath),
        steering,
        socket_steering,
        settings: options.plan.settings,
    };
    let idle_probe_interval = options.idle_probe_interval;
    let (lanes, notices, ended) = lanes::start(resources, |lane| {
        engine(&identity, lane, idle_probe_interval)
    })?;

    let config = Config::applied(loader.source().to_string(), &served);
    let cipher = identity.cipher.name();
    let state = Arc::new(State::new(
        identity,
        lanes.clone(),
        Arc::clone(&datapath),
        config,
    ));
    tracing::info!(
        cluster = served.planned.fabric.cluster_id,
        replica = options.replica,
        peers = served.planned.peers.len(),
        port = options.listen_port,
        lanes = options.plan.lanes,
        cipher,
        "gateway started"
    );
    let control = Control::start(Parts {
        loader,
        reporter,
        lanes,
        notices,
        datapath,
        state: Arc::clone(&state),
        replica: options.replica.clone(),
        served,
    })?;

    let end = runtime.block_on(serve(control, ended, state, socket, registry, &options));
    // `shutdown_background` does not wait for DNS lookups, which may take several seconds.
    runtime.shutdown_background();
    end
}

/// Returns the first valid desired state.
///
/// An invalid file is an error. With an API server, waits until the objects are valid.
async fn first_desired(
    options: &Options,
    metrics: &Metrics,
) -> anyhow::Result<(Loader, Option<Reporter>, Desired)> {
    let keys = options.keys.clone();
    let (mut loader, reporter) =
        Loader::open(&options.origin, keys, &options.replica, metrics).await?;
    let mut logged = String::new();
    loop {
        match loader.load(None) {
            Ok(Some(served)) => return Ok((loader, reporter, served)),
            Ok(None) => {}
            Err(DesiredError::Source(error @ control_source::Error::Cluster(_))) => {
                let error = error.to_string();
                if logged != error {
                    tracing::info!(error, "waiting for a valid desired state");
                    logged = error;
                }
            }
            Err(error) => return Err(error.into()),
        }
        loader.changed().await;
    }
}

/// Raises the soft limit of open files to the hard limit.
///
/// The gateway needs a socket for each session in which it has the client role.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "failed to raise the limit of open files: sessions with many peers may fail");
    }
}

async fn serve(
    mut control: Control,
    mut ended: Ended,
    state: Arc<State>,
    socket: status::Server,
    mut registry: Registry,
    options: &Options,
) -> anyhow::Result<()> {
    let document = Arc::clone(&state);
    let status = socket.serve(move || document.document());
    let http = async {
        match options.http {
            Some(address) => {
                metrics::register(&mut registry, Arc::clone(&state));
                http::serve(address, Arc::new(registry), Arc::clone(&state)).await
            }
            None => std::future::pending().await,
        }
    };
    let watched = async {
        tokio::select! {
            signal = stop::requested() => signal.context("failed to listen for signals"),
            ended = &mut ended => Err(failure(ended)),
            served = http => Err(served.err().map_or_else(|| anyhow!("the HTTP server ended"), Into::into)),
            () = control.run() => Err(anyhow!("the packet loop ended")),
        }
    };

    tokio::pin!(status);
    let signal = tokio::select! {
        signal = watched => signal?,
        () = &mut status => return Err(anyhow!("the status socket ended")),
    };
    tracing::info!(signal, "leaving");
    // A second signal stops the gateway without waiting for peers and nodes.
    tokio::select! {
        () = control.leave(options.leave_timeout) => {}
        _ = stop::requested() => return Ok(()),
        () = &mut status => {}
    }
    ended
        .await
        .map_err(|_| anyhow!("the packet loop ended in a panic"))?
}

/// Starts a thread that logs each packet that the eBPF programs drop.
fn log_drops(mut trace: Trace) -> anyhow::Result<()> {
    let log = move || {
        loop {
            let mut ready = [PollFd::new(trace.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) => trace.flush(),
                Err(Errno::EINTR) => {}
                Err(error) => {
                    return tracing::error!(%error, "dropped packets are no longer logged");
                }
            }
        }
    };
    thread::Builder::new()
        .name("drops".into())
        .spawn(log)
        .context("failed to start logging dropped packets")?;

    Ok(())
}

fn engine(
    identity: &Identity,
    lane: LaneId,
    idle_probe_interval: Duration,
) -> anyhow::Result<Engine> {
    let local = Local {
        cluster_id: identity.cluster_id.clone(),
        replica: identity.replica.clone(),
        lane,
        version: identity.version.to_owned(),
        idle_probe_interval,
    };
    let mut seed = [0; 32];
    keys::fill_random(&mut seed).context("failed to read /dev/urandom")?;
    let clock = Clock {
        instant: Instant::now(),
        unix: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .context("the system clock is before 1970: set the clock")?,
    };

    Ok(Engine::new(local, seed, clock))
}

fn failure(ended: Result<anyhow::Result<()>, oneshot::error::RecvError>) -> anyhow::Error {
    match ended {
        Ok(Err(error)) => error,
        Ok(Ok(())) => anyhow!("the packet loop ended"),
        Err(_) => anyhow!("the packet loop ended in a panic"),
    }
}
