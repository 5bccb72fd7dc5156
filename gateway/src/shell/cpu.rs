//! What this machine's CPU has instructions for.

/// Returns whether it has those with which AES-256-GCM is several times as fast as ChaCha20-Poly1305:
/// for AES, and for the carry-less multiplication of GCM.
pub(crate) fn is_fast_at_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        has!("aes") && has!("pclmulqdq") && has!("avx")
    }
    #[cfg(target_arch = "aarch64")]
    {
        use std::arch::is_aarch64_feature_detected as has;
        has!("aes") && has!("pmull")
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}
