//! The command `node-init`, which is process 1 of a node.

use super::components::{self, Component, Condition};
use super::control::{self, Reply, Request};
use super::supervise::{Action, Supervisor};
use super::{Plan, config, root};
use crate::cgroup::Layout;
use crate::host;
use anyhow::{Context as _, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, sethostname};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time-out for connecting to a server on this node.
const CONNECT: Duration = Duration::from_millis(20);

/// The time-out for a client to send its request.
const REQUEST: Duration = Duration::from_millis(200);

/// The time within which all components must end at a shutdown.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Runs the node with the folder `folder` until SIGTERM.
///
/// # Errors
///
/// Returns an error if the node cannot be set up.
pub fn run(folder: &Path) -> Result<()> {
    let plan = fs::read_to_string(folder.join("plan.json")).context("failed to read the plan")?;
    let plan: Plan = serde_json::from_str(&plan).context("the plan is damaged")?;
    let signals = signals()?;
    // Both calls use paths of the root directory of the machine, which becomes inaccessible below.
    let layout = Layout::detect()?;
    let socket = listen(&plan.socket)?;

    sethostname(&plan.node.name).context("failed to set the host name")?;
    root::enter(&plan, &layout)?;
    layout.leave_root_group()?;
    set_up(&plan)?;

    Init {
        supervisor: Supervisor::new(components::all(&plan), Instant::now()),
        signals,
        socket,
    }
    .run()
}

/// Blocks signals, and returns a file descriptor from which the signals are read.
fn signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
        set.add(signal);
    }
    set.thread_block().context("failed to block signals")?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context("failed to receive signals")
}

fn listen(path: &Path) -> Result<UnixListener> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).context("failed to make the folder of sockets")?;
    }
    // An earlier run of this node may have left its socket.
    let _ = fs::remove_file(path);
    let socket = UnixListener::bind(path)
        .with_context(|| format!("failed to listen on {}", path.display()))?;
    socket
        .set_nonblocking(true)
        .context("failed to prepare the control socket")?;

    Ok(socket)
}

/// Writes the configuration files, kernel settings, routes and nftables rules of the node.
fn set_up(plan: &Plan) -> Result<()> {
    for (path, text) in config::files(plan) {
        fs::write(path, text).with_context(|| format!("failed to write {path}"))?;
    }
    for (key, value) in config::SETTINGS {
        let path = Path::new("/proc/sys/net").join(key);
        // Some kernels lack a setting, for example without br_netfilter.
        if path.exists() {
            fs::write(&path, value).with_context(|| format!("failed to set {key}"))?;
        }
    }
    host::ip(None, &config::routes(plan))?;
    let rules = config::masquerade(plan);
    host::checked(Command::new("nft").args(["-f", "-"]), &rules).map(drop)
}

struct Init {
    supervisor: Supervisor,
    signals: SignalFd,
    socket: UnixListener,
}

impl Init {
    fn run(mut self) -> Result<()> {
        loop {
            let now = Instant::now();
            for action in self.supervisor.poll(now, holds) {
                self.act(&action);
            }
            let wait = self
                .supervisor
                .poll_timeout()
                .map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
            self.wait(wait)?;
            while let Ok(Some(signal)) = self.signals.read_signal() {
                if signal.ssi_signo != Signal::SIGCHLD as u32 {
                    self.shut_down();
                    return Ok(());
                }
            }
            self.reap();
            while let Ok((stream, _)) = self.socket.accept() {
                self.serve(stream);
            }
        }
    }

    /// Waits for a signal or a request, for at most `limit`.
    fn wait(&self, limit: Option<Duration>) -> Result<()> {
        let limit = match limit {
            Some(limit) => PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX),
            None => PollTimeout::NONE,
        };
        let mut sources = [
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut sources, limit) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("failed to wait"),
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Start(index) => {
                let Some(component) = self.supervisor.component(*index) else {
                    return;
                };
                let pid = match start(component) {
                    Ok(pid) => Some(pid),
                    Err(error) => {
                        println!("{error:#}");
                        None
                    }
                };
                self.supervisor.handle_start(*index, pid, Instant::now());
            }
            Action::Signal(pid, signal) => {
                if let Ok(signal) = Signal::try_from(*signal) {
                    // The process may have ended already.
                    let _ = kill(Pid::from_raw(*pid), signal);
                }
            }
        }
    }

    /// Reaps ended components and orphaned processes.
    fn reap(&mut self) {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(status) => status,
            };
            let name = status
                .pid()
                .and_then(|pid| self.supervisor.handle_end(pid.as_raw(), Instant::now()));
            if let Some(name) = name {
                println!("{name} ended: {status:?}");
            }
        }
    }

    fn serve(&mut self, stream: UnixStream) {
        let reply = match read(&stream) {
            Ok(request) => {
                let (reply, action) = self.supervisor.handle_request(&request, Instant::now());
                if let Some(action) = action {
                    self.act(&action);
                }
                reply
            }
            Err(error) => Reply::Error(format!("{error:#}")),
        };
        let Ok(mut line) = serde_json::to_string(&reply) else {
            return;
        };
        line.push('\n');
        // The client may have closed the connection already.
        let _ = (&stream).write_all(line.as_bytes());
    }

    /// Stops all components. When process 1 ends, the kernel kills the processes of pods.
    fn shut_down(&mut self) {
        let deadline = Instant::now() + SHUTDOWN;
        for pid in self.supervisor.running() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        while !self.supervisor.running().is_empty() && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.wait(Some(left)).is_err() {
                return;
            }
            while let Ok(Some(_)) = self.signals.read_signal() {}
            self.reap();
        }
    }
}

fn read(stream: &UnixStream) -> Result<Request> {
    stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_read_timeout(Some(REQUEST)))
        .context("failed to prepare a connection")?;
    let mut line = String::new();
    BufReader::new(stream.take(control::LINE_MAX))
        .read_line(&mut line)
        .context("failed to read a request")?;
    serde_json::from_str(&line).context("not a request")
}

fn start(component: &Component) -> Result<i32> {
    let name = component.name;
    let path = format!("/var/log/lab/{name}.log");
    let log = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("failed to open {path}"))?;
    let errors = log.try_clone().context("failed to share a log")?;
    let child = Command::new(component.program)
        .args(&component.args)
        .env("HOME", "/root")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .with_context(|| format!("failed to start {name}"))?;

    i32::try_from(child.id()).context("a process id fits")
}

fn holds(condition: &Condition) -> bool {
    match condition {
        Condition::Path(path) => path.exists(),
        Condition::Listens(addr) => TcpStream::connect_timeout(addr, CONNECT).is_ok(),
    }
}
