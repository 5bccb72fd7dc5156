//! The processor architectures of images, and the C compilers for them.

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use std::env;

/// A processor architecture, named as in image manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Processor {
    /// 64-bit x86.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Processor {
    const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// Returns the architecture of this machine.
    ///
    /// # Errors
    ///
    /// Returns an error if this machine's architecture is not supported.
    pub(crate) fn machine() -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|processor| processor.architecture() == env::consts::ARCH)
            .with_context(|| {
                format!(
                    "images cannot be built for this machine's processor {}: choose others with --arch",
                    env::consts::ARCH
                )
            })
    }

    /// Returns whether this machine can run binaries for the architecture.
    pub(super) fn is_machine(self) -> bool {
        self.architecture() == env::consts::ARCH
    }

    /// Returns the name that image manifests and Debian use.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Returns Rust's target triple for statically linked programs.
    pub(super) fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.architecture())
    }

    /// Returns the name of the C compiler, which is also the linker.
    ///
    /// The target is musl, but a compiler for glibc is sufficient: Rust provides musl's libraries,
    /// and the C code of ring also compiles with glibc's headers.
    pub(super) fn compiler(self) -> String {
        if self.is_machine() {
            "cc".to_owned()
        } else {
            format!("{}-linux-gnu-gcc", self.architecture())
        }
    }

    /// Returns the Debian packages that contain [`Self::compiler`] and its headers.
    pub(super) fn compiler_packages(self) -> &'static str {
        if self.is_machine() {
            return "gcc libc6-dev";
        }
        match self {
            Self::Amd64 => "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
            Self::Arm64 => "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        }
    }

    /// Returns the name that Rust's target triples use.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }
}
