//! Checks of reachability, and of the source addresses that the servers see.

use super::Verdict;
use crate::demo::report::Throughput;
use crate::demo::scenario::{ADDRESS, MILAN, ROME, Scenario};
use anyhow::{Context as _, Result};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};
use tests::lab::pod::Pod;
use tests::traffic::ping::Ping;
use tests::traffic::{counters, tcp, udp};

const TCP_PORT: u16 = 8080;

const UDP_PORT: u16 = 8081;

/// A UDP port on which no socket is bound.
const CLOSED_PORT: u16 = 9;

/// Enough bytes to use the connection beyond the TCP handshake.
const FEW_BYTES: u64 = 100_000;

/// Enough bytes for TCP to reach its full throughput. The transfer takes about a second on a small
/// machine.
const MANY_BYTES: u64 = 256 << 20;

const DATAGRAMS: u32 = 100;
const LARGE_DATAGRAMS: u32 = 5;
const LARGE_BYTES: usize = 60_000;

pub(super) fn pod_to_pod(scenario: &mut Scenario) -> Result<Verdict> {
    connection(&scenario.rome, &scenario.milan, scenario.milan_seen)
}

pub(super) fn pod_to_pod_back(scenario: &mut Scenario) -> Result<Verdict> {
    connection(&scenario.milan, &scenario.rome, scenario.rome_seen)
}

fn connection(client: &Pod, server: &Pod, seen: Ipv4Addr) -> Result<Verdict> {
    let listener = tcp::Server::start(&server.netns, server.address, TCP_PORT)?;

    let outcome = tcp::transfer(&client.netns, at(seen, TCP_PORT), FEW_BYTES)?;

    let received = listener.received();
    Ok(Verdict::new(
        received == FEW_BYTES && listener.clients().len() == 1,
        format!(
            "{} in {} -> {seen}: the server in {} got {received} of {FEW_BYTES} bytes in {}",
            client.address,
            client.cluster,
            server.cluster,
            milliseconds(outcome.elapsed),
        ),
    ))
}

pub(super) fn same_address(scenario: &mut Scenario) -> Result<Verdict> {
    let listener = tcp::Server::start(&scenario.milan.netns, ADDRESS, TCP_PORT)?;

    let connection = tcp::connect(&scenario.rome.netns, at(scenario.milan_seen, TCP_PORT))?;

    let client = connection.local_addr().context("the client's address")?;
    let server = listener.address();
    Ok(Verdict::new(
        client.ip() == IpAddr::V4(*server.ip()),
        format!("client socket {client} in rome, server socket {server} in milan"),
    ))
}

pub(super) fn source_seen(scenario: &mut Scenario) -> Result<Verdict> {
    let there = seen_by(&scenario.rome, &scenario.milan, scenario.milan_seen)?;
    let back = seen_by(&scenario.milan, &scenario.rome, scenario.rome_seen)?;

    Ok(Verdict::new(
        there == [IpAddr::V4(scenario.rome_seen)] && back == [IpAddr::V4(scenario.milan_seen)],
        format!("milan's server saw {there:?}, rome's server saw {back:?}"),
    ))
}

fn seen_by(client: &Pod, server: &Pod, seen: Ipv4Addr) -> Result<Vec<IpAddr>> {
    let listener = tcp::Server::start(&server.netns, server.address, TCP_PORT)?;
    tcp::transfer(&client.netns, at(seen, TCP_PORT), FEW_BYTES)?;

    Ok(listener.client_addresses())
}

pub(super) fn host_to_pod(scenario: &mut Scenario) -> Result<Verdict> {
    let node = scenario.lab.cluster(ROME).node(1);
    let mapped = scenario.lab.mapped(ROME, &format!("node-{}", node.name))?;
    let expected = scenario.lab.seen_from(MILAN, ROME, mapped)?;
    let listener = tcp::Server::start(&scenario.milan.netns, ADDRESS, TCP_PORT)?;

    tcp::transfer(&node.netns, at(scenario.milan_seen, TCP_PORT), FEW_BYTES)?;

    let seen = listener.client_addresses();
    Ok(Verdict::new(
        seen == [IpAddr::V4(expected)],
        format!(
            "node {} ({}, {mapped} in rome's external CIDR): milan's server saw {seen:?}",
            node.name, node.internal_ip,
        ),
    ))
}

pub(super) fn tcp_intact(scenario: &mut Scenario) -> Result<Verdict> {
    let listener = tcp::Server::start(&scenario.milan.netns, ADDRESS, TCP_PORT)?;

    let outcome = tcp::transfer(
        &scenario.rome.netns,
        at(scenario.milan_seen, TCP_PORT),
        MANY_BYTES,
    )?;

    let received = listener.received();
    let mut broken = counters::broken(&scenario.rome.netns)?;
    broken.extend(counters::broken(&scenario.milan.netns)?);
    let throughput = Throughput {
        tcp_bits_per_second: outcome.bits_per_second(),
        tcp_bytes: received,
    };
    Ok(Verdict {
        pass: received == MANY_BYTES && broken.is_empty() && throughput.tcp_bits_per_second > 0.0,
        measured: format!(
            "{} MB compared, {:.2} Gb/s, broken packets: {}",
            received / 1_000_000,
            throughput.tcp_bits_per_second / 1e9,
            if broken.is_empty() {
                "none".to_owned()
            } else {
                format!("{broken:?}")
            },
        ),
        throughput: Some(throughput),
    })
}

pub(super) fn udp(scenario: &mut Scenario) -> Result<Verdict> {
    echoes(scenario, DATAGRAMS, 512)
}

pub(super) fn large_udp(scenario: &mut Scenario) -> Result<Verdict> {
    echoes(scenario, LARGE_DATAGRAMS, LARGE_BYTES)
}

fn echoes(scenario: &Scenario, count: u32, bytes: usize) -> Result<Verdict> {
    let echo = udp::Echo::start(&scenario.milan.netns, ADDRESS, UDP_PORT)?;
    let to = at(scenario.milan_seen, UDP_PORT);

    let echoed = (0..count)
        .filter(|&number| {
            let payload: Vec<u8> = (0..bytes)
                .map(|at| (at as u32 * 7 + number) as u8)
                .collect();
            udp::is_echoed(&scenario.rome.netns, to, &payload)
        })
        .count();

    let clients = echo.clients().len();
    Ok(Verdict::new(
        echoed == count as usize && clients == echoed,
        format!("{echoed} of {count} datagrams of {bytes} bytes came back unchanged"),
    ))
}

pub(super) fn icmp(scenario: &mut Scenario) -> Result<Verdict> {
    let report = Ping::default().run(&scenario.rome.netns, scenario.milan_seen)?;

    Ok(Verdict::new(
        report.is_complete(),
        format!(
            "{} of {} replies, on average after {}",
            report.received,
            report.sent,
            report.rtt.map_or("-".to_owned(), milliseconds),
        ),
    ))
}

pub(super) fn icmp_error(scenario: &mut Scenario) -> Result<Verdict> {
    let start = Instant::now();
    let to = at(scenario.milan_seen, CLOSED_PORT);

    let reply = udp::exchange(&scenario.rome.netns, to, b"anyone?", Duration::from_secs(2));

    let took = milliseconds(start.elapsed());
    Ok(match reply {
        Err(error) => Verdict::new(
            error.kind() == ErrorKind::ConnectionRefused,
            format!("the socket of the sender reports \"{error}\" after {took}"),
        ),
        Ok(_) => Verdict::new(false, "a closed port replied"),
    })
}

fn at(address: Ipv4Addr, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(address, port)
}

pub(super) fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}
