//! Selects the implementation of ChaCha20-Poly1305, WireGuard's cipher for data messages.
//!
//! boringtun encrypts and decrypts with ring. On CPUs with AVX-512, Intel's multi-buffer library
//! (ipsec-mb) takes a third less time. boringtun exposes neither its keys nor its cipher, so the
//! linker redirects ring's calls of ring's own assembly:
//!
//! ```text
//! boringtun -> ring::aead -> chacha20_poly1305_{seal,open}_avx2
//!                                  | --wrap, see build.rs
//!                                  v
//!                            ipsec_mb.c --+-- long data messages, if selected --> ipsec-mb
//!                                         +-- everything else -----------------> ring's assembly
//! ```
//!
//! ring still checks lengths, and compares the tag of a received message.
//!
//! Without the library at build time, and on other processors than x86-64, `ipsec_mb` is not
//! compiled, and ring calls its own assembly.

#[cfg(ipsec_mb)]
mod ipsec_mb;
#[cfg(not(ipsec_mb))]
mod ipsec_mb {
    use super::Unavailable;

    pub(super) fn enable() -> Result<(), Unavailable> {
        Err(Unavailable::NotBuilt)
    }

    pub(super) fn disable() {}
}

use serde::Serialize;

/// The operator's choice of the implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Choice {
    /// Intel's multi-buffer library on CPUs with AVX-512, else ring.
    Auto,
    /// The implementation of ring.
    Ring,
}

/// An implementation of ChaCha20-Poly1305.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Implementation {
    Ring,
    /// Intel's multi-buffer library, for long data messages; ring for all other messages.
    IpsecMb,
}

impl Implementation {
    /// Returns the name in logs, metrics and status.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::IpsecMb => "ipsec-mb",
        }
    }
}

/// The reason why the library cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Unavailable {
    /// The library was not installed when the gateway was built, or the processor is not x86-64.
    #[error("the gateway was built without Intel's multi-buffer library")]
    #[cfg_attr(ipsec_mb, expect(dead_code, reason = "the library is linked"))]
    NotBuilt,

    /// The CPU, or the kernel's setting of it, lacks instructions.
    #[error("the CPU lacks AVX-512 with IFMA")]
    #[cfg_attr(not(ipsec_mb), expect(dead_code, reason = "only the library needs it"))]
    Processor,

    /// ring does not call the functions that the linker has replaced.
    #[error("ring does not call Intel's multi-buffer library")]
    #[cfg_attr(not(ipsec_mb), expect(dead_code, reason = "only the library needs it"))]
    NotCalled,

    /// The library encrypts or decrypts a message differently from ring.
    #[error("Intel's multi-buffer library and ring disagree")]
    #[cfg_attr(not(ipsec_mb), expect(dead_code, reason = "only the library needs it"))]
    Differs,
}

/// Selects the implementation for all threads of the process.
///
/// Must be called before the first message: it encrypts test messages with both implementations, and
/// falls back to ring if they disagree.
pub(crate) fn select(choice: Choice) -> Implementation {
    ipsec_mb::disable();
    match choice {
        Choice::Ring => Implementation::Ring,
        Choice::Auto => match ipsec_mb::enable() {
            Ok(()) => Implementation::IpsecMb,
            Err(reason @ (Unavailable::NotBuilt | Unavailable::Processor)) => {
                tracing::info!(%reason, "ChaCha20-Poly1305 by ring");
                Implementation::Ring
            }
            Err(reason @ (Unavailable::NotCalled | Unavailable::Differs)) => {
                tracing::warn!(%reason, "ChaCha20-Poly1305 by ring: report this as a bug");
                Implementation::Ring
            }
        },
    }
}

#[cfg(test)]
mod tests;
