//! Differences between kernel versions.

use aya::util::KernelVersion;

/// First version in which a process without CAP_BPF may access maps by their descriptors, although
/// `kernel.unprivileged_bpf_disabled` is set (Linux commit c8644cd0efe7).
const MAPS_BY_DESCRIPTOR: KernelVersion = KernelVersion::new(5, 19, 0);

/// Returns whether a process needs CAP_BPF to access maps whose descriptors it has open.
///
/// If `kernel.unprivileged_bpf_disabled` is set, as in most distributions, older kernels refuse all
/// calls of bpf(2) to processes without CAP_BPF.
pub fn map_access_needs_cap_bpf() -> bool {
    KernelVersion::current().is_ok_and(|version| version < MAPS_BY_DESCRIPTOR)
}
