//! Mean sizes of what the stages of the path receive at once, from the client to the server.
//!
//! ```text
//! client's pod -- overlay --> client's gateways == tunnel ==> server's gateways -- overlay --> server's pod
//!                             TAP                             UDP sockets                      eth0
//! ```
//!
//! Over a network without segmentation offload, a mean of the length of single packets means that the kernel does not
//! coalesce what arrives on that leg.

use super::measure::{Values, named};
use super::metric;
use super::superpackets::counters;
use ::tests::lab::netns::Netns;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Bytes, and the number of receives that returned them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Total {
    bytes: f64,
    count: f64,
}

impl Total {
    fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            count: self.count - before.count,
        }
    }

    /// Returns the mean size in bytes; 0 if nothing was received.
    fn mean(self) -> f64 {
        self.bytes / self.count.max(1.0)
    }

    /// Sums a counter of all lanes in the statuses of gateways.
    ///
    /// # Errors
    ///
    /// Returns an error if a status has no such counter.
    fn of_lanes(statuses: &[Value], name: &str) -> Result<Self> {
        let mut sum = Self::default();
        for status in statuses {
            for counter in counters(status, name) {
                sum.bytes += counter["bytes"].as_f64().unwrap_or_default();
                sum.count += counter["count"].as_f64().unwrap_or_default();
            }
        }
        ensure!(
            sum.count > 0.0,
            "no packets {name} in the gateways' statuses"
        );

        Ok(sum)
    }
}

/// What was received on each leg since the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receives {
    to_tunnel: Total,
    tunnel: Total,
    to_pod: Total,
}

impl Receives {
    /// Reads the counters of the clients' and servers' gateways from their statuses, and those of the server's pod.
    ///
    /// # Errors
    ///
    /// Returns an error if a counter is missing.
    pub(super) fn of(clients: &[Value], servers: &[Value], pod: &Netns) -> Result<Self> {
        Ok(Self {
            to_tunnel: Total::of_lanes(clients, "read")?,
            tunnel: Total::of_lanes(servers, "received")?,
            to_pod: of_device(&pod.exec(
                "ip",
                &["-json", "-stats", "link", "show", "eth0"],
                "",
            )?)?,
        })
    }

    /// Returns the mean sizes since `before`.
    pub(super) fn means_since(self, before: Self) -> Values {
        named([
            (
                metric::TO_TUNNEL,
                self.to_tunnel.since(before.to_tunnel).mean(),
            ),
            (metric::TUNNEL, self.tunnel.since(before.tunnel).mean()),
            (metric::TO_POD, self.to_pod.since(before.to_pod).mean()),
        ])
    }
}

fn of_device(links: &str) -> Result<Total> {
    let links: Value = serde_json::from_str(links).context("`ip -json` printed no JSON")?;
    let received = &links[0]["stats64"]["rx"];
    let of = |field: &str| {
        let value = received[field].as_f64();
        value.with_context(|| format!("no stats64.rx.{field} of the pod's device"))
    };

    Ok(Total {
        bytes: of("bytes")?,
        count: of("packets")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lanes_of_all_gateways_are_summed() {
        let lane = |bytes: u64| json!({"read": {"bytes": bytes, "count": 2}});
        let statuses = [
            json!({"lanes": [lane(60_000), lane(40_000)]}),
            json!({"all": lane(20_000)}),
        ];

        let total = Total::of_lanes(&statuses, "read").unwrap();

        assert_eq!(total.mean(), 20_000.0);
        let error = Total::of_lanes(&statuses, "received").unwrap_err();
        assert_eq!(
            error.to_string(),
            "no packets received in the gateways' statuses"
        );
    }

    #[test]
    fn only_what_was_received_since_counts() {
        let before = Total {
            bytes: 1_500.0,
            count: 1.0,
        };
        let after = Total {
            bytes: 61_500.0,
            count: 3.0,
        };

        assert_eq!(after.since(before).mean(), 30_000.0);
        assert_eq!(after.since(after).mean(), 0.0);
    }

    #[test]
    fn the_counters_of_a_device_are_read() {
        let links = r#"[{"ifname":"eth0","stats64":{"rx":{"bytes":3000,"packets":2},"tx":{"bytes":1,"packets":1}}}]"#;

        assert_eq!(of_device(links).unwrap().mean(), 1_500.0);
        assert!(of_device("[]").is_err());
    }
}
