//! Tests of the log of dropped packets.

use super::fixture::tables;
use super::overlay::from_node;
use super::packet::{Body, Packet};
use super::{OUTER, load_with};
use crate::trace::Trace;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use tracing::Level;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs the overlay program on a packet whose source is outside of this cluster. Returns the log.
fn log_of_a_drop(log: bool) -> String {
    let programs = load_with(&tables(), OUTER, log);
    let mut trace = Trace::take(&mut programs.ebpf.borrow_mut()).unwrap();
    let body = Body::Other {
        protocol: 47,
        payload: vec![0; 40],
    };
    let packet = Packet::new("10.9.9.9", "10.245.1.10", body);
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();

    programs.overlay(&from_node(&packet.encode()));
    tracing::subscriber::with_default(subscriber, || trace.flush());

    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_dropped_packet_is_logged_with_reason_and_addresses() {
    let line = log_of_a_drop(true);

    assert!(line.contains("overlay_unknown_source"), "{line}");
    assert!(line.contains("10.9.9.9 -> 10.245.1.10"), "{line}");
}

#[test]
fn nothing_is_logged_by_default() {
    assert_eq!(log_of_a_drop(false), "");
}
