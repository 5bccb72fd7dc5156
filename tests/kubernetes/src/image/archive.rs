//! Writes archives. The blobs precede the index, which refers to the blobs.
//!
//! The name of a blob is its digest. The tar header before the blob contains this name, but the
//! digest is known only after the last byte. The header is therefore written after the blob, so
//! that no file is read twice.

use super::document::{Blob, Index, MediaType};
use super::hashing::{ALGORITHM, Hashing};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use tar::{EntryType, Header};

/// The size of a tar block in bytes. A tar ends with two empty blocks.
const BLOCK: u64 = 512;
const EMPTY: [u8; BLOCK as usize] = [0; BLOCK as usize];

/// The writer that receives the bytes of a blob.
pub(super) type Out<'a> = Hashing<&'a mut BufWriter<File>>;

/// The size of the write buffer in bytes. A program of 100 MB takes a few hundred writes.
const BUFFER: usize = 256 * 1024;

/// An unfinished archive. Dropping this value removes the file.
#[derive(Debug)]
pub(super) struct Archive {
    out: BufWriter<File>,
    /// The offset of the next tar entry.
    end: u64,
    /// The digests of the blobs in the archive.
    blobs: BTreeSet<String>,
    draft: Draft,
    to: PathBuf,
}

impl Archive {
    /// Begins an archive, which [`Archive::finish`] renames to `to`.
    pub(super) fn create(to: &Path) -> Result<Self> {
        let mut draft = OsString::from(to);
        draft.push(".partial");
        let draft = Draft(PathBuf::from(draft));
        let file = File::create(&draft.0)
            .with_context(|| format!("failed to create {}", draft.0.display()))?;

        Ok(Self {
            out: BufWriter::with_capacity(BUFFER, file),
            end: 0,
            blobs: BTreeSet::new(),
            draft,
            to: to.to_owned(),
        })
    }

    /// Adds a blob with the bytes that `write` writes. A blob that the archive already contains is
    /// not added again.
    pub(super) fn blob(
        &mut self,
        media_type: MediaType,
        write: impl FnOnce(&mut Out<'_>) -> Result<()>,
    ) -> Result<Blob> {
        self.out.seek(SeekFrom::Start(self.end + BLOCK))?;
        let mut hashing = Hashing::new(&mut self.out);
        write(&mut hashing)?;
        let (size, digest) = (hashing.written(), hashing.digest());

        if self.blobs.insert(digest.clone()) {
            self.out.write_all(padding(size))?;
            let next = self.out.stream_position()?;
            self.out.seek(SeekFrom::Start(self.end))?;
            let path = format!("blobs/sha256/{}", digest.trim_start_matches(ALGORITHM));
            self.out.write_all(header(&path, size)?.as_bytes())?;
            self.end = next;
        }
        Ok(Blob {
            media_type,
            digest,
            size,
        })
    }

    /// Adds a blob with the JSON of a document.
    pub(super) fn document(
        &mut self,
        media_type: MediaType,
        document: &impl Serialize,
    ) -> Result<Blob> {
        let text = serde_json::to_vec(document)?;

        self.blob(media_type, |out| Ok(out.write_all(&text)?))
    }

    /// Adds the index, and renames the archive to its final name.
    pub(super) fn finish(mut self, index: &Index) -> Result<()> {
        self.file("index.json", &serde_json::to_vec(index)?)?;
        self.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        self.out.write_all(&EMPTY)?;
        self.out.write_all(&EMPTY)?;
        let length = self.out.stream_position()?;
        self.out.flush()?;
        // The file is truncated, since a duplicate blob may have been written after the last entry.
        self.out.get_ref().set_len(length)?;

        fs::rename(&self.draft.0, &self.to)
            .with_context(|| format!("failed to rename {}", self.draft.0.display()))
    }

    fn file(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let size = content.len() as u64;
        self.out.seek(SeekFrom::Start(self.end))?;
        self.out.write_all(header(path, size)?.as_bytes())?;
        self.out.write_all(content)?;
        self.out.write_all(padding(size))?;
        self.end = self.out.stream_position()?;

        Ok(())
    }
}

/// A file that is removed when this value is dropped, unless the file was renamed.
#[derive(Debug)]
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        // The removal fails after the file was renamed.
        let _ = fs::remove_file(&self.0);
    }
}

fn header(path: &str, size: u64) -> Result<Header> {
    let mut header = Header::new_gnu();
    header.set_path(path)?;
    header.set_entry_type(EntryType::Regular);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();

    Ok(header)
}

/// Returns the padding of a tar entry with `size` bytes.
fn padding(size: u64) -> &'static [u8] {
    let missing = size.next_multiple_of(BLOCK) - size;

    &EMPTY[..missing as usize]
}
