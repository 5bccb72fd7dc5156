//! A control plane without nodes: etcd, kube-apiserver and kube-controller-manager on 127.0.0.1.
//!
//! It serves tests that need the behaviour of a real API server, but no pods: field ownership,
//! finalizers, garbage collection, certificate signing, admission, RBAC, expired watches. It starts
//! in about three seconds. All its processes end with the process that has started it:
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use kubernetes_lab::control_plane::{ControlPlane, Options, isolate};
//! use kubernetes_lab::place::Artifacts;
//!
//! isolate()?; // In `main`, before other threads start.
//! let artifacts = Artifacts::new("/var/cache/liqo-lab/v1.35.4-0123456789ab");
//! let control_plane = ControlPlane::start(Options::new(artifacts)).await?;
//! let version = control_plane.client().await?.apiserver_version().await?;
//! # Ok(())
//! # }
//! ```

mod arguments;
mod audit;
mod clients;
mod components;
mod history;
mod install;
mod isolation;
mod process;

use crate::pki::{Pki, Subject};
use crate::place::Artifacts;
use anyhow::{Context as _, Result};
use arguments::Paths;
pub use audit::{AuditEvent, AuditLog, AuditUser, ObjectRef, ResponseStatus};
pub use components::Component;
pub use history::Snapshot;
pub use isolation::isolate;
use process::Process;
use std::fs;
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The name of the cluster in certificates and kubeconfigs.
const NAME: &str = "control-plane";

/// The names of files and folders in [`ControlPlane::folder`].
const DATA: &str = "etcd";
const AUDIT_LOG: &str = "audit.log";
const AUDIT_POLICY: &str = "audit-policy.json";

/// The ports of etcd and of the API server. Linux takes the source ports of connections from 32768
/// on (`net.ipv4.ip_local_port_range`).
const PORTS: Range<u16> = 20_000..30_000;

/// The lifetime of all certificates.
const CERTIFICATES: Duration = Duration::from_secs(24 * 60 * 60);

/// The settings of a control plane.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder with the programs etcd, etcdctl, kube-apiserver, kube-controller-manager and helm.
    pub artifacts: Artifacts,
    /// The folder in which the control plane creates its own folder. The default is `/dev/shm`,
    /// since etcd is fastest in memory. etcd needs 200 MB.
    pub folder: PathBuf,
    /// Whether the API server caches objects and their recent changes, as it does by default.
    /// Without the cache, it reads all resourceVersions from etcd.
    pub watch_cache: bool,
    /// The lifetime of Events, in whole seconds.
    pub event_ttl: Duration,
    /// Whether the API server writes the audit log, which costs CPU time.
    pub audit: bool,
    /// Whether kube-controller-manager runs. It collects garbage, deletes the content of
    /// namespaces, and signs certificates.
    pub controller_manager: bool,
    /// The lifetime of the certificates that kube-controller-manager signs, which it dates back by
    /// five minutes.
    pub signing_duration: Duration,
}

impl Options {
    /// Returns the default settings: all components, the audit log, and a lifetime of Events of one
    /// hour.
    pub fn new(artifacts: Artifacts) -> Self {
        Self {
            artifacts,
            folder: isolation::FOLDER.into(),
            watch_cache: true,
            event_ttl: Duration::from_secs(60 * 60),
            audit: true,
            controller_manager: true,
            signing_duration: CERTIFICATES,
        }
    }
}

/// A running control plane. Dropping the value ends the processes, and removes their folder.
///
/// Threads may share a control plane. Each test creates its own namespaces. A test that restarts or
/// pauses a component, or restores a snapshot, must not run at the same time as others.
#[derive(Debug)]
pub struct ControlPlane {
    options: Options,
    folder: PathBuf,
    pki: Pki,
    /// The URL of etcd.
    etcd: String,
    /// The URL of the API server.
    server: String,
    /// The processes in the order of [`Component`].
    processes: Mutex<[Process; 3]>,
    /// The number of client certificates.
    clients: AtomicU32,
    /// The number of snapshots.
    snapshots: AtomicU32,
}

