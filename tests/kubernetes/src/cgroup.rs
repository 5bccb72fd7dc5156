//! Control groups (cgroups) of nodes. Each node has a cgroup namespace of its own.
//!
//! The command `node-start` joins the cgroup `/liqo-lab/NODE` before it creates the cgroup
//! namespace of the node. Inside the namespace, this cgroup is the root, so kubelet and runc need
//! no special setting.

use anyhow::{Context as _, Result};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The mount point of the cgroup file systems, on the machine and in each node.
const MOUNT_POINT: &str = "/sys/fs/cgroup";

/// The cgroup that contains the cgroups of all nodes.
const PARENT: &str = "liqo-lab";

/// In cgroup v2, the cgroup of a node's processes outside of pods. A cgroup that contains processes
/// cannot enable controllers for its children ("no internal processes" in `man 7 cgroups`).
const LEAF: &str = "init";

/// The resource usage of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Anonymous memory of the node's processes in bytes, without the page cache.
    pub(crate) resident_bytes: u64,
    /// CPU time since the start of the node.
    pub(crate) processor: Duration,
}

/// The cgroup version of this machine, and the hierarchies of cgroup v1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Cgroup v1 has a hierarchy for each set of controllers.
    V1(Vec<Tree>),
    /// Cgroup v2 has a single hierarchy.
    V2,
}

/// A hierarchy of cgroup v1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// The mount point on the machine.
    pub(crate) path: PathBuf,
    /// The mount options of the hierarchy, which are its controllers or `none,name=NAME`.
    pub(crate) options: String,
}

impl Layout {
    /// Detects the cgroup version and the cgroup v1 hierarchies of this machine.
    ///
    /// # Errors
    ///
    /// Returns an error if no cgroup file system is mounted.
    pub(crate) fn detect() -> Result<Self> {
        let top = statfs(MOUNT_POINT)
            .with_context(|| format!("failed to read the type of {MOUNT_POINT}"))?;
        if top.filesystem_type() == CGROUP2_SUPER_MAGIC {
            return Ok(Self::V2);
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").context("failed to read mounts")?;
        let trees = parse(&mounts);
        anyhow::ensure!(
            !trees.is_empty(),
            "this machine has no control groups below {MOUNT_POINT}: mount them, as systemd does"
        );

        Ok(Self::V1(trees))
    }

    /// Creates the cgroup of `node`, and moves this process into it.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses, for example without root.
    pub(crate) fn join(&self, node: &str) -> Result<()> {
        let me = std::process::id().to_string();
        for folder in self.folders() {
            let parent = folder.join(PARENT);
            let group = parent.join(node);
            match self {
                Self::V1(_) => {
                    fs::create_dir_all(&group)
                        .with_context(|| format!("failed to create {}", group.display()))?;
                    inherit_cpuset(&folder, &parent)?;
                    inherit_cpuset(&folder, &group)?;
                }
                Self::V2 => {
                    fs::create_dir_all(&parent)
                        .with_context(|| format!("failed to create {}", parent.display()))?;
                    delegate(&folder)?;
                    delegate(&parent)?;
                    fs::create_dir_all(&group)
                        .with_context(|| format!("failed to create {}", group.display()))?;
                }
            }
            fs::write(group.join("cgroup.procs"), &me)
                .with_context(|| format!("failed to join {}", group.display()))?;
        }

        Ok(())
    }

    /// Mounts the hierarchies in a node, whose root directory is `root`.
    ///
    /// # Errors
    ///
    /// Returns an error that names the hierarchy that cannot be mounted.
    pub(crate) fn mount(&self, root: &Path) -> Result<()> {
        let top = root.join("sys/fs/cgroup");
        match self {
            Self::V1(trees) => {
                attach("tmpfs", &top, "tmpfs", Some("mode=755"))?;
                for tree in trees {
                    let name = tree.path.file_name().context("a hierarchy has a name")?;
                    let path = top.join(name);
                    fs::create_dir_all(&path).context("failed to make a mount point")?;
                    attach("cgroup", &path, "cgroup", Some(&tree.options))?;
                }
                Ok(())
            }
            Self::V2 => attach("cgroup2", &top, "cgroup2", None),
        }
    }

    /// Moves process 1 of a node from the root cgroup into [`LEAF`], so that the root cgroup can
    /// enable controllers for the cgroups of pods.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses.
    pub(crate) fn leave_root_group(&self) -> Result<()> {
        if *self == Self::V2 {
            let leaf = Path::new(MOUNT_POINT).join(LEAF);
            fs::create_dir_all(&leaf).context("failed to make the group of process 1")?;
            fs::write(leaf.join("cgroup.procs"), "0").context("failed to leave the root group")?;
            delegate(Path::new(MOUNT_POINT))?;
        }

        Ok(())
    }

    /// Removes the cgroups of `node`. The processes of the node must have ended.
    pub(crate) fn remove(&self, node: &str) {
        for folder in self.folders() {
            remove_tree(&folder.join(PARENT).join(node));
            // The removal fails while other nodes have cgroups.
            let _ = fs::remove_dir(folder.join(PARENT));
        }
    }

    /// Returns the current usage of `node`.
    ///
    /// # Errors
    ///
    /// Returns an error if the node has no cgroup.
    pub(crate) fn usage(&self, node: &str) -> Result<Usage> {
        let read = |tree: &str, file: &str| {
            let path = Path::new(MOUNT_POINT)
                .join(tree)
                .join(PARENT)
                .join(node)
                .join(file);
            fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
        };
        match self {
            Self::V1(_) => Ok(Usage {
                resident_bytes: field(&read("memory", "memory.stat")?, "total_rss"),
                processor: Duration::from_nanos(
                    read("cpuacct", "cpuacct.usage")?
                        .trim()
                        .parse()
                        .unwrap_or(0),
                ),
            }),
            Self::V2 => Ok(Usage {
                resident_bytes: field(&read("", "memory.stat")?, "anon"),
                processor: Duration::from_micros(field(&read("", "cpu.stat")?, "usage_usec")),
            }),
        }
    }

    fn folders(&self) -> Vec<PathBuf> {
        match self {
            Self::V1(trees) => trees.iter().map(|tree| tree.path.clone()).collect(),
            Self::V2 => vec![MOUNT_POINT.into()],
        }
    }
}

/// Reads the cgroup v1 hierarchies below [`MOUNT_POINT`] from `/proc/self/mountinfo` (`man 5
/// proc`). The fifth field of a line is the mount point. File system type, source and options
/// follow ` - `.
fn parse(mountinfo: &str) -> Vec<Tree> {
    let mut seen = BTreeSet::new();

    mountinfo
        .lines()
        .filter_map(|line| {
            let (fields, rest) = line.split_once(" - ")?;
            let path = fields.split(' ').nth(4)?;
            let mut rest = rest.split(' ');
            let kind = rest.next()?;
            let options = rest.nth(1)?;
            if kind != "cgroup" || !path.starts_with(MOUNT_POINT) || !seen.insert(path) {
                return None;
            }
            let options: Vec<_> = options
                .split(',')
                .filter(|option| !["rw", "ro", "relatime", "xattr"].contains(option))
                .filter(|option| {
                    !option.starts_with("release_agent=") && *option != "clone_children"
                })
                .collect();
            let options = options.join(",");
            let named = options.starts_with("name=");

            Some(Tree {
                path: path.into(),
                options: if named {
                    format!("none,{options}")
                } else {
                    options
                },
            })
        })
        .collect()
}

/// Copies the CPUs and memory nodes of the cgroup `top` to a new cgroup of the cpuset controller.
/// The kernel adds no process to a cpuset without CPUs and memory nodes.
fn inherit_cpuset(top: &Path, group: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let Ok(value) = fs::read_to_string(top.join(file)) else {
            continue;
        };
        fs::write(group.join(file), value)
            .with_context(|| format!("failed to set {file} of {}", group.display()))?;
    }

