//! Selects the gateway replica that serves a single-session peer (upstream Liqo or plain
//! WireGuard).

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Returns whether the replica `own` serves the peer `cluster_id`. `replicas` are the live
/// replicas.
///
/// All replicas derive the same result from the same list by rendezvous hashing. The removal of a
/// replica moves only the peers of that replica. With an empty list, a replica serves all peers. A
/// replica that is missing from the list is leaving, and serves no peer.
pub(super) fn serves(own: &str, replicas: &[String], cluster_id: &str) -> bool {
    replicas.is_empty() || chosen(replicas, cluster_id) == Some(own)
}

fn chosen<'a>(replicas: &'a [String], cluster_id: &str) -> Option<&'a str> {
    replicas
        .iter()
        .map(String::as_str)
        .max_by_key(|replica| (weight(replica, cluster_id), *replica))
}

/// Returns the weight of a replica for a peer. All replicas of one release compute the same weight,
/// because their standard library has the same hasher. During an upgrade, two replicas may briefly
/// serve the same peer.
fn weight(replica: &str, cluster_id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (replica, cluster_id).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replicas(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn exactly_one_replica_serves_a_peer() {
        let all = replicas(&["gw-0", "gw-1", "gw-2"]);

        for peer in 0..200 {
            let peer = format!("cluster-{peer}");
            let serving = all.iter().filter(|own| serves(own, &all, &peer)).count();
            assert_eq!(serving, 1);
        }
    }

    #[test]
    fn only_the_peers_of_a_lost_replica_move() {
        let all = replicas(&["gw-0", "gw-1", "gw-2"]);
        let rest = replicas(&["gw-0", "gw-2"]);

        for peer in 0..200 {
            let peer = format!("cluster-{peer}");
            if !serves("gw-1", &all, &peer) {
                assert_eq!(serves("gw-0", &all, &peer), serves("gw-0", &rest, &peer));
            }
        }
    }

    #[test]
    fn alone_serves_all_and_unlisted_serves_none() {
        assert!(serves("gw-0", &[], "milan"));
        assert!(serves("gw-0", &replicas(&["gw-0"]), "milan"));
        assert!(!serves("gw-0", &replicas(&["gw-1"]), "milan"));
    }
}
