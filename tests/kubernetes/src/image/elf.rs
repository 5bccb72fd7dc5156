//! Reads the names of the loader and of the libraries that a program needs.
//!
//! The format is that of `elf(5)` with 64 bits and little endian on both platforms. Unlike `ldd`,
//! this module does not run the program, so it can read programs of other platforms.
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
/// The bytes after the magic number: `ELFCLASS64` and `ELFDATA2LSB`.
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

/// The size of an entry in the dynamic section, in bytes.
const DYNAMIC_SIZE: usize = 16;

/// The data that the dynamic loader reads from a program or a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Elf {
    /// The platform in the ELF header.
    pub(super) platform: Platform,
    /// The path of the dynamic loader. `None` for libraries and static programs.
    pub(super) loader: Option<String>,
    /// The names of the needed libraries (`DT_NEEDED`).
    pub(super) needed: Vec<String>,
    /// Folders that the loader searches before its default folders (`DT_RUNPATH`). `$ORIGIN` stands
    /// for the program's folder.
    pub(super) folders: Vec<String>,
}

impl Elf {
    /// Reads a program or a library.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if it is no ELF file of a known platform.
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
    /// The offset in the file, in bytes.
    offset: usize,
    /// The virtual address to which the loader maps the segment.
    address: u64,
    /// The length in the file, in bytes.
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

    /// Returns the file offset of a virtual address, if this segment contains the address.
    fn offset_of(&self, address: u64) -> Option<usize> {
        let inside = usize::try_from(address.checked_sub(self.address)?).ok()?;

        (self.kind == PT_LOAD && inside < self.size).then(|| self.offset.saturating_add(inside))
    }
}

/// The bytes of a file. Every access checks its offset, since the file may be malformed.
#[derive(Clone, Copy, Debug)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(self, at: usize) -> Result<[u8; N]> {
        self.0
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .context("the file is truncated")
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

    /// Reads a 64-bit offset or length.
    fn offset(self, at: usize) -> Result<usize> {
        Ok(usize::try_from(self.u64(at)?)?)
    }

    /// Reads a string up to its terminating zero byte.
    fn text(self, at: usize) -> Result<String> {
        let rest = self.0.get(at..).context("the file is truncated")?;
        let end = rest.iter().position(|byte| *byte == 0);
        let text = &rest[..end.context("the file is truncated")?];

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
            // Any result is valid, but the function must not panic.
            let _ = Elf::parse(&head[..end]);
        }
        let error = Elf::parse(&head[..60]).unwrap_err();

        assert_eq!(error.to_string(), "the file is truncated");
    }

    #[test]
    fn a_script_is_no_program() {
        let error = Elf::parse(b"#!/bin/sh\n").unwrap_err();

        assert_eq!(error.to_string(), "it is no 64-bit ELF program or library");
    }
}
