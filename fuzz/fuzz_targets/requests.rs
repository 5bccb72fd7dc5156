//! Fuzzes the parser of requests to the proxy in front of the API server.
//!
//! The first byte of the input is the length of the pieces in which the rest arrives. The target checks
//! that the pieces do not change the result, and that the proxy accepts nothing but CONNECT requests
//! with a head of limited length.

#![no_main]

use request::{HEAD_LEN_MAX, HeadReader, Progress};

// The module has no dependencies, so the fuzzer need not build the rest of its crate.
#[path = "../../control/edge/src/proxy/request.rs"]
mod request;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some((&length, request)) = input.split_first() {
        run(usize::from(length).max(1), request);
    }
});

fn run(length: usize, request: &[u8]) {
    let progress = HeadReader::default().push(request);
    let mut reader = HeadReader::default();
    let mut in_pieces = Progress::Incomplete;
    for piece in request.chunks(length) {
        match &mut in_pieces {
            Progress::Incomplete => in_pieces = reader.push(piece),
            Progress::Connect { early_data } => early_data.extend_from_slice(piece),
            Progress::Refused(_) => {}
        }
    }
    assert_eq!(in_pieces, progress);

    match progress {
        Progress::Connect { early_data } => {
            let head = &request[..request.len() - early_data.len()];
            assert!(head.starts_with(b"CONNECT ") && head.ends_with(b"\r\n\r\n"));
            assert!(head.len() <= HEAD_LEN_MAX);
            assert!(request.ends_with(&early_data));
        }
        Progress::Incomplete => assert!(request.len() < HEAD_LEN_MAX),
        Progress::Refused(_) => {}
    }
}
