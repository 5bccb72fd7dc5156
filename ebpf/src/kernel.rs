//! What kernels differ in.

use aya::util::KernelVersion;

/// From this version on `kernel.unprivileged_bpf_disabled` refuses only the creation of maps and
/// programs (Linux commit c8644cd0efe7).
const MAPS_BY_DESCRIPTOR: KernelVersion = KernelVersion::new(5, 19, 0);

/// Returns whether a process needs CAP_BPF to read and write maps that it holds.
///
/// Older kernels refuse every use of bpf(2) to processes without it, where
/// `kernel.unprivileged_bpf_disabled` is set, as in most distributions.
pub fn map_access_needs_cap_bpf() -> bool {
    KernelVersion::current().is_ok_and(|version| version < MAPS_BY_DESCRIPTOR)
}
