//! Fuzzes the gateway's engine with sequences of datagrams and time steps.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::datagrams(input));