    Ok(())
}

/// Enables all available controllers for the child cgroups of `group`.
fn delegate(group: &Path) -> Result<()> {
    let controllers = fs::read_to_string(group.join("cgroup.controllers"))
        .context("failed to read the controllers")?;
    for controller in controllers.split_whitespace() {
        // A write with several controllers fails as a whole if one of them cannot be enabled. Each
        // controller is therefore enabled by a separate write.
        let _ = fs::write(
            group.join("cgroup.subtree_control"),
            format!("+{controller}"),
        );
    }

    Ok(())
}

fn attach(source: &str, target: &Path, kind: &str, options: Option<&str>) -> Result<()> {
    mount(Some(source), target, Some(kind), MsFlags::empty(), options)
        .with_context(|| format!("failed to mount {}", target.display()))
}

fn remove_tree(group: &Path) {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.path().is_dir()) {
        remove_tree(&entry.path());
    }
    // Removing the directory of a cgroup also removes its files. The removal fails while the cgroup
    // contains processes.
    let _ = fs::remove_dir(group);
}

fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_of_version_1_are_mounted_again_with_their_controllers() {
        let mountinfo = "\
31 23 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
33 31 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/agent,name=systemd
34 31 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
35 31 0:28 / /var/lib/other/cpu rw - cgroup cgroup rw,cpu,cpuacct
";

        let trees = parse(mountinfo);

        let options: Vec<_> = trees.iter().map(|tree| tree.options.as_str()).collect();
        assert_eq!(options, ["cpu,cpuacct", "none,name=systemd"]);
    }

    #[test]
    fn a_field_of_a_statistic_is_found_by_its_whole_name() {
        assert_eq!(field("rss 1\ntotal_rss 4096\n", "total_rss"), 4096);
        assert_eq!(field("", "total_rss"), 0);
    }
}
