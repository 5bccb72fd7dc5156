//! Reads the loader and the libraries that a program needs.
//!
//! The format is `elf(5)`, 64-bit little-endian, on both platforms. Unlike `ldd`, this runs nothing and
//! reads programs of other platforms.
//!
//! ```text
//! header -> program headers -> PT_INTERP  -> path of the loader
//!                           -> PT_DYNAMIC -> DT_NEEDED, DT_RUNPATH: offsets into
//!                           -> PT_LOAD       DT_STRTAB, an address in memory
//! ```

use super::Platform;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::Path;

const MAGIC: &[u8] = b"\x7fELF";
/// `ELFCLASS64` and `ELFDATA2LSB`, which follow the magic number.
const LITTLE_64: &[u8] = &[2, 1];

const MACHINE_X86_64: u16 = 62;
const MACHINE_AARCH64: u16 = 183;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// The size in bytes of an entry of the dynamic section.
const DYNAMIC_SIZE: usize = 16;

/// The data of a program or library for its loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Elf {
    /// The platform from the header.
    pub(super) platform: Platform,
    /// The path of the loader; `None` for libraries and static programs.
    pub(super) loader: Option<String>,
    /// The names of needed libraries (`DT_NEEDED`).
    pub(super) needed: Vec<String>,
    /// The first folders to search for libraries (`DT_RUNPATH`); `$ORIGIN` is the program's folder.
    pub(super) folders: Vec<String>,
}

impl Elf {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be read, or is no program of a known platform.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;

        Self::parse(&bytes).with_context(|| format!("failed to understand {}", path.display()))
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        if !bytes.starts_with(&[MAGIC, LITTLE_64].concat()) {
            bail!("it is no 64-bit ELF program or library");
        }
        let image = Bytes(bytes);
        let platform = match image.u16(18)? {
            MACHINE_X86_64 => Platform::Amd64,
            MACHINE_AARCH64 => Platform::Arm64,
            other => bail!("its machine {other} is not supported"),
        };

        let segments = Segment::all(image)?;
        let of_kind = |kind| segments.iter().find(|segment| segment.kind == kind);
        let loader = of_kind(PT_INTERP)
            .map(|segment| image.text(segment.offset))
            .transpose()?;
        let mut elf = Self {
            platform,
            loader,
            needed: Vec::new(),
            folders: Vec::new(),
        };
        if let Some(dynamic) = of_kind(PT_DYNAMIC) {
            elf.read_dynamic(image, dynamic, &segments)?;
        }

        Ok(elf)
    }

    fn read_dynamic(
        &mut self,
        image: Bytes<'_>,
        dynamic: &Segment,
        segments: &[Segment],
    ) -> Result<()> {
        let entries = (0..dynamic.size / DYNAMIC_SIZE)
            .map(|index| {
                let at = dynamic.offset.saturating_add(index * DYNAMIC_SIZE);
                Ok((image.u64(at)?, image.u64(at.saturating_add(8))?))
            })
            .collect::<Result<Vec<_>>>()?;
        let mut entries = entries.split(|(tag, _)| *tag == DT_NULL);
        let entries = entries.next().unwrap_or_default();
        let Some((_, strings)) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB) else {
            return Ok(());
        };
        let strings = segments
            .iter()
            .find_map(|segment| segment.offset_of(*strings))
            .context("its string table is out of bounds")?;

        for (tag, value) in entries {
            let text = || image.text(strings.saturating_add(usize::try_from(*value)?));
            match *tag {
                DT_NEEDED => self.needed.push(text()?),
                DT_RPATH | DT_RUNPATH => {
                    self.folders.extend(text()?.split(':').map(str::to_owned));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A segment that the loader maps or reads.
#[derive(Debug)]
struct Segment {
    kind: u32,
    /// The offset in the file.
    offset: usize,
    /// The virtual address.
    address: u64,
    /// The length in the file.
    size: usize,
}

impl Segment {
    fn all(image: Bytes<'_>) -> Result<Vec<Self>> {
        let (table, size) = (image.offset(32)?, image.u16(54)?);

        (0..image.u16(56)?)
            .map(|index| {
                let at = table.saturating_add(usize::from(index) * usize::from(size));
                Ok(Self {
                    kind: image.u32(at)?,
                    offset: image.offset(at.saturating_add(8))?,
                    address: image.u64(at.saturating_add(16))?,
                    size: image.offset(at.saturating_add(32))?,
                })
            })
            .collect()
    }

    /// The offset in the file of a virtual address, if it is in this segment.
    fn offset_of(&self, address: u64) -> Option<usize> {
        let inside = usize::try_from(address.checked_sub(self.address)?).ok()?;

        (self.kind == PT_LOAD && inside < self.size).then(|| self.offset.saturating_add(inside))
    }
}

/// The bytes of a file, of which no offset is trusted.
#[derive(Clone, Copy, Debug)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(self, at: usize) -> Result<[u8; N]> {
        self.0
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .context("it is truncated")
    }

    fn u16(self, at: usize) -> Result<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(self, at: usize) -> Result<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(self, at: usize) -> Result<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// Reads an offset or a length.
    fn offset(self, at: usize) -> Result<usize> {
        Ok(usize::try_from(self.u64(at)?)?)
    }

    /// Reads a string that ends with a zero byte.
    fn text(self, at: usize) -> Result<String> {
        let rest = self.0.get(at..).context("it is truncated")?;
        let end = rest.iter().position(|byte| *byte == 0);
        let text = &rest[..end.context("it is truncated")?];

        Ok(String::from_utf8(text.to_vec())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_this_machine_names_its_loader_and_the_c_library() {
        let elf = Elf::read("/proc/self/exe".as_ref()).unwrap();

        assert_eq!(elf.platform, Platform::machine().unwrap());
        assert!(elf.loader.unwrap().contains("/ld-"));
        assert!(elf.needed.contains(&"libc.so.6".to_owned()));
    }

    #[test]
    fn a_truncated_file_does_not_panic() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let head = &whole[..4096.min(whole.len())];

        for end in 0..head.len() {
            // Any result is valid, but no panic.
            let _ = Elf::parse(&head[..end]);
        }
        let error = Elf::parse(&head[..60]).unwrap_err();

        assert_eq!(error.to_string(), "it is truncated");
    }

    #[test]
    fn a_script_is_no_program() {
        let error = Elf::parse(b"#!/bin/sh\n").unwrap_err();

        assert_eq!(error.to_string(), "it is no 64-bit ELF program or library");
    }
}
