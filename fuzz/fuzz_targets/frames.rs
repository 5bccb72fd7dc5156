//! Frames from the TAP and packets from peers, through split and coalesce.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::frames(input));
