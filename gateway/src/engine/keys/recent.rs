//! Remembers the local key that each source used last. The gateway tries this key first, and does
//! not count the try towards a limit.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Upper limit of remembered sources.
const SOURCES_MAX: usize = 4_096;

/// The local key that each source used last, as a public key.
#[derive(Default)]
pub(super) struct RecentKeys {
    by_source: BTreeMap<IpAddr, Recent>,
    /// The sources by the sequence number of their last [`RecentKeys::remember`], which finds the
    /// least recent source.
    by_order: BTreeMap<u64, IpAddr>,
    next_order: u64,
}

struct Recent {
    public: [u8; 32],
    order: u64,
}

impl RecentKeys {
    pub(super) fn get(&self, source: IpAddr) -> Option<[u8; 32]> {
        self.by_source.get(&source).map(|recent| recent.public)
    }

    /// Remembers the key of a source. Beyond [`SOURCES_MAX`] the least recent source is removed.
    pub(super) fn remember(&mut self, source: IpAddr, public: [u8; 32]) {
        let order = self.next_order;
        self.next_order += 1;
        if let Some(before) = self.by_source.insert(source, Recent { public, order }) {
            self.by_order.remove(&before.order);
        }
        self.by_order.insert(order, source);

        if self.by_source.len() > SOURCES_MAX
            && let Some((_, oldest)) = self.by_order.pop_first()
        {
            self.by_source.remove(&oldest);
        }
    }

    /// Removes the sources of keys that are no longer used.
    pub(super) fn retain(&mut self, is_used: impl Fn(&[u8; 32]) -> bool) {
        self.by_source.retain(|_, recent| is_used(&recent.public));
        self.by_order
            .retain(|_, source| self.by_source.contains_key(source));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: usize) -> IpAddr {
        IpAddr::from(u32::try_from(number).unwrap().to_be_bytes())
    }

    #[test]
    fn the_least_recent_source_is_forgotten() {
        let mut recent = RecentKeys::default();
        for number in 0..SOURCES_MAX {
            recent.remember(source(number), [1; 32]);
        }

        recent.remember(source(0), [2; 32]);
        recent.remember(source(SOURCES_MAX), [3; 32]);

        assert_eq!(recent.get(source(0)), Some([2; 32]), "authenticated again");
        assert_eq!(recent.get(source(1)), None, "the least recent");
        assert_eq!(recent.get(source(SOURCES_MAX)), Some([3; 32]));
        assert_eq!(recent.by_order.len(), SOURCES_MAX);
    }

    #[test]
    fn sources_are_forgotten_with_their_key() {
        let mut recent = RecentKeys::default();
        recent.remember(source(1), [1; 32]);
        recent.remember(source(2), [2; 32]);

        recent.retain(|public| *public == [2; 32]);

        assert_eq!(recent.get(source(1)), None);
        assert_eq!(recent.get(source(2)), Some([2; 32]));
        assert_eq!(recent.by_order.len(), 1);
    }
}
