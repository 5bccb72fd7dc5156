//! Notes where datagrams for the engine arrive.

use aya_ebpf::helpers::bpf_get_smp_processor_id;
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;

#[map]
static ARRIVALS: Array<u32> = Array::with_max_entries(1, 0);

/// Notes the CPU that runs this.
pub(crate) fn note() {
    if let Some(cpu) = ARRIVALS.get_ptr_mut(0) {
        // SAFETY: the array's value, which is as aligned as its type; a torn or lost write
        // does no harm, and there is none of four bytes.
        unsafe { cpu.write_volatile(bpf_get_smp_processor_id()) };
    }
}
