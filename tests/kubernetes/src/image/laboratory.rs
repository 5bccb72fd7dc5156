//! The images that all nodes of the laboratory have, so that no registry is needed.

mod ingress;
mod shop;
mod tools;

pub use tools::{Program, TOOLS};

use super::{Created, Image, Platform, Tree, write};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The name of the sandbox image of pods. containerd's configuration contains this name.
pub const PAUSE: &str = "registry.k8s.io/pause:3.10";

/// The names of the image with network tools.
pub const TOOLS_NAMES: [&str; 3] = [
    "docker.io/library/busybox:1.36",
    "docker.io/library/busybox:latest",
    "localhost/tools:latest",
];

/// The name of the image with an Ingress controller.
pub const INGRESS: &str = "localhost/ingress:latest";

/// The name of the image with the services of the shop, and Redis.
pub const SHOP: &str = "localhost/shop:latest";

const COREDNS: &str = "registry.k8s.io/coredns/coredns";
const LOCAL_PATH_PROVISIONER: &str = "docker.io/rancher/local-path-provisioner";
const METRICS_SERVER: &str = "registry.k8s.io/metrics-server/metrics-server";

/// The name of the file with the versions of the programs.
const VERSIONS: &str = "versions.json";

/// An image archive that [`laboratory_images`] has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The fully qualified names of the image.
    pub names: Vec<String>,
    /// The path of the archive.
    pub archive: PathBuf,
}

/// Writes the archives of the laboratory's images into the folder `to`.
///
/// `artifacts` is the output folder of `cargo xtask kubernetes-binaries`. It contains the programs
/// of a cluster in `bin`, and their versions in `versions.json`. `guest` contains the static
/// programs `pause`, `shop` and `whoami`.
///
/// # Errors
///
/// Returns an error that names the missing program, and its package.
pub fn laboratory_images(artifacts: &Path, guest: &Path, to: &Path) -> Result<Vec<Written>> {
    let versions = Versions::read(artifacts)?;
    let programs = artifacts.join("bin");
    let laboratory = Laboratory::new(to)?;
    let coredns = versions.name(COREDNS, "coredns")?;
    let provisioner = versions.name(LOCAL_PATH_PROVISIONER, "local-path-provisioner")?;
    // `cargo xtask kubernetes-binaries --quick` does not build it.
    let metrics_server = versions.versions.get("metrics-server").map(|version| {
        let name = format!("{METRICS_SERVER}:{version}");
        laboratory.program("metrics-server", &name, &programs, "/metrics-server")
    });
    let metrics_server = metrics_server.transpose()?;

    let written = [
        laboratory.program("pause", PAUSE, guest, "/pause")?,
        laboratory.program("coredns", &coredns, &programs, "/coredns")?,
        laboratory.program(
            "local-path-provisioner",
            &provisioner,
            &programs,
            "/bin/local-path-provisioner",
        )?,
        laboratory.tools(guest)?,
        laboratory.shop(guest)?,
    ];
    Ok(written.into_iter().chain(metrics_server).collect())
}

/// Writes the archive of the image [`INGRESS`] into the folder `to`. Only one test needs it, so it is not on all nodes.
///
/// # Errors
///
/// Returns an error that names the missing program, and its package.
pub fn ingress_image(artifacts: &Path, to: &Path) -> Result<Written> {
    let laboratory = Laboratory::new(to)?;
    let image = Image::new(laboratory.platform, ingress::tree(artifacts)?, &[]);

    laboratory.write("ingress", &[INGRESS], image)
}

/// Settings that all images share.
struct Laboratory<'a> {
    platform: Platform,
    created: Created,
    to: &'a Path,
}

impl<'a> Laboratory<'a> {
    /// Creates the folder of the archives.
    fn new(to: &'a Path) -> Result<Self> {
        fs::create_dir_all(to).with_context(|| format!("failed to create {}", to.display()))?;

        Ok(Self {
            platform: Platform::machine()?,
            created: Created::from_environment()?,
            to,
        })
    }

    /// Writes an image with a single program.
    fn program(&self, name: &str, image: &str, folder: &Path, path: &str) -> Result<Written> {
        let mut tree = Tree::new();
        // The program is static. It needs no other files, and may write temporary files.
        tree.directory("/tmp", 0o1777)?;
        tree.file(path, &folder.join(name))?;

        self.write(name, &[image], Image::new(self.platform, tree, &[path]))
    }

    fn tools(&self, guest: &Path) -> Result<Written> {
        let mut image = Image::new(self.platform, tools::tree(guest)?, &[]);
        image.command = vec!["sh".to_owned()];

        self.write("tools", &TOOLS_NAMES, image)
    }

    fn shop(&self, guest: &Path) -> Result<Written> {
        let image = Image::new(self.platform, shop::tree(guest)?, &[]);

        self.write("shop", &[SHOP], image)
    }

    fn write(&self, name: &str, names: &[&str], mut image: Image) -> Result<Written> {
        let names: Vec<_> = names.iter().copied().map(str::to_owned).collect();
        let archive = self.to.join(format!("{name}.tar"));
        let title = "org.opencontainers.image.title".to_owned();
        image.labels.insert(title, name.to_owned());
        image.created = self.created;
        write(&archive, &names, &[image])?;

        Ok(Written { names, archive })
    }
}

/// The content of `versions.json`, and its path for errors.
struct Versions {
    path: PathBuf,
    versions: BTreeMap<String, String>,
}

impl Versions {
    fn read(artifacts: &Path) -> Result<Self> {
        let path = artifacts.join(VERSIONS);
        let text = fs::read_to_string(&path).with_context(|| {
            format!(
                "failed to read {}: `cargo xtask kubernetes-binaries` writes it",
                path.display()
            )
        })?;
        let versions = serde_json::from_str(&text)
            .with_context(|| format!("{} does not map names to versions", path.display()))?;

        Ok(Self { path, versions })
    }

    /// Returns the name of an image with the version of `program` as its tag.
    fn name(&self, image: &str, program: &str) -> Result<String> {
        let version = self.versions.get(program);
        let version = version
            .with_context(|| format!("{} has no version of {program}", self.path.display()))?;

        Ok(format!("{image}:{version}"))
    }
}

#[cfg(test)]
mod tests;
