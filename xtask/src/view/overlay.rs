//! Creates the mounts of a view in a new mount namespace.

use anyhow::{Context as _, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, mknod};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, process};

/// A folder over which a view mounts an overlayfs that hides some of its files.
#[derive(Debug)]
pub(super) struct Layer {
    /// The path of the folder, without symbolic links.
    pub(super) root: PathBuf,
    /// Absolute paths of the files and folders to hide.
    pub(super) hidden: Vec<PathBuf>,
}

/// Moves the calling thread into a new mount namespace. In this namespace, the hidden files of the
/// layers do not exist, and the folders in `emptied` are empty. Mounts below a layer are kept. All
/// other mounts, such as the mounts in `/run`, still propagate between the two mount namespaces.
///
/// # Errors
///
/// Returns an error that names the mount that the kernel refused.
pub(super) fn enter(layers: &[Layer], emptied: &[PathBuf]) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("failed to create a mount namespace")?;
    let mounts = mount_points()?;
    let scratch = scratch()?;
    let roots = layers.iter().map(|layer| &layer.root);
    for path in roots.chain(emptied).chain([&scratch]) {
        let containing = mounts.iter().filter(|mount| path.starts_with(mount)).max();
        let containing = containing.context("every path is below a mount")?;
        change(containing, MsFlags::MS_PRIVATE)?;
    }

    attach("tmpfs", &scratch, Some("mode=755".into()))?;
    for (index, layer) in layers.iter().enumerate() {
        let below = mounts
            .iter()
            .filter(|mount| mount.starts_with(&layer.root) && **mount != layer.root);
        stack(layer, &scratch.join(index.to_string()), below)?;
    }
    let empty = folder(scratch.join("empty"))?;
    for path in emptied {
        bind(&empty, path)?;
    }

    // The overlays keep references to the files that they need in the temporary folder.
    umount2(&scratch, MntFlags::MNT_DETACH).context("failed to unmount the temporary folder")?;
    fs::remove_dir(&scratch).context("failed to remove the temporary folder")
}

/// Creates a folder that no other view uses.
fn scratch() -> Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);

    let temporary = env::temp_dir()
        .canonicalize()
        .context("there is no temporary folder")?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    folder(temporary.join(format!("liqo-view-{}-{number}", process::id())))
}

/// Mounts an overlayfs over one layer, and binds the existing mounts below the layer to the same
/// paths again.
fn stack<'a>(
    layer: &Layer,
    scratch: &Path,
    mounts_below: impl Iterator<Item = &'a PathBuf>,
) -> Result<()> {
    let (upper, work) = (
        folder(scratch.join("upper"))?,
        folder(scratch.join("work"))?,
    );
    for hidden in &layer.hidden {
        let below = hidden
            .strip_prefix(&layer.root)
            .expect("hidden files are below their layer's root");
        let whiteout = upper.join(below);
        fs::create_dir_all(whiteout.parent().expect("it is below `upper`"))
            .with_context(|| format!("failed to hide {}", hidden.display()))?;
        // A character device with the number 0/0 hides the file of the lower folder (an overlayfs
        // whiteout).
        mknod(&whiteout, SFlag::S_IFCHR, Mode::empty(), 0)
            .with_context(|| format!("failed to hide {}", hidden.display()))?;
    }
    let kept = mounts_below
        .enumerate()
        .map(|(index, mount)| {
            let place = scratch.join(format!("mount-{index}"));
            if mount.is_dir() {
                folder(place.clone())?;
            } else {
                File::create(&place).context("failed to create a mount point")?;
            }
            bind(mount, &place)?;
            Ok((place, mount))
        })
        .collect::<Result<Vec<_>>>()?;

    let mut options = OsString::new();
    for (name, path) in [
        ("lowerdir=", &layer.root),
        (",upperdir=", &upper),
        (",workdir=", &work),
    ] {
        options.push(name);
        options.push(path);
    }
    attach("overlay", &layer.root, Some(options))?;
    for (place, mount) in kept {
        bind(&place, mount)?;
    }

    Ok(())
}

