//! A processor that images are built for, and what compiles for it.

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use std::env;

/// By the name that images use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Processor {
    /// 64-bit x86.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Processor {
    const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// This machine's.
    ///
    /// # Errors
    ///
    /// Returns an error on a machine that is neither.
    pub(crate) fn machine() -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|processor| processor.architecture() == env::consts::ARCH)
            .with_context(|| {
                format!(
                    "no image can be built for this machine, which is {}: name others with --arch",
                    env::consts::ARCH
                )
            })
    }

    /// Whether this machine runs its programs.
    pub(super) fn is_machine(self) -> bool {
        self.architecture() == env::consts::ARCH
    }

    /// Its name in images and in Debian.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Rust's target whose programs need no library.
    pub(super) fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.architecture())
    }

    /// The compiler for C, and the linker. The machine's own is good for musl too:
    /// Rust brings musl's libraries, and the cipher's C code needs no header of one.
    pub(super) fn compiler(self) -> String {
        if self.is_machine() {
            "cc".to_owned()
        } else {
            format!("{}-linux-gnu-gcc", self.architecture())
        }
    }

    /// Debian's packages that have [`Self::compiler`] and headers for it.
    pub(super) fn compiler_packages(self) -> &'static str {
        if self.is_machine() {
            return "build-essential";
        }
        match self {
            Self::Amd64 => "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
            Self::Arm64 => "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        }
    }

    /// Its name in Rust's targets.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }
}
