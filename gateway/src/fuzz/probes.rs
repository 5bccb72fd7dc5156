//! Harness for both probe parsers: the JSON of the tunnel and the binary format of the overlay.

use crate::engine::probe;
use ebpf_common::probe::{LEN, Probe};

pub(crate) fn run(bytes: &[u8]) {
    for from_ours in [false, true] {
        let _ = probe::parse(bytes, from_ours);
    }

    if let Some(parsed) = Probe::parse(bytes) {
        assert_eq!(parsed.encode(), bytes, "encoding restores the bytes");
        let _ = (0..2 * LEN * 8)
            .filter(|rank| parsed.body.is_up(*rank))
            .count();
    }
}
