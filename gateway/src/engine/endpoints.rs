//! The endpoints of a peer in the server role: IP addresses and host names.

use super::tunnelled::Tunnelled;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Interval of DNS lookups of a name during the first [`RESOLVE_PERIOD`]. It is upstream Liqo's
/// value.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);
/// Time after the first lookup of a name until the interval increases. It is upstream Liqo's value.
const RESOLVE_PERIOD: Duration = Duration::from_secs(600);
/// Interval of DNS lookups of a known name after [`RESOLVE_PERIOD`].
const RESOLVE_INTERVAL_LATER: Duration = Duration::from_secs(300);
/// Upper limit of addresses per name. Further addresses are ignored.
const ADDRESSES_MAX: usize = 32;

/// The endpoints of one peer, in the configured order.
#[derive(Debug)]
pub(super) struct Endpoints {
    port: u16,
    entries: Vec<Entry>,
    /// Prefixes that are routed into tunnels. Addresses in these prefixes are never used as
    /// endpoints.
    tunnelled: Tunnelled,
    /// Number of addresses that [`Endpoints::next`] has returned, for round robin.
    rotation: usize,
}

#[derive(Debug)]
struct Entry {
    host: String,
    addresses: Vec<SocketAddr>,
    /// `None` for an IP literal.
    lookup: Option<Lookup>,
}

#[derive(Clone, Copy, Debug)]
struct Lookup {
    since: Instant,
    next: Instant,
}

impl Endpoints {
    pub(super) fn new(hosts: &[String], port: u16, now: Instant) -> Self {
        let mut endpoints = Self {
            port,
            entries: Vec::new(),
            tunnelled: Tunnelled::default(),
            rotation: 0,
        };
        endpoints.set(hosts, port, now);
        endpoints
    }

    /// Replaces the hosts, and returns whether they changed. A host that remains keeps its
    /// addresses.
    pub(super) fn set(&mut self, hosts: &[String], port: u16, now: Instant) -> bool {
        let known = self.entries.iter().map(|entry| &entry.host);
        if port == self.port && known.eq(hosts) {
            return false;
        }
        let mut old = std::mem::take(&mut self.entries);
        if port != self.port {
            old.clear();
            self.port = port;
        }

        self.entries = hosts
            .iter()
            .map(|host| match old.iter().position(|e| e.host == *host) {
                Some(position) => old.swap_remove(position),
                None => Entry::new(host, port, now),
            })
            .collect();
        true
    }

    /// Sets the prefixes that are routed into tunnels.
    pub(super) fn set_tunnelled(&mut self, tunnelled: Tunnelled) {
        self.tunnelled = tunnelled;
    }

    /// Replaces the addresses of `host`, and returns the number of addresses that were refused
    /// because they are inside a tunnel. The known addresses remain if none of the new addresses is
    /// usable.
    pub(super) fn handle_resolved(&mut self, host: &str, mut addresses: Vec<SocketAddr>) -> usize {
        let all = addresses.len();
        addresses.retain(|address| !self.tunnelled.contains(*address));
        let refused = all - addresses.len();
        addresses.truncate(ADDRESSES_MAX);
        let entry = self.entries.iter_mut().find(|e| e.host == host);
        if let Some(entry) = entry
            && entry.lookup.is_some()
            && !addresses.is_empty()
        {
            entry.addresses = addresses;
        }

        refused
    }

    /// Returns the next name whose DNS lookup is due, and schedules its next lookup.
    pub(super) fn poll_lookup(&mut self, now: Instant) -> Option<String> {
        self.entries.iter_mut().find_map(|entry| {
            let lookup = entry.lookup.as_mut().filter(|lookup| lookup.next <= now)?;
            // A name that has never resolved is probably a mistake. The short interval makes a
            // correction take effect soon.
            let is_known = !entry.addresses.is_empty();
            let interval = if !is_known || now.duration_since(lookup.since) < RESOLVE_PERIOD {
                RESOLVE_INTERVAL
            } else {
                RESOLVE_INTERVAL_LATER
            };
            lookup.next = now + interval;
            Some(entry.host.clone())
        })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn contains(&self, address: SocketAddr) -> bool {
        self.addresses().any(|known| known == address)
    }

    /// Returns the first known address. Upstream's client uses only this address.
    pub(super) fn first(&self) -> Option<SocketAddr> {
        self.addresses().next()
    }

    /// Returns one of the known addresses. Repeated calls return them in turn.
    pub(super) fn next(&mut self) -> Option<SocketAddr> {
        let count = self.addresses().count();
        let position = self.rotation.checked_rem(count)?;
        self.rotation += 1;
        self.addresses().nth(position)
    }

    pub(super) fn len(&self) -> usize {
        self.addresses().count()
    }

    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let known = self.entries.iter().flat_map(|e| &e.addresses).copied();

        known.filter(|address| !self.tunnelled.contains(*address))
    }
}

