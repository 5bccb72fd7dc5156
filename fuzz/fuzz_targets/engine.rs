//! Sequences of datagrams, and time, into the gateway's engine.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::datagrams(input));
