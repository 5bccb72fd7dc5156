//! Reads what a program asks its loader for.
//!
//! The form is that of `elf(5)`, 64 bits, little endian, which is what both
//! platforms use. Reading it, unlike asking `ldd`, runs nothing and works for the
//! programs of another platform too.
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

/// Sizes in bytes of an entry of the dynamic section.
const DYNAMIC_SIZE: usize = 16;

/// A program or library, as its loader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Elf {
    /// What it runs on.
    pub(super) platform: Platform,
    /// The path of its loader; libraries and static programs have none.
    pub(super) loader: Option<String>,
    /// The libraries it needs, by name.
    pub(super) needed: Vec<String>,
    /// Where it wants them to be looked for first, `$ORIGIN` being its own folder.
    pub(super) folders: Vec<String>,
}

impl Elf {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be read or is no program of a known platform.
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
            other => bail!("it is for machine {other}, which no image is made for"),
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
            .context("its strings are outside of it")?;

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

/// A part of the file that the loader cares for.
#[derive(Debug)]
struct Segment {
    kind: u32,
    /// Where it begins in the file.
    offset: usize,
    /// Where it begins in memory.
    address: u64,
    /// Its length in the file.
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

    /// Where in the file an address in memory is, if it is in this segment.
    fn offset_of(&self, address: u64) -> Option<usize> {
        let inside = usize::try_from(address.checked_sub(self.address)?).ok()?;

        (self.kind == PT_LOAD && inside < self.size).then(|| self.offset.saturating_add(inside))
    }
}

/// A file in memory, of which no claim is believed.
#[derive(Clone, Copy, Debug)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(self, at: usize) -> Result<[u8; N]> {
        self.0
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .context("it is cut off")
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

    /// A number that is an offset or a length.
    fn offset(self, at: usize) -> Result<usize> {
        Ok(usize::try_from(self.u64(at)?)?)
    }

    /// Text that ends with a zero.
    fn text(self, at: usize) -> Result<String> {
        let rest = self.0.get(at..).context("it is cut off")?;
        let end = rest.iter().position(|byte| *byte == 0);
        let text = &rest[..end.context("it is cut off")?];

        Ok(String::from_utf8(text.to_vec())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_this_machine_names_its_loader_and_the_c_library() {
        let elf = Elf::read(&std::env::current_exe().unwrap()).unwrap();

        assert_eq!(elf.platform, Platform::machine().unwrap());
        assert!(elf.loader.unwrap().contains("/ld-"));
        assert!(elf.needed.contains(&"libc.so.6".to_owned()));
    }

    #[test]
    fn a_file_that_is_cut_off_anywhere_is_refused_or_read() {
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let head = &whole[..4096.min(whole.len())];

        for end in 0..head.len() {
            // Whatever it says, it must not panic.
            let _ = Elf::parse(&head[..end]);
        }
        let error = Elf::parse(&head[..60]).unwrap_err();

        assert_eq!(error.to_string(), "it is cut off");
    }

    #[test]
    fn a_script_is_no_program() {
        let error = Elf::parse(b"#!/bin/sh\n").unwrap_err();

        assert_eq!(error.to_string(), "it is no 64-bit ELF program or library");
    }
}
