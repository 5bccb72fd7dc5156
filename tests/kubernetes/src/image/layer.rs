//! A tree of files as a tar in which nothing tells when, where and by whom it was
//! made.

use super::tree::{Entry, Tree};
use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;
use tar::{Builder, EntryType, Header};

/// Writes `tree`, parents before what is in them.
///
/// # Errors
///
/// Returns an error that names the file that cannot be read, or that became shorter
/// while it was.
pub(super) fn write(tree: &Tree, out: &mut impl Write) -> Result<()> {
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
    // The header promises a size; of a file that grows, the rest is left out.
    let mut content = file.take(size);
    let mut header = header(EntryType::Regular, mode, size);
    tar.append_data(&mut header, path, &mut content)?;

    match content.limit() {
        0 => Ok(()),
        missing => bail!("it became {missing} bytes shorter while it was read"),
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
