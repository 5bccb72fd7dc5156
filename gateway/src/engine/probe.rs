//! Message format of the liveness probe: upstream's JSON with additional keys.
//!
//! ```text
//! PING {"clusterID":"<the receiver's>","msgType":"PING","timeStamp":"<RFC 3339>"
//!       ,"gateway":{"version":"..","replica":"..","lane":1,"lanes":2,"leaving":true
//!                  ,"direct":true,"heard":{"rtt":850,"next":500},"replicas":2,"nodes":{..},"place":".."}
//!       ,"pad":".."}
//! PONG {the same object, "msgType":"PONG", without gateway and pad
//!       ,"version":"..","replica":"..","lane":1,"lanes":2,"replicas":2,"leaving":true
//!       ,"nodes":{"all":2,"cut":1,"resting":0,"reflect":true},"place":"172.16.0.1 10.244.1.0/24"}
//! ```
//!
//! `place` describes the sender's node ([`super::place`]). `direct` says that the session was opened to the address of the node on
//! which the receiver runs.
//!
//! `heard` says that all earlier PINGs of the session were answered: their round-trip time in
//! microseconds, and the milliseconds until the next PING. The keys after it are those of a PONG,
//! since the receiver sends no PING, whose PONG would contain them.
//!
//! A replica with one lane omits `lane` and `lanes`. Upstream ignores unknown keys, and echoes them
//! in its PONG. The sender of a PING therefore describes itself under the key `gateway`, whereas
//! the sender of a PONG uses the top level. A peer that only echoes the object is thus not mistaken
//! for a gateway of this project.
//!
//! A gateway of the first release of this project offers its own cipher under the key
//! `gateway.data` of a PING. The parsers ignore this key like any unknown key. The sender then
//! continues with WireGuard's cipher.

mod plain;

use super::interface::{LaneId, Nodes};
use super::place::Place;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Longest object that upstream accepts, in bytes.
const UPSTREAM_BYTES_MAX: usize = 1024;
/// Longest object accepted from a gateway of this project, in bytes. A padded PING is as long as
/// the path MTU that it measures, and jumbo frames have about 9,000 bytes.
const OURS_BYTES_MAX: usize = 9_216;
/// Longest accepted name of a replica or version, in bytes. The value is the limit of DNS names.
const NAME_BYTES_MAX: usize = 253;
/// Upper limit of replicas per cluster. Higher advertised numbers are clamped.
pub(super) const REPLICAS_MAX: u32 = 16;

/// Description of a gateway of this project, in its own probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gateway {
    pub(super) version: String,
    pub(super) replica: String,
    pub(super) lane: LaneId,
    /// Number of replicas in the gateway's cluster; only in a PONG, and with `heard`.
    pub(super) replicas: Option<u32>,
    /// Whether peers should prefer other replicas, because this one is stopping or has just
    /// started.
    pub(super) leaving: bool,
    /// Health of the nodes in the gateway's cluster; only in a PONG, and with `heard`.
    pub(super) nodes: Option<Nodes>,
    /// Whether the PINGs of the session were answered; only in a PING.
    pub(super) heard: Option<Heard>,
    /// Whether the session was opened to the address of the receiver's node; only in a PING.
    pub(super) direct: bool,
    /// The gateway's node; only in a PONG, and with `heard`.
    pub(super) place: Option<Place>,
}

/// The statement of a PING's sender that all its earlier PINGs were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Smoothed round-trip time.
    pub(super) rtt: Duration,
    /// Time until the next PING.
    pub(super) next: Duration,
}

/// A received probe message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Probe {
    Ping {
        /// The PONG to send, still without the keys that describe this gateway.
        reply: Reply,
        /// The sender, if it is a gateway of this project.
        gateway: Option<Gateway>,
    },
    Pong {
        /// The PING's timestamp, in nanoseconds since the Unix epoch.
        sent: i128,
        /// The sender, if it is a gateway of this project.
        gateway: Option<Gateway>,
    },
}

/// The PONG to send, still without the keys that describe this gateway.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// Reply to a PING in the format that this project writes.
    Plain {
        cluster_id: String,
        time_stamp: String,
    },
    /// Reply to a PING in any other format: the JSON object of the PING.
    Other(Map<String, Value>),
}

/// Parses a message; returns `None` if it is malformed or too long. A gateway of this project
/// (`from_ours`) may send longer messages than upstream.
pub(crate) fn parse(json: &[u8], from_ours: bool) -> Option<Probe> {
    let max = if from_ours {
        OURS_BYTES_MAX
    } else {
        UPSTREAM_BYTES_MAX
    };
    if json.len() > max {
        return None;
    }

    plain::parse(json).or_else(|| parse_any(json))
}

/// Parses a message by the general path, which accepts escapes in strings, unknown keys, and keys
/// in any letter case.
fn parse_any(json: &[u8]) -> Option<Probe> {
    let Value::Object(mut object) = serde_json::from_slice(json).ok()? else {
        return None;
    };

    let kind = string(&object, "msgType")?;
    if kind.eq_ignore_ascii_case("PONG") {
        let sent = string(&object, "timeStamp")?.parse::<Timestamp>().ok()?;
        return Some(Probe::Pong {
            sent: sent.as_nanosecond(),
            gateway: gateway(&object),
        });
    }
    if !kind.eq_ignore_ascii_case("PING") {
        return None;
    }

    let sender = match take(&mut object, "gateway") {
        Some(Value::Object(sender)) => gateway(&sender),
        Some(_) | None => None,
    };
    take(&mut object, "pad");

    Some(Probe::Ping {
        reply: Reply::Other(object),
        gateway: sender,
    })
}