impl ControlPlane {
    /// Starts a control plane, and waits until the API server is ready. The controllers start in
    /// the background.
    ///
    /// # Errors
    ///
    /// Returns an error with the end of the log if a component does not start.
    pub async fn start(options: Options) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("liqo-{NAME}-{}-{count}", std::process::id());
        let folder = options.folder.join(name);
        let pki = Pki::new(folder.join("pki"), CERTIFICATES);
        let [etcd, port] = free_ports()?;
        let (etcd, server) = (
            format!("http://127.0.0.1:{etcd}"),
            format!("https://127.0.0.1:{port}"),
        );
        fs::create_dir(&folder)
            .with_context(|| format!("failed to create {}", folder.display()))?;
        // From here on, an error removes the folder and the processes.
        let processes = processes(&options, &folder, &etcd, port);
        let control_plane = Self {
            options,
            folder,
            pki,
            etcd,
            server,
            processes: Mutex::new(processes),
            clients: AtomicU32::new(0),
            snapshots: AtomicU32::new(0),
        };
        control_plane.write_files()?;

        control_plane.start_component(Component::Etcd)?;
        control_plane.start_component(Component::ApiServer)?;
        control_plane.until_ready().await?;
        if control_plane.options.controller_manager {
            control_plane.start_component(Component::ControllerManager)?;
        }

        Ok(control_plane)
    }

    /// Returns the settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the folder of programs.
    pub fn artifacts(&self) -> &Artifacts {
        &self.options.artifacts
    }

    /// Returns the folder of the control plane's files. The logs of its components are called
    /// `NAME.log`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the URL of the API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.pki.folder().join("admin.conf")
    }

    /// Returns the audit log.
    pub fn audit_log(&self) -> AuditLog {
        AuditLog::new(self.folder.join(AUDIT_LOG))
    }

    /// Writes the certificates, the kubeconfigs and the audit policy.
    fn write_files(&self) -> Result<()> {
        self.pki.authorities(NAME)?;
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"];
        self.pki.server(
            "apiserver",
            "kube-apiserver",
            names.map(str::to_owned).into(),
        )?;
        for (name, user, group) in [
            ("admin", "admin", Some("system:masters")),
            ("controller-manager", "system:kube-controller-manager", None),
        ] {
            self.pki.client("ca", name, Subject { user, group })?;
            let text = self.pki.kubeconfig(NAME, &self.server, name)?;
            let path = self.pki.folder().join(format!("{name}.conf"));
            fs::write(&path, text)
                .with_context(|| format!("failed to write {}", path.display()))?;
        }

        fs::write(self.folder.join(AUDIT_POLICY), audit::POLICY)
            .context("failed to write the audit policy")
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for process in self.processes().iter_mut().rev() {
            if let Err(error) = process.stop() {
                eprintln!("error: {error:#}");
            }
        }
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("error: failed to remove {}: {error}", self.folder.display());
        }
    }
}

/// Describes the processes in the order of [`Component`].
fn processes(options: &Options, folder: &Path, etcd: &str, port: u16) -> [Process; 3] {
    let paths = Paths {
        pki: &folder.join("pki"),
        data: &folder.join(DATA),
        audit_policy: &folder.join(AUDIT_POLICY),
        audit_log: &folder.join(AUDIT_LOG),
        etcd,
        port,
    };
    let process = |name: &'static str, args| {
        let log = folder.join(format!("{name}.log"));
        Process::new(name, options.artifacts.program(name), args, log)
    };

    [
        process("etcd", arguments::etcd(paths)),
        process("kube-apiserver", arguments::api_server(options, paths)),
        process(
            "kube-controller-manager",
            arguments::controller_manager(options, paths),
        ),
    ]
}

/// Returns two different free TCP ports of 127.0.0.1, which no outgoing connection takes before their
/// use. Another process that listens may, unless the caller is in its own network namespace. See
/// [`isolate`].
fn free_ports() -> Result<[u16; 2]> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (first, end) = (PORTS.start, PORTS.end);
    let mut free = (0..end - first).filter_map(|_| {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) % u32::from(end - first);
        let port = first + u16::try_from(offset).ok()?;
        TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
    });
    let ports = free.next().zip(free.next());

    let (first, second) = ports.context("no free port on 127.0.0.1")?;
    Ok([first, second])
}
