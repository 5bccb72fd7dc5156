//! The parts of a ShadowEndpointSlice that its EndpointSlice lacks.

use super::addresses::Refusal;

/// Parts that an Event names. A note has 1024 bytes at most.
const NAMED_MAX: usize = 4;

/// Longest name of a part in an Event, in characters.
const SHOWN_MAX: usize = 64;

/// Parts that are left out, because they are invalid or not allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    named: Vec<String>,
    /// Number of all parts.
    count: usize,
    /// Number of addresses.
    pub(crate) addresses: usize,
    /// Whether one is left out because a node has the address.
    pub(super) has_node: bool,
}

impl Dropped {
    /// Notes an address.
    pub(super) fn address(&mut self, address: &str, refusal: Refusal) {
        self.addresses += 1;
        self.has_node |= refusal == Refusal::Node;
        self.part("address", address, &refusal.to_string());
    }

    /// Notes addresses that exceed a limit.
    pub(crate) fn surplus_addresses(&mut self, count: usize, max: usize) {
        if count > 0 {
            self.addresses += count;
            self.count += count - 1;
            self.part(
                "addresses",
                &count.to_string(),
                &format!("more than {max}: use several slices"),
            );
        }
    }

    /// Notes another part.
    pub(super) fn part(&mut self, kind: &str, name: &str, reason: &str) {
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            let shown: String = name.escape_debug().take(SHOWN_MAX).collect();
            self.named.push(format!("{kind} {shown} ({reason})"));
        }
    }

    /// Returns the message of an Event; `None` if nothing is left out.
    pub(crate) fn message(&self) -> Option<String> {
        let more = match self.count.saturating_sub(self.named.len()) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };

        (self.count > 0).then(|| {
            format!(
                "left out of the EndpointSlice: {}{more}",
                self.named.join(", ")
            )
        })
    }
}
