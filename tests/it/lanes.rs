//! Tests of gateways with several lanes. A lane is an independent packet loop.

use crate::fixture::{MILAN, Pair, ROME, SAME, SOON, assert_nothing_broken, eventually, two};
use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::time::Duration;
use tests::lab::spec::Spec;
use tests::lab::{Lab, status, wait};
use tests::packet::Direction;
use tests::traffic::capture::{Capture, Frame};
use tests::traffic::{ping, tcp, udp};

/// Number of transfers from different ports, which suffices for each lane to carry at least one.
const TRANSFERS: usize = 48;

/// Number of datagrams of one flow, sent without a pause.
const DATAGRAMS: u32 = 3_000;

const PORT: u16 = 7000;

#[test]
fn lanes_share_flows_without_corruption() {
    let pair = Pair::up(with_lanes(two(1, 1), 2, 2));
    until_lanes_are_connected(&pair.lab, 1);
    let _server = tcp::Server::start(&pair.milan.netns, SAME, PORT).unwrap();

    for _ in 0..TRANSFERS {
        tcp::transfer(&pair.rome.netns, pair.to_milan(PORT), 256 << 10).unwrap();
    }

    for cluster in [ROME, MILAN] {
        for (lane, [received, sent]) in packets(&pair.lab, cluster) {
            assert!(
                received > 100,
                "lane {lane} of {cluster} received {received}"
            );
            assert!(sent > 100, "lane {lane} of {cluster} sent {sent}");
        }
        assert_eq!(packets(&pair.lab, cluster).len(), 2);
    }
    assert_nothing_broken(&pair.lab, &[&pair.rome, &pair.milan]);
}

#[test]
fn a_flow_stays_in_order() {
    let pair = Pair::up(with_lanes(two(1, 1), 2, 2));
    until_lanes_are_connected(&pair.lab, 1);
    // The filter omits outgoing frames. They are ICMP errors that quote the datagrams, because the
    // port is closed.
    let is_ours =
        |frame: &Frame| frame.direction == Direction::In && !numbers_in(&frame.bytes).is_empty();
    let capture = Capture::start(&pair.milan.netns, "eth0", is_ours).unwrap();

    let to = pair.to_milan(PORT);
    pair.rome.netns.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for number in 0..DATAGRAMS {
            socket.send_to(&payload(number), to).unwrap();
        }
    });
    let numbers = |frames: Vec<Frame>| -> Vec<u32> {
        let numbers = frames.iter().flat_map(|frame| numbers_in(&frame.bytes));
        numbers.collect()
    };
    eventually("most datagrams to arrive", || {
        Ok(numbers(capture.frames()).len() > DATAGRAMS as usize / 2)
    });

    let numbers = numbers(capture.finish().unwrap());
    let reordered = numbers.windows(2).find(|pair| pair[0] >= pair[1]);
    assert_eq!(reordered, None, "of {} datagrams", numbers.len());
}

#[test]
fn gateways_with_different_numbers_of_lanes_connect() {
    for (rome, milan) in [(1, 3), (3, 2)] {
        let pair = Pair::up(with_lanes(two(1, 1), rome, milan));
        let most = usize::from(rome.max(milan));

        wait::until(
            SOON * 4,
            "one session for each lane of the side with more lanes",
            || {
                let all = [ROME, MILAN].map(|cluster| sessions(&pair.lab, cluster).len());
                Ok(all == [most, most])
            },
        )
        .unwrap();
        assert!(ping::reaches(&pair.rome.netns, pair.milan_seen).unwrap());
        assert!(ping::reaches(&pair.milan.netns, pair.rome_seen).unwrap());
    }
}

