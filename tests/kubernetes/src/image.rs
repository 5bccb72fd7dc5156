//! Builds OCI images reproducibly, without Docker.
//!
//! `ctr images import` and `skopeo` can read the archives. An archive contains content-addressed
//! blobs and the documents that describe them.
//!
//! ```text
//! index.json ──name──> manifest ──────> config, layers       one platform
//! index.json ──name──> index ─┬─amd64─> manifest ─> ...      several
//!                             └─arm64─> manifest ─> ...
//! ```
//!
//! Layers of the laboratory's own images are not compressed, since compression takes longer than
//! copying on the same machine. Layers of released images are compressed.

pub mod laboratory;
pub mod programs;

mod archive;
mod created;
mod document;
mod elf;
mod hashing;
mod layer;
mod platform;
#[cfg(test)]
mod scratch;
mod tree;

pub use created::Created;
pub use layer::Compression;
pub use platform::Platform;
pub use tree::Tree;

use anyhow::{Context as _, Result, bail};
use archive::Archive;
use document::{Config, Descriptor, Index, Manifest, MediaType, Process, RootFs};
use layer::Layer;
use std::collections::BTreeMap;
use std::path::Path;

/// The default `PATH` of common images.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An image for one platform.
#[derive(Clone, Debug)]
pub struct Image {
    /// The architecture of the image. The operating system is Linux.
    pub platform: Platform,
    /// The layers. The lowest layer is the first.
    pub layers: Vec<Tree>,
    /// The program, and its first arguments.
    pub entrypoint: Vec<String>,
    /// Additional arguments. Without an entrypoint, the first element is the program.
    pub command: Vec<String>,
    /// Labels such as `org.opencontainers.image.title`.
    pub labels: BTreeMap<String, String>,
    /// The creation time in the image's configuration.
    pub created: Created,
    /// The compression of all layers.
    pub compression: Compression,
}

impl Image {
    /// Creates an image with one uncompressed layer and no labels.
    pub fn new(platform: Platform, tree: Tree, entrypoint: &[&str]) -> Self {
        Self {
            platform,
            layers: vec![tree],
            entrypoint: entrypoint.iter().copied().map(str::to_owned).collect(),
            command: Vec::new(),
            labels: BTreeMap::new(),
            created: Created::default(),
            compression: Compression::None,
        }
    }

    fn write(&self, archive: &mut Archive) -> Result<Descriptor> {
        let layers = self
            .layers
            .iter()
            .map(|tree| Layer::write(tree, self.compression, archive))
            .collect::<Result<Vec<_>>>()?;
        let config = archive.document(MediaType::Config, &self.config(&layers))?;
        let layers = layers.into_iter().map(|layer| layer.blob).collect();
        let manifest = Manifest::new(config, layers, self.labels.clone());
        let blob = archive.document(MediaType::Manifest, &manifest)?;

        Ok(Descriptor::new(blob).on(self.platform))
    }

    fn config(&self, layers: &[Layer]) -> Config {
        Config {
            created: self.created.to_string(),
            architecture: self.platform,
            os: document::OS,
            config: Process {
                env: vec![PATH.to_owned()],
                entrypoint: self.entrypoint.clone(),
                cmd: self.command.clone(),
                labels: self.labels.clone(),
            },
            rootfs: RootFs::new(layers.iter().map(|layer| layer.content.clone())),
        }
    }
}

/// Writes an archive with an image under one or more names.
///
/// `images` contains the same image for different platforms. The complete archive is renamed to
/// `to`, so that `to` is never incomplete.
///
/// # Errors
///
/// Returns an error if a name is not fully qualified, such as `localhost/tools:latest`, if a
/// platform is repeated, or if a file cannot be read or written.
pub fn write(to: &Path, names: &[String], images: &[Image]) -> Result<()> {
    check(names, images)?;
    let write = || {
        let mut archive = Archive::create(to)?;
        let described = images
            .iter()
            .map(|image| image.write(&mut archive))
            .collect::<Result<Vec<_>>>()?;
        let image = match <[_; 1]>::try_from(described) {
            Ok([alone]) => alone,
            Err(several) => {
                Descriptor::new(archive.document(MediaType::Index, &Index::new(several))?)
            }
        };
        let named = names.iter().map(|name| image.clone().named(name));
        archive.finish(&Index::new(named.collect()))
    };

    write().with_context(|| format!("failed to write image {}", to.display()))
}

fn check(names: &[String], images: &[Image]) -> Result<()> {
    if names.is_empty() || images.is_empty() {
        bail!("an archive needs a name and an image");
    }
    for name in names {
        let tag = name
            .split_once('/')
            .and_then(|(_registry, rest)| rest.rsplit_once(':'));
        if tag.is_none_or(|(repository, tag)| repository.is_empty() || tag.is_empty()) {
            bail!("{name:?} is no fully qualified image name such as localhost/tools:latest");
        }
    }
    for (index, image) in images.iter().enumerate() {
        let platform = image.platform;
        if images[..index].iter().any(|it| it.platform == platform) {
            bail!("two images for {platform} under one name");
        }
    }

    Ok(())
}

#[cfg(test)]
mod tests;