pub(super) fn pong(reply: Reply, own: &Gateway) -> Vec<u8> {
    match reply {
        Reply::Plain {
            cluster_id,
            time_stamp,
        } => plain::pong(&cluster_id, &time_stamp, own),
        Reply::Other(reply) => pong_any(reply, own),
    }
}

fn pong_any(mut reply: Map<String, Value>, own: &Gateway) -> Vec<u8> {
    set(&mut reply, "msgType", "PONG".into());
    set(&mut reply, "version", own.version.as_str().into());
    set(&mut reply, "replica", own.replica.as_str().into());
    set(&mut reply, "replicas", own.replicas.unwrap_or(1).into());
    for key in ["lane", "lanes"] {
        take(&mut reply, key);
    }
    if own.lane != LaneId::ONLY {
        reply.insert("lane".into(), own.lane.number().into());
        reply.insert("lanes".into(), own.lane.of().into());
    }
    take(&mut reply, "leaving");
    if own.leaving {
        reply.insert("leaving".into(), true.into());
    }
    take(&mut reply, "nodes");
    if let Some(nodes) = &own.nodes {
        let nodes = json!({
            "all": nodes.all, "cut": nodes.cut, "resting": nodes.resting,
            "reflect": nodes.echo_responder,
        });
        reply.insert("nodes".into(), nodes);
    }
    take(&mut reply, "place");
    if let Some(place) = &own.place {
        reply.insert("place".into(), place.text().into());
    }

    Value::Object(reply).to_string().into_bytes()
}

/// Returns the length in bytes of the JSON keys and values that describe `own` in a PONG. A PONG
/// may be longer than its PING by this length.
pub(super) fn own_len(own: &Gateway) -> usize {
    const ECHOED: usize = "\"clusterID\":\"\",\"timeStamp\":\"\",".len();

    plain::pong("", "", own).len() - ECHOED
}

/// Writes a PING to the cluster `cluster_id`, sent at `sent` (nanoseconds since the Unix epoch). If
/// `len` is given, the JSON is padded to `len` bytes.
pub(super) fn ping(cluster_id: &str, sent: i128, own: &Gateway, len: Option<usize>) -> Vec<u8> {
    let sent = Timestamp::from_nanosecond(sent).unwrap_or(Timestamp::UNIX_EPOCH);

    plain::ping(cluster_id, &sent.to_string(), own, len)
}

/// Parses the description of a gateway of this project. `version` and `replica` are required.
fn gateway(object: &Map<String, Value>) -> Option<Gateway> {
    let name = |key| string(object, key).filter(|name| is_name(name));
    let number = |key| find(object, key).and_then(Value::as_u64);
    let replicas = number("replicas");

    Some(Gateway {
        version: name("version")?.to_owned(),
        replica: name("replica")?.to_owned(),
        lane: lane(number("lane"), number("lanes")),
        replicas: replicas.map(|n| n.clamp(1, u64::from(REPLICAS_MAX)) as u32),
        leaving: find(object, "leaving").is_some_and(|leaving| leaving == &Value::Bool(true)),
        nodes: nodes(object),
        heard: heard(object),
        direct: find(object, "direct").is_some_and(|direct| direct == &Value::Bool(true)),
        place: string(object, "place").and_then(Place::parse),
    })
}

/// Parses the statement that PINGs were answered; returns `None` if a number is missing.
fn heard(object: &Map<String, Value>) -> Option<Heard> {
    let heard = find(object, "heard")?.as_object()?;
    let number = |key| find(heard, key).and_then(Value::as_u64);

    Some(Heard {
        rtt: Duration::from_micros(number("rtt")?),
        next: Duration::from_millis(number("next")?),
    })
}

/// Returns the lane of a gateway, or [`LaneId::ONLY`] if the numbers are missing or invalid.
fn lane(number: Option<u64>, of: Option<u64>) -> LaneId {
    let small = |number: Option<u64>| u8::try_from(number?).ok();
    let named = small(number).zip(small(of));

    named
        .and_then(|(number, of)| LaneId::new(number, of))
        .unwrap_or(LaneId::ONLY)
}

/// Parses the health of nodes; returns `None` if a number is missing.
fn nodes(object: &Map<String, Value>) -> Option<Nodes> {
    let nodes = find(object, "nodes")?.as_object()?;
    let number = |key| u32::try_from(find(nodes, key)?.as_u64()?).ok();

    Some(Nodes {
        all: number("all")?,
        cut: number("cut")?,
        resting: number("resting")?,
        echo_responder: find(nodes, "reflect") == Some(&Value::Bool(true)),
    })
}

/// Returns whether `name` is acceptable. Names are shown to users, so they must not contain line
/// feeds or terminal control sequences.
fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns `key` as the object spells it. The letter case of keys is not significant, as in
/// upstream's JSON decoder.
fn spelling(object: &Map<String, Value>, key: &str) -> Option<String> {
    if object.contains_key(key) {
        return Some(key.to_owned());
    }

    object.keys().find(|k| k.eq_ignore_ascii_case(key)).cloned()
}

fn find<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get(&spelling(object, key)?)
}

fn string<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    find(object, key)?.as_str()
}

fn take(object: &mut Map<String, Value>, key: &str) -> Option<Value> {
    object.remove(&spelling(object, key)?)
}

fn set(object: &mut Map<String, Value>, key: &str, value: Value) {
    let key = spelling(object, key).unwrap_or_else(|| key.to_owned());
    object.insert(key, value);
}

#[cfg(test)]
mod tests;