fn folder(path: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&path).with_context(|| format!("failed to create {}", path.display()))?;

    Ok(path)
}

fn attach(kind: &str, to: &Path, options: Option<OsString>) -> Result<()> {
    mount(
        Some(kind),
        to,
        Some(kind),
        MsFlags::empty(),
        options.as_deref(),
    )
    .with_context(|| format!("failed to mount {kind} on {}", to.display()))
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    mount(
        Some(from),
        to,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )
    .with_context(|| format!("failed to bind {} to {}", from.display(), to.display()))
}

fn change(mount_point: &Path, flags: MsFlags) -> Result<()> {
    mount(None::<&str>, mount_point, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("failed to make {} private", mount_point.display()))
}

/// Returns all mount points of this process, sorted by path.
fn mount_points() -> Result<Vec<PathBuf>> {
    let text =
        fs::read_to_string("/proc/thread-self/mountinfo").context("failed to list mounts")?;
    let mut mounts: Vec<_> = text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape)
        .collect();
    mounts.sort();
    mounts.dedup();

    Ok(mounts)
}

/// Decodes a path of mountinfo, in which white space is escaped, for example as `\040`.
fn unescape(path: &str) -> PathBuf {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let path = escapes
        .iter()
        .fold(path.to_owned(), |path, (escape, letter)| {
            path.replace(escape, letter)
        });

    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::thread;

    #[test]
    fn hidden_programs_are_not_found_and_kept_programs_are() {
        let temporary = env::temp_dir().join(format!("liqo-overlay-test-{}", process::id()));
        let [bin, other] = ["bin", "other"].map(|name| folder(temporary.join(name)).unwrap());
        for path in [bin.join("git"), bin.join("gcc"), other.join("go")] {
            fs::copy("/bin/true", path).unwrap();
        }
        let layer = Layer {
            root: bin.canonicalize().unwrap(),
            hidden: vec![bin.join("git")],
        };

        let inside = in_a_thread({
            let (bin, other) = (bin.clone(), other.clone());
            move || {
                enter(&[layer], std::slice::from_ref(&other)).unwrap();
                fs::write(bin.join("written"), "").unwrap();
                [bin.join("gcc"), bin.join("git"), other.join("go")].map(runs)
            }
        });

        assert_eq!(inside, [true, false, false]);
        assert!(
            runs(bin.join("git")) && runs(other.join("go")),
            "outside nothing changes"
        );
        assert!(!bin.join("written").exists(), "writes stay in the view");
        fs::remove_dir_all(temporary).unwrap();
    }

    #[test]
    fn a_mount_below_a_layer_is_kept() {
        let root = env::temp_dir().join(format!("liqo-overlay-mount-{}", process::id()));
        let below = folder(root.join("below")).unwrap();
        let root = root.canonicalize().unwrap();

        let inside = in_a_thread({
            let (root, below) = (root.clone(), below.clone());
            move || {
                unshare(CloneFlags::CLONE_NEWNS).unwrap();
                change(Path::new("/"), MsFlags::MS_REC | MsFlags::MS_PRIVATE).unwrap();
                attach("tmpfs", &below, None).unwrap();
                fs::write(below.join("file"), "").unwrap();
                let layer = Layer {
                    root,
                    hidden: Vec::new(),
                };
                enter(&[layer], &[]).unwrap();
                below.join("file").exists()
            }
        });

        assert!(inside);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn white_space_in_mount_points_is_read() {
        assert_eq!(unescape("/a\\040b\\134c"), PathBuf::from("/a b\\c"));
    }

    fn runs(program: PathBuf) -> bool {
        Command::new(program)
            .status()
            .is_ok_and(|status| status.success())
    }

    /// Runs `work` in a new thread. The thread's mount namespace is removed when the thread ends.
    fn in_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        thread::spawn(work).join().unwrap()
    }
}
