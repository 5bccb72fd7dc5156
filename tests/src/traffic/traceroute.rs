//! Finds the routers on a path with the program `traceroute`.

use crate::lab::netns::Netns;
use anyhow::Result;
use std::net::Ipv4Addr;

/// The kind of packets that `traceroute` sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// UDP datagrams to unused ports, which are the default of `traceroute`.
    Udp,
    /// TCP SYNs to this port.
    Tcp(u16),
    /// ICMP echo requests (option `-I`).
    Icmp,
}

/// Returns the addresses of the routers on the path to `to`, with `None` for a router that does not
/// reply. If `to` replies, its address is the last element.
///
/// # Errors
///
/// Returns an error if `traceroute` fails.
pub fn hops(netns: &Netns, to: Ipv4Addr, probe: Probe) -> Result<Vec<Option<Ipv4Addr>>> {
    let to = to.to_string();
    let mut args = vec!["-n", "-q", "1", "-w", "1", "-m", "12"];
    let port;
    match probe {
        Probe::Udp => {}
        Probe::Icmp => args.push("-I"),
        Probe::Tcp(number) => {
            port = number.to_string();
            args.extend(["-T", "-p", &port]);
        }
    }
    args.push(&to);

    Ok(parse(&netns.exec("traceroute", &args, "")?))
}

fn parse(text: &str) -> Vec<Option<Ipv4Addr>> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            words.next()?.parse::<u8>().ok()?;
            Some(words.next()?.parse().ok())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_router_is_none() {
        let text = "traceroute to 10.0.0.9 (10.0.0.9), 12 hops max, 60 byte packets\n \
            1  10.244.1.1  0.053 ms\n 2  *\n 3  10.0.0.9  0.1 ms\n";

        assert_eq!(
            parse(text),
            [
                Some(Ipv4Addr::new(10, 244, 1, 1)),
                None,
                Some(Ipv4Addr::new(10, 0, 0, 9)),
            ]
        );
    }
}
