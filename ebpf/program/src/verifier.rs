//! Limits the work of the kernel's verifier.

use aya_ebpf::programs::TcContext;
use core::hint::black_box;

/// Returns `value` unchanged, but hides its range from the verifier.
///
/// If the verifier knew the range of an offset, it would check a loop over options separately for
/// each offset. The number of these paths may exceed the verifier's limit.
#[inline(always)]
pub(crate) fn opaque(ctx: &TcContext, value: u32) -> u32 {
    let unknown = ctx.len();
    black_box(value ^ unknown) ^ unknown
}
