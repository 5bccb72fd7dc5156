//! The seed is a folder of containerd with the unpacked images of all nodes.
//!
//! A temporary containerd creates the seed once, when the laboratory is built. Nodes get hard links
//! to the seed, so that a start of a node neither unpacks nor copies images.

use crate::host;
use crate::place::Artifacts;
use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The files in containerd's folder that containerd modifies. All other files are immutable.
pub(crate) const DATABASES: [&str; 2] = [
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
];

/// The time within which containerd must respond after its start.
const START: Duration = Duration::from_secs(20);

/// Creates the seed of `artifacts` from its image archives.
///
/// # Errors
///
/// Returns an error with the log of containerd.
pub(crate) fn make(artifacts: &Artifacts) -> Result<()> {
    let seed = artifacts.seed();
    let partial = seed.with_extension("partial");
    let state = seed.with_extension("state");
    // An interrupted run may have left the folders. The caller holds the lock of the build, so no
    // other process uses them.
    for folder in [&partial, &state] {
        host::run("rm", &[OsStr::new("-rf"), folder.as_os_str()])?;
    }
    for folder in [&partial, &state] {
        fs::create_dir_all(folder)
            .with_context(|| format!("failed to create {}", folder.display()))?;
    }

    let made = Containerd::start(artifacts, &partial, &state).and_then(|containerd| {
        let mut archives: Vec<PathBuf> = fs::read_dir(artifacts.images())
            .context("the folder of images is missing")?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        archives.sort();
        for archive in &archives {
            containerd.import(artifacts, archive)?;
        }
        containerd.stop()
    });
    // The folder is also removed after a failure. The mounts have ended with containerd's mount
    // namespace.
    host::run("rm", &[OsStr::new("-rf"), state.as_os_str()])?;
    if let Err(error) = made {
        host::run("rm", &[OsStr::new("-rf"), partial.as_os_str()])?;
        return Err(error).context("failed to unpack the nodes' images");
    }
    host::run("rm", &[OsStr::new("-rf"), seed.as_os_str()])?;

    fs::rename(&partial, &seed).context("failed to rename the folder of unpacked images")
}

/// A containerd in its own mount namespace. Dropping this value ends the process.
struct Containerd {
    child: Child,
    socket: PathBuf,
}

impl Containerd {
    fn start(artifacts: &Artifacts, root: &Path, state: &Path) -> Result<Self> {
        let socket = state.join("containerd.sock");
        let config = state.join("config.toml");
        // This containerd only unpacks images, so it needs no shim, no network and no CRI.
        let text = "version = 3\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.cri.v1.images\", \"io.containerd.cri.v1.runtime\"]\n";
        fs::write(&config, text).context("failed to write containerd's configuration")?;
        let log = File::create(state.join("log")).context("failed to create containerd's log")?;
        let child = Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .arg(artifacts.program("containerd"))
            .args([OsStr::new("--config"), config.as_os_str()])
            .args([OsStr::new("--root"), root.as_os_str()])
            .args([OsStr::new("--state"), state.as_os_str()])
            .args([OsStr::new("--address"), socket.as_os_str()])
            .args(["--log-level", "warn"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("failed to start containerd")?;
        let mut containerd = Self { child, socket };
        let deadline = Instant::now() + START;
        while containerd
            .ctr(artifacts)
            .arg("version")
            .output()?
            .status
            .code()
            != Some(0)
        {
            let ended = containerd
                .child
                .try_wait()
                .context("failed to get the status of containerd")?;
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(state.join("log")).unwrap_or_default();
                bail!("containerd does not start: {}", log.trim());
            }
            std::thread::sleep(Duration::from_millis(50));
        }

        Ok(containerd)
    }

    fn ctr(&self, artifacts: &Artifacts) -> Command {
        let mut command = Command::new(artifacts.program("ctr"));
        command
            .args([OsStr::new("--address"), self.socket.as_os_str()])
            .args(["--namespace", "k8s.io"]);
        command
    }

    fn import(&self, artifacts: &Artifacts, archive: &Path) -> Result<()> {
        let mut command = self.ctr(artifacts);
        command.args(["images", "import", "--local"]).arg(archive);
        host::checked(&mut command, "").map(drop)
    }

    fn stop(mut self) -> Result<()> {
        let pid = i32::try_from(self.child.id()).context("a process id fits")?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).context("failed to end containerd")?;
        self.child.wait().context("failed to wait for containerd")?;

        Ok(())
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
