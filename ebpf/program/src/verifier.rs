//! Help for the kernel's verifier.

use aya_ebpf::programs::TcContext;
use core::hint::black_box;

/// Returns `value`, about which the verifier then knows nothing.
///
/// If it knows a range, it follows every value that a comparison leaves; in a loop
/// over options that is one for each path through all of them.
#[inline(always)]
pub(crate) fn opaque(ctx: &TcContext, value: u32) -> u32 {
    let unknown = ctx.len();
    black_box(value ^ unknown) ^ unknown
}
