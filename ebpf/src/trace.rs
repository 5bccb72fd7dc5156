//! Forwards the programs' log of dropped packets to `tracing`.

use crate::error::Error;
use aya::Ebpf;
use aya_log::EbpfLogger;
use ebpf_common::counter::Counter;
use log::{Log, Metadata, Record};
use std::os::fd::{AsFd, BorrowedFd};

/// The log of dropped packets.
///
/// Its file descriptor is readable if there are entries, which [`Trace::flush`] forwards.
pub struct Trace {
    logger: EbpfLogger<Relay>,
}

impl Trace {
    /// Takes the ring buffer of the log out of the loaded object file.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Missing`] if the object file lacks the ring buffer.
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Self, Error> {
        let logger = EbpfLogger::init_with_logger(ebpf, Relay);
        let logger = logger.map_err(|_| Error::Missing { name: "AYA_LOGS" })?;
        Ok(Self { logger })
    }

    /// Forwards all new entries to `tracing`.
    pub fn flush(&mut self) {
        self.logger.flush();
    }
}

impl AsFd for Trace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.logger.as_fd()
    }
}

/// A logger that replaces the number of the drop reason in an entry by the counter's name.
struct Relay;

impl Log for Relay {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let (reason, packet) = parse(&record.args().to_string());
        tracing::info!(reason, packet, "dropped a packet");
    }

    fn flush(&self) {}
}

fn parse(message: &str) -> (&'static str, String) {
    let (number, packet) = message.split_once(' ').unwrap_or((message, ""));
    let reason = (number.parse().ok())
        .and_then(|number: usize| Counter::ALL.get(number))
        .map_or("unknown", |counter| counter.name());

    (reason, packet.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_reason_becomes_its_name() {
        let message = format!("{} 10.0.0.1 -> 10.0.0.2", Counter::TapUnknownSource as u32);

        let parsed = parse(&message);

        assert_eq!(
            parsed,
            ("tap_unknown_source", "10.0.0.1 -> 10.0.0.2".to_owned())
        );
    }

    #[test]
    fn a_foreign_message_has_an_unknown_reason() {
        assert_eq!(parse("4000 x").0, "unknown");
        assert_eq!(parse("").0, "unknown");
    }
}
