//! The cipher of data: what two gateways choose, and what passes the wire then.

use crate::fixture::{MILAN, Pair, ROME, SAME, SOON, eventually, two};
use std::collections::BTreeSet;
use std::time::Duration;
use tests::lab::spec::Spec;
use tests::lab::{Lab, status};
use tests::traffic::capture::Capture;
use tests::traffic::{tcp, udp};

/// WireGuard's data, and such of our own form: type, and three bytes that WireGuard reserves.
const WIREGUARD: [u8; 4] = [4, 0, 0, 0];
const OWN: [u8; 4] = [4, 1, 0, 0];

const PORT: u16 = 7000;

/// Far more than the messages beside the data.
const BYTES: u64 = 4 << 20;

#[test]
fn gateways_choose_what_their_cpus_are_fast_at() {
    let pair = Pair::up(two(1, 1));
    let (cipher, form) = match is_fast_at_aes() {
        true => ("aes-256-gcm", OWN),
        false => ("chacha20-poly1305", WIREGUARD),
    };

    until_both_use(&pair, cipher);

    assert_eq!(forms_of_a_transfer(&pair), BTreeSet::from([form]));
}

#[test]
fn one_side_that_is_told_to_use_wireguard_suffices() {
    for told in [ROME, MILAN] {
        let pair = Pair::up(with_wireguard_at(two(1, 1), told));

        assert_eq!(forms_of_a_transfer(&pair), BTreeSet::from([WIREGUARD]));
        until_both_use(&pair, "chacha20-poly1305");
    }
}

#[test]
fn a_firewall_that_passes_wireguard_only_is_passed() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    pass_wireguard_only(&lab);
    lab.start().unwrap();
    lab.wait_until_connected(SOON * 4).unwrap();
    let pair = Pair::of(lab);

    eventually(
        "a question in our own form, to see whether that passes",
        || {
            let core = pair.lab.underlay().core();
            let listing = core.exec("nft", &["list", "table", "inet", "strict"], "")?;
            Ok(!listing.contains("packets 0 ") || !is_fast_at_aes())
        },
    );

    assert_eq!(forms_of_a_transfer(&pair), BTreeSet::from([WIREGUARD]));
    until_both_use(&pair, "chacha20-poly1305");
}

#[test]
fn a_firewall_that_is_switched_on_costs_little() {
    let pair = Pair::up(two(1, 1));
    if is_fast_at_aes() {
        until_both_use(&pair, "aes-256-gcm");
    }
    let _echo = udp::Echo::start(&pair.milan.netns, SAME, PORT).unwrap();
    let interval = Duration::from_millis(10);
    let flow = udp::Flow::start(&pair.rome.netns, pair.to_milan(PORT), interval).unwrap();

    pass_wireguard_only(&pair.lab);
    until_both_use(&pair, "chacha20-poly1305");

    // Both have changed, so what is asked from now on is answered.
    assert!(udp::is_echoed(
        &pair.rome.netns,
        pair.to_milan(PORT),
        b"ave"
    ));
    let outcome = flow.finish();
    let longest = outcome.missing.iter().map(|it| it.end - it.start).max();
    let longest = interval * u32::try_from(longest.unwrap_or_default()).unwrap();
    assert!(longest <= Duration::from_secs(2), "{longest:?}");
    assert_eq!(longest > Duration::ZERO, is_fast_at_aes(), "{longest:?}");
}

/// Drops at the core what WireGuard does not know.
fn pass_wireguard_only(lab: &Lab) {
    let ruleset = "table inet strict {
            chain forward {
                type filter hook forward priority 0; policy accept;
                meta l4proto udp @th,64,32 0x04010000 counter drop
            }
        }
        ";
    let core = lab.underlay().core();
    core.exec("nft", &["-f", "-"], ruleset).unwrap();
}

fn with_wireguard_at(mut spec: Spec, cluster: &str) -> Spec {
    let cluster = spec.clusters.iter_mut().find(|it| it.name == cluster);
    cluster.unwrap().cipher = "wireguard";
    spec
}

fn until_both_use(pair: &Pair, cipher: &str) {
    eventually(cipher, || {
        let mut all = true;
        for cluster in [ROME, MILAN] {
            let status = pair.lab.gateway_status(cluster, 1)?;
            let sessions = status::sessions(&status);
            all &= !sessions.is_empty() && sessions.iter().all(|it| it["cipher"] == cipher);
        }
        Ok(all)
    });
}

/// The forms of the long messages that pass the wire while rome sends to milan.
fn forms_of_a_transfer(pair: &Pair) -> BTreeSet<[u8; 4]> {
    let core = pair.lab.underlay().core();
    let wire = Capture::packets(core, "to-milan", |packet| {
        (packet.udp()).is_some_and(|udp| udp.payload.len() > 1_000 && udp.payload[0] == 4)
    })
    .unwrap();
    let server = tcp::Server::start(&pair.milan.netns, SAME, 0).unwrap();

    let to = pair.to_milan(server.address().port());
    tcp::transfer(&pair.rome.netns, to, BYTES).unwrap();

    let frames = wire.finish().unwrap();
    let forms = frames.iter().filter_map(|frame| {
        let udp = frame.ipv4()?.udp()?;
        udp.payload.first_chunk().copied()
    });
    forms.collect()
}

/// Whether this machine has what the gateway looks for, as the kernel lists it.
fn is_fast_at_aes() -> bool {
    let listed = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let lines = listed.lines().filter_map(|line| line.split_once(':'));
    let mut features = lines.filter(|(name, _)| matches!(name.trim(), "flags" | "Features"));
    let features: BTreeSet<_> = features
        .next()
        .map(|(_, features)| features.split_whitespace().collect())
        .unwrap_or_default();

    ["aes pclmulqdq avx", "aes pmull"]
        .iter()
        .any(|wanted| wanted.split(' ').all(|name| features.contains(name)))
}
