//! The command `build`, which builds programs, image archives, and the seed of unpacked images.

use crate::image::laboratory::laboratory_images;
use crate::place::{self, Artifacts};
use crate::seed;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use sha2::{Digest as _, Sha256};
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Builds Kubernetes, etcd, containerd, runc's shim, CNI plugins, CoreDNS and helm from Go modules,
/// and the images of every node from Debian packages.
#[derive(Args, Debug, Default)]
pub(super) struct Build {
    /// The Kubernetes version, such as 1.35. A `.mod` file for the version must be committed.
    #[arg(long, value_name = "VERSION")]
    pub(super) k8s_version: Option<String>,

    /// Leave out kwok and metrics-server, which only long tests and benchmarks use.
    #[arg(long)]
    pub(super) quick: bool,
}

impl Build {
    /// Builds missing artifacts, and returns their folder.
    pub(super) fn run(&self) -> Result<Artifacts> {
        let start = Instant::now();
        let artifacts = match env::var_os(place::ARTIFACTS_VARIABLE) {
            Some(folder) => Artifacts::new(folder),
            None => Artifacts::new(self.programs()?),
        };
        // The lock excludes other processes that build the same artifacts.
        let path = artifacts.folder().join("images.lock");
        let lock =
            File::create(&path).with_context(|| format!("failed to open {}", path.display()))?;
        lock.lock()
            .with_context(|| format!("failed to lock {}", path.display()))?;
        let inputs = inputs()?;
        let marker = artifacts.folder().join("images.digest");
        // The file contains the digest of the last complete build. The digest differs if the
        // sources have changed since that build.
        let known = fs::read_to_string(&marker).unwrap_or_default();
        if known != inputs || !artifacts.seed().exists() {
            images(&artifacts)?;
            eprintln!("==> Unpacking the images of all nodes");
            seed::make(&artifacts)?;
            fs::write(&marker, inputs)
                .context("failed to save the digest of the images' inputs")?;
            eprintln!("    done ({:.1} s)", start.elapsed().as_secs_f64());
        }

        Ok(artifacts)
    }

    /// Builds the programs by `cargo xtask`, which also provides the compiler.
    fn programs(&self) -> Result<String> {
        let mut words = vec!["kubernetes-binaries"];
        if let Some(version) = &self.k8s_version {
            words.extend(["--k8s-version", version]);
        }
        words.extend(self.quick.then_some("--quick"));
        xtask(&words)
    }
}

/// Runs a command of `cargo xtask`, and returns the single line of its standard output.
fn xtask(words: &[&str]) -> Result<String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .args(["run", "--quiet", "--locked", "--package", "xtask", "--"])
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("failed to start cargo")?;
    ensure!(
        output.status.success(),
        "`cargo xtask {}` failed: see above",
        words.join(" ")
    );
    let text = String::from_utf8(output.stdout).context("a path is not UTF-8")?;

    Ok(text.trim().to_owned())
}

/// Returns a digest of the sources that determine the images: those of the image builder, of the
/// guest programs and of the shop. Kubernetes and other programs have pinned versions, so they are not included.
fn inputs() -> Result<String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut digest = Sha256::new();
    for folder in ["guest/src", "shop/src", "src/image"] {
        hash(&mut digest, &top.join(folder))?;
    }
    let bytes = digest.finalize();

    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn hash(digest: &mut Sha256, folder: &Path) -> Result<()> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("failed to read {}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            hash(digest, &path)?;
        } else {
            let bytes =
                fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        }
    }

    Ok(())
}

/// Writes the image archives of nodes.
fn images(artifacts: &Artifacts) -> Result<()> {
    eprintln!("==> Building the images of all nodes");
    let guests = PathBuf::from(xtask(&["guest-programs"])?);
    let folder = artifacts.images();
    fs::create_dir_all(&folder)
        .with_context(|| format!("failed to create {}", folder.display()))?;
    for image in laboratory_images(artifacts.folder(), &guests, &folder)? {
        eprintln!("    {}", image.names.join(", "));
    }

    Ok(())
}
