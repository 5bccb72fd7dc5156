//! The root directory of a node, with its files on the machine and its mounts.

use super::Plan;
use crate::cgroup::Layout;
use crate::host;
use crate::place::Artifacts;
use anyhow::{Context as _, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

/// The `PATH` of all processes in a node.
pub(super) const PATH: &str =
    "/opt/lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Directories that a node's root directory contains.
const DIRECTORIES: [&str; 22] = [
    "dev",
    "etc/cni/net.d",
    "etc/containerd",
    "etc/iproute2",
    "etc/kubernetes",
    "mnt",
    "opt/cni/bin",
    "opt/lab/bin",
    "opt/local-path-provisioner",
    "proc",
    "root",
    "run",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var/lib/etcd",
    "var/lib/kubelet",
    "var/lib/lab",
    "var/log/containers",
    "var/log/lab",
    "var/log/pods",
];

/// Files in the machine's `/etc` that programs in `/usr` need.
const SHARED: [&str; 8] = [
    "alternatives",
    "group",
    "iproute2",
    "ld.so.cache",
    "nsswitch.conf",
    "passwd",
    "protocols",
    "services",
];

/// Creates the root directory of a node on the machine, or the missing parts of it.
///
/// # Errors
///
/// Returns an error that names the file that could not be created.
pub(super) fn prepare(plan: &Plan) -> Result<()> {
    let root = plan.root();
    for directory in DIRECTORIES {
        let path = root.join(directory);
        fs::create_dir_all(&path)
            .with_context(|| format!("failed to create {}", path.display()))?;
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777))
        .context("failed to open a node's /tmp to all")?;
    for name in ["bin", "sbin", "lib", "lib64"] {
        link(&format!("usr/{name}"), &root.join(name))?;
    }
    link("../run", &root.join("var/run"))?;
    for name in SHARED {
        let from = Path::new("/etc").join(name);
        if from.exists() {
            let to = root.join("etc");
            host::run("cp", &["-a".as_ref(), from.as_os_str(), to.as_os_str()])?;
        }
    }
    seed(plan)?;

    let node = &plan.node;
    let hosts: String = plan
        .nodes
        .iter()
        .map(|node| format!("{} {}\n", node.ip, node.name))
        .collect();
    let id = Sha256::digest(node.name.as_bytes());
    let id: String = id
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    for (file, text) in [
        ("etc/hostname", format!("{}\n", node.name)),
        (
            "etc/hosts",
            format!("127.0.0.1 localhost\n::1 localhost\n{hosts}"),
        ),
        // The node reaches no name server. Pods use the DNS of the cluster.
        ("etc/resolv.conf", String::new()),
        ("etc/machine-id", format!("{id}\n")),
    ] {
        fs::write(root.join(file), text).with_context(|| format!("failed to write {file}"))?;
    }

    Ok(())
}

/// Provides containerd with the images of all nodes, by hard links to the seed. Layers and blobs
/// are immutable, so they can be linked. The databases are copied, since containerd modifies them.
fn seed(plan: &Plan) -> Result<()> {
    let to = plan.root().join("var/lib/containerd");
    if to.exists() {
        return Ok(());
    }
    let seed = Artifacts::new(&plan.artifacts).seed();
    if !seed.exists() {
        return fs::create_dir(&to).context("failed to create containerd's folder");
    }

    // The folder is renamed once it is complete, since an interrupt may stop the copy.
    let partial = to.with_extension("partial");
    host::run("rm", &["-rf".as_ref(), partial.as_os_str()])?;
    let [from, partial_] = [seed.as_os_str(), partial.as_os_str()];
    // The command fails if seed and node are on different file systems, which hard links do not
    // support.
    if host::run("cp", &["-al".as_ref(), from, partial_]).is_ok() {
        for database in crate::seed::DATABASES {
            let path = partial.join(database);
            fs::remove_file(&path).with_context(|| format!("the seed has no {database}"))?;
            fs::copy(seed.join(database), &path)
                .with_context(|| format!("failed to copy {database}"))?;
        }
    } else {
        host::run("rm", &["-rf".as_ref(), partial_])?;
        host::run("cp", &["-a".as_ref(), from, partial_])?;
    }

    fs::rename(&partial, &to).context("failed to rename containerd's folder")
}

fn link(target: &str, path: &Path) -> Result<()> {
    if path.is_symlink() {
        return Ok(());
    }
    symlink(target, path).with_context(|| format!("failed to link {}", path.display()))
}

/// Makes the prepared root directory the root of process 1, by `pivot_root`.
///
/// # Errors
///
/// Returns an error that names the mount that failed.
pub(super) fn enter(plan: &Plan, layout: &Layout) -> Result<()> {
    let root = plan.root();
    let artifacts = Artifacts::new(&plan.artifacts);
    change(Path::new("/"), MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
    bind(&root, &root, MsFlags::MS_BIND)?;
    bind_read_only(Path::new("/usr"), &root.join("usr"))?;
    bind(
        Path::new("/dev"),
        &root.join("dev"),
        MsFlags::MS_BIND | MsFlags::MS_REC,
    )?;
    bind_read_only(&artifacts.programs(), &root.join("opt/lab/bin"))?;
    bind_read_only(&artifacts.plugins(), &root.join("opt/cni/bin"))?;
    attach("proc", &root.join("proc"), None)?;
    attach("sysfs", &root.join("sys"), None)?;
    attach("tmpfs", &root.join("run"), Some("mode=755"))?;
    layout.mount(&root)?;
    attach("bpf", &root.join("sys/fs/bpf"), None)?;
    // Some kernels have no tracefs.
    let _ = attach("tracefs", &root.join("sys/kernel/tracing"), None);

    chdir(&root).context("failed to enter the root directory")?;
    fs::create_dir("run/old").context("failed to create a mount point for the old root")?;
    pivot_root(".", "run/old").context("failed to change the root")?;
    umount2("/run/old", MntFlags::MNT_DETACH).context("failed to leave the old root")?;
    fs::remove_dir("/run/old").context("failed to remove the mount point of the old root")?;
    // Shared mounts allow pods to propagate mounts to the node and to other pods.
    change(Path::new("/"), MsFlags::MS_REC | MsFlags::MS_SHARED)
}

fn bind(from: &Path, to: &Path, flags: MsFlags) -> Result<()> {
    mount(Some(from), to, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("failed to bind {} to {}", from.display(), to.display()))
}

fn bind_read_only(from: &Path, to: &Path) -> Result<()> {
    bind(from, to, MsFlags::MS_BIND)?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    bind(from, to, flags)
}

fn attach(kind: &str, to: &Path, options: Option<&str>) -> Result<()> {
    mount(Some(kind), to, Some(kind), MsFlags::empty(), options)
        .with_context(|| format!("failed to mount {}", to.display()))
}

fn change(path: &Path, flags: MsFlags) -> Result<()> {
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("failed to change the propagation of {}", path.display()))
}
