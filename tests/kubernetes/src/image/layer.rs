//! Writes a tree of files as a reproducible tar. All times and owners are zero.

use super::archive::Archive;
use super::document::{Blob, MediaType};
use super::hashing::Hashing;
use super::tree::{Entry, Tree};
use anyhow::{Context as _, Result, bail};
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;
use tar::{Builder, EntryType, Header};

/// The compression of an image's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// An uncompressed tar.
    None,
    /// gzip with the same output on every machine.
    Gzip,
}

/// A layer that was added to an archive.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) blob: Blob,
    /// The digest of the uncompressed tar.
    pub(super) content: String,
}

impl Layer {
    /// Adds a layer with the files of `tree` to an archive.
    ///
    /// # Errors
    ///
    /// Returns an error that names the file that cannot be read, or that shrank while it was read.
    pub(super) fn write(
        tree: &Tree,
        compression: Compression,
        archive: &mut Archive,
    ) -> Result<Self> {
        match compression {
            Compression::None => {
                let blob = archive.blob(MediaType::Layer, |out| write(tree, out))?;
                let content = blob.digest.clone();
                Ok(Self { blob, content })
            }
            Compression::Gzip => {
                let mut content = String::new();
                let blob = archive.blob(MediaType::LayerGzip, |out| {
                    // The gzip header contains neither time nor file name, since both differ
                    // between builds.
                    let packed = GzEncoder::new(out, flate2::Compression::best());
                    let mut tar = Hashing::new(packed);
                    write(tree, &mut tar)?;
                    content = tar.digest();
                    tar.into_inner().finish()?;
                    Ok(())
                })?;
                Ok(Self { blob, content })
            }
        }
    }
}

/// Writes `tree` as a tar in which parents precede their children.
fn write(tree: &Tree, out: &mut impl Write) -> Result<()> {
    let mut tar = Builder::new(out);
    for (path, entry) in tree.entries() {
        append(&mut tar, path, entry).with_context(|| format!("failed to add /{path}"))?;
    }
    tar.finish()?;

    Ok(())
}

fn append(tar: &mut Builder<impl Write>, path: &str, entry: &Entry) -> Result<()> {
    match entry {
        Entry::Directory { mode } => {
            let mut header = header(EntryType::Directory, *mode, 0);
            tar.append_data(&mut header, format!("{path}/"), io::empty())?;
        }
        Entry::Symlink { target } => {
            let mut header = header(EntryType::Symlink, 0o777, 0);
            tar.append_link(&mut header, path, target)?;
        }
        Entry::Bytes { content, mode } => {
            let mut header = header(EntryType::Regular, *mode, content.len() as u64);
            tar.append_data(&mut header, path, content.as_slice())?;
        }
        Entry::File { source, mode } => {
            copy(tar, path, source, *mode)
                .with_context(|| format!("failed to read {}", source.display()))?;
        }
    }

    Ok(())
}

fn copy(tar: &mut Builder<impl Write>, path: &str, source: &Path, mode: u32) -> Result<()> {
    let file = File::open(source)?;
    let size = file.metadata()?.len();
    // The header contains the size, so bytes that are appended to the file during the copy are
    // omitted.
    let mut content = file.take(size);
    let mut header = header(EntryType::Regular, mode, size);
    tar.append_data(&mut header, path, &mut content)?;

    match content.limit() {
        0 => Ok(()),
        missing => bail!("it shrank by {missing} bytes while it was read"),
    }
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);

    header
}