impl Entry {
    fn new(host: &str, port: u16, now: Instant) -> Self {
        let literal = host.parse::<IpAddr>().ok();

        Self {
            host: host.to_owned(),
            addresses: literal.map(|ip| (ip, port).into()).into_iter().collect(),
            lookup: literal.is_none().then_some(Lookup {
                since: now,
                next: now,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(hosts: &[&str]) -> Vec<String> {
        hosts.iter().map(|host| (*host).to_owned()).collect()
    }

    fn address(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    #[test]
    fn literals_need_no_lookup_and_are_used_round_robin() {
        let now = Instant::now();
        let mut endpoints = Endpoints::new(&hosts(&["192.0.2.1", "2001:db8::1"]), 51840, now);

        assert_eq!(endpoints.poll_lookup(now), None);
        assert_eq!(endpoints.first(), Some(address("192.0.2.1:51840")));
        assert_eq!(endpoints.next(), Some(address("192.0.2.1:51840")));
        assert_eq!(endpoints.next(), Some(address("[2001:db8::1]:51840")));
        assert_eq!(endpoints.next(), Some(address("192.0.2.1:51840")));
    }

    #[test]
    fn a_name_is_looked_up_often_at_first_and_seldom_later() {
        let start = Instant::now();
        let mut endpoints = Endpoints::new(&hosts(&["gw.example"]), 51840, start);

        let lookups = |endpoints: &mut Endpoints, from: u64, to: u64| {
            (from..to)
                .filter(|s| {
                    endpoints
                        .poll_lookup(start + Duration::from_secs(*s))
                        .is_some()
                })
                .count()
        };

        assert_eq!(lookups(&mut endpoints, 0, 600), 120);
        // A name without an address keeps the short interval.
        assert_eq!(lookups(&mut endpoints, 600, 1_200), 120);
        endpoints.handle_resolved("gw.example", vec![address("192.0.2.1:51840")]);
        assert_eq!(lookups(&mut endpoints, 1_200, 2_400), 4);
    }

    #[test]
    fn a_failed_lookup_keeps_the_known_addresses() {
        let now = Instant::now();
        let mut endpoints = Endpoints::new(&hosts(&["gw.example"]), 51840, now);
        endpoints.handle_resolved("gw.example", vec![address("192.0.2.1:51840")]);

        endpoints.handle_resolved("gw.example", Vec::new());
        endpoints.handle_resolved("other.example", vec![address("192.0.2.9:51840")]);

        assert_eq!(endpoints.len(), 1);
        assert!(endpoints.contains(address("192.0.2.1:51840")));
    }

    #[test]
    fn hosts_that_stay_keep_their_addresses() {
        let now = Instant::now();
        let mut endpoints = Endpoints::new(&hosts(&["gw.example"]), 51840, now);
        endpoints.handle_resolved("gw.example", vec![address("192.0.2.1:51840")]);

        endpoints.set(&hosts(&["192.0.2.7", "gw.example"]), 51840, now);

        assert_eq!(endpoints.len(), 2);
        assert_eq!(endpoints.first(), Some(address("192.0.2.7:51840")));
        assert!(endpoints.contains(address("192.0.2.1:51840")));
    }

    #[test]
    fn without_addresses_there_is_no_next_one() {
        let mut endpoints = Endpoints::new(&[], 51840, Instant::now());

        assert_eq!(endpoints.next(), None);
    }
}