#[test]
fn flows_survive_the_loss_of_a_replica_with_several_lanes() {
    let mut pair = Pair::up(with_lanes(two(2, 2), 2, 2));
    until_lanes_are_connected(&pair.lab, 2);
    let _echo = udp::Echo::start(&pair.milan.netns, SAME, PORT).unwrap();
    let interval = Duration::from_millis(10);
    let flow = udp::Flow::start(&pair.rome.netns, pair.to_milan(PORT), interval).unwrap();

    for (cluster, number) in [(MILAN, 1), (ROME, 2), (MILAN, 2), (ROME, 1)] {
        pair.lab.gateway(cluster, number).kill().unwrap();
        pair.lab.gateway(cluster, number).start().unwrap();
        pair.lab.wait_until_connected(SOON * 4).unwrap();
        until_lanes_are_connected(&pair.lab, 2);
    }

    let outcome = flow.finish();
    let longest = outcome.missing.iter().map(|it| it.end - it.start).max();
    let longest = interval * u32::try_from(longest.unwrap_or_default()).unwrap();
    assert!(longest <= Duration::from_secs(1), "{longest:?}");
}

fn with_lanes(mut spec: Spec, rome: u8, milan: u8) -> Spec {
    for cluster in &mut spec.clusters {
        cluster.lanes = if cluster.name == ROME { rome } else { milan };
    }
    spec
}

/// Waits until both lanes of each gateway have sessions with this number of remote replicas.
#[track_caller]
fn until_lanes_are_connected(lab: &Lab, replicas: usize) {
    eventually("all lanes to be connected", || {
        Ok([ROME, MILAN].iter().all(|cluster| {
            let gateways = 1..=lab.cluster(cluster).gateways.len();
            let mut gateways = gateways.map(|number| sessions_of(lab, cluster, number));
            gateways.all(|sessions| {
                let pairs: BTreeSet<_> = sessions.iter().map(|it| (it.lane, &it.replica)).collect();
                let lanes: BTreeSet<_> = sessions.iter().map(|it| it.lane).collect();
                pairs.len() == 2 * replicas && lanes.len() == 2
            })
        }))
    });
}

/// A live session of a gateway.
struct Session {
    lane: u64,
    replica: String,
    /// The numbers of received and sent packets.
    packets: [u64; 2],
}

fn sessions(lab: &Lab, cluster: &str) -> Vec<Session> {
    sessions_of(lab, cluster, 1)
}

fn sessions_of(lab: &Lab, cluster: &str, gateway: usize) -> Vec<Session> {
    let Ok(status) = lab.gateway_status(cluster, gateway) else {
        return Vec::new(); // The gateway is starting.
    };
    let live = status::sessions(&status).into_iter();
    live.filter(|session| session["state"] == "live")
        .map(|session| Session {
            lane: session["lane"].as_u64().unwrap(),
            replica: session["replica"].as_str().unwrap_or_default().to_owned(),
            packets: ["rxPackets", "txPackets"].map(|key| session[key].as_u64().unwrap()),
        })
        .collect()
}

/// Returns the numbers of received and sent packets of each lane of a cluster's first gateway.
fn packets(lab: &Lab, cluster: &str) -> BTreeMap<u64, [u64; 2]> {
    let mut lanes = BTreeMap::new();
    for session in sessions(lab, cluster) {
        let lane: &mut [u64; 2] = lanes.entry(session.lane).or_default();
        for (sum, more) in lane.iter_mut().zip(session.packets) {
            *sum += more;
        }
    }
    lanes
}

const MARK: &[u8; 4] = b"lane";

fn payload(number: u32) -> Vec<u8> {
    [MARK.as_slice(), &number.to_be_bytes(), &[0; 200]].concat()
}

/// Returns the numbers of the test's datagrams in a frame. A frame may be a super-packet of several
/// datagrams.
fn numbers_in(frame: &[u8]) -> Vec<u32> {
    let marks = frame.windows(MARK.len()).enumerate();
    let marks = marks.filter(|(_, bytes)| bytes == MARK);
    let numbers = marks.filter_map(|(at, _)| frame.get(at + MARK.len()..)?.first_chunk());
    numbers.map(|number| u32::from_be_bytes(*number)).collect()
}
