//! Fuzzes the segmentation of frames from the TAP, and the coalescing of packets from peers.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::frames(input));
