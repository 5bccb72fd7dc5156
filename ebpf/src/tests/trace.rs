//! What is told of dropped packets.

use super::overlay::from_node;
use super::packet::{Body, Packet};
use super::world::tables;
use super::{OUTER, Programs};
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

/// What is logged of a packet with a foreign source.
fn told_of_a_drop(log: bool) -> String {
    let programs = Programs::load_with(&tables(), OUTER, log);
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
fn a_dropped_packet_is_told_of_with_reason_and_addresses() {
    let told = told_of_a_drop(true);

    assert!(told.contains("overlay_unknown_source"), "{told}");
    assert!(told.contains("10.9.9.9 -> 10.245.1.10"), "{told}");
}

#[test]
fn nothing_is_told_when_that_is_switched_off() {
    assert_eq!(told_of_a_drop(false), "");
}
