//! Passes the programs' log of dropped packets on to `tracing`.

use crate::error::Error;
use aya::Ebpf;
use aya_log::EbpfLogger;
use ebpf_common::counter::Counter;
use log::{Log, Metadata, Record};
use std::os::fd::{AsFd, BorrowedFd};

/// The log of dropped packets; its descriptor is readable when there are entries to
/// [`Trace::flush`].
pub struct Trace {
    logger: EbpfLogger<Relay>,
}

impl Trace {
    /// Takes the ring buffer out of a loaded object.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Missing`] if object and loader are of different revisions.
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Self, Error> {
        let logger = EbpfLogger::init_with_logger(ebpf, Relay);
        let logger = logger.map_err(|_| Error::Missing { name: "AYA_LOGS" })?;
        Ok(Self { logger })
    }

    /// Logs all new entries.
    pub fn flush(&mut self) {
        self.logger.flush();
    }
}

impl AsFd for Trace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.logger.as_fd()
    }
}

/// Replaces the number of a reason, which the kernel logs, by its name.
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
