//! Fuzzes the parsers of tunnel probes and overlay probes.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::probes(input));
