//! Probes of the tunnel and of the overlay.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::probes(input));
