//! The requests to an API server, from its own counters.

use crate::clusters::{Pair, Site};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time for which requests at rest are counted.
const REST: Duration = Duration::from_secs(20);

/// The time after which the consequences of a change, such as Events and statuses, have been written.
pub(crate) const SETTLED: Duration = Duration::from_secs(3);

const METRIC: &str = "apiserver_request_total{";

/// Verbs and resources that are not counted: those of connections and of clusters at rest.
const VERBS: [&str; 3] = ["WATCH", "LIST", "CONNECT"];
const RESOURCES: [&str; 2] = ["", "leases"];

/// The number of requests by verb and resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Requests(BTreeMap<String, f64>);

impl Requests {
    /// Reads the counters of an API server.
    async fn now(site: &Site) -> Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = site.client.request_text(request).await?;

        Self::parse(&text)
    }

    /// Reads the counters of both API servers.
    pub(crate) async fn of(pair: &Pair) -> Result<Self> {
        let (rome, milan) = tokio::try_join!(Self::now(&pair.rome), Self::now(&pair.milan))?;
        Ok(rome.and(&milan))
    }

    /// Counts the requests per second of clusters at rest.
    pub(crate) async fn at_rest(pair: &Pair) -> Result<Self> {
        tokio::time::sleep(SETTLED).await;
        let before = Self::of(pair).await?;
        tokio::time::sleep(REST).await;
        let after = Self::of(pair).await?;

        Ok(after
            .since(&before, &Self::default(), 0.0)
            .per(REST.as_secs_f64()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut requests = Self::default();
        for sample in text.lines().filter_map(|line| line.strip_prefix(METRIC)) {
            let (labels, value) = sample.rsplit_once("} ").context("a sample has a value")?;
            let label = |name: &str| {
                let rest = labels.split_once(&format!("{name}=\""))?.1;
                Some(rest.split_once('"')?.0)
            };
            // `subresource` ends in `resource`, which comes first among the sorted labels.
            let resource = label(",resource").unwrap_or_default();
            let subresource = label("subresource").unwrap_or_default();
            let verb = label("verb").unwrap_or_default();
            let is_node_status = (resource, subresource) == ("nodes", "status");
            if VERBS.contains(&verb) || RESOURCES.contains(&resource) || is_node_status {
                continue;
            }
            let key = match subresource {
                "" => format!("{verb} {resource}"),
                _ => format!("{verb} {resource}/{subresource}"),
            };
            *requests.0.entry(key).or_default() += value.parse::<f64>()?;
        }

        Ok(requests)
    }

    /// Returns the requests since `earlier`, without those at `rate` per second.
    pub(crate) fn since(&self, earlier: &Self, rate: &Self, seconds: f64) -> Self {
        let difference = self.0.iter().map(|(key, value)| {
            let at_rest = rate.0.get(key).copied().unwrap_or_default() * seconds;
            let before = earlier.0.get(key).copied().unwrap_or_default();
            (key.clone(), (value - before - at_rest).max(0.0))
        });

        Self(difference.filter(|(_, value)| *value > 0.0).collect())
    }

    /// Joins the requests of the consumer with those of the provider.
    fn and(&self, other: &Self) -> Self {
        let here = self
            .0
            .iter()
            .map(|(key, value)| (format!("rome {key}"), *value));
        let there = other
            .0
            .iter()
            .map(|(key, value)| (format!("milan {key}"), *value));
        Self(here.chain(there).collect())
    }

    /// Divides by a number, such as that of pods or of seconds.
    pub(crate) fn per(&self, count: f64) -> Self {
        let parts = self
            .0
            .iter()
            .map(|(key, value)| (key.clone(), value / count));
        Self(parts.collect())
    }

    pub(crate) fn sum(&self) -> f64 {
        self.0.values().sum()
    }

    /// Describes those of at least a tenth.
    pub(crate) fn shown(&self) -> String {
        let mut parts: Vec<_> = self.0.iter().filter(|(_, value)| **value >= 0.1).collect();
        parts.sort_by(|a, b| b.1.total_cmp(a.1));
        let parts = parts.iter().map(|(key, value)| format!("{value:.1} {key}"));
        parts.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::Requests;

    const TEXT: &str = r#"
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 7
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST",version="v1"} 1
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="status",verb="PUT",version="v1"} 2
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1"} 9
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="nodes",scope="resource",subresource="status",verb="PATCH",version="v1"} 9
apiserver_request_total{code="200",component="apiserver",dry_run="",group="coordination.k8s.io",resource="leases",scope="resource",subresource="",verb="PUT",version="v1"} 9
"#;

    #[test]
    fn requests_are_counted_by_verb_and_resource_without_those_of_a_cluster_at_rest() {
        let now = Requests::parse(TEXT).unwrap();

        assert_eq!(now.shown(), "8.0 POST pods, 2.0 PUT pods/status");
        let none = Requests::default();
        assert_eq!(now.since(&none, &none.per(1.0), 1.0).sum(), 10.0);
        assert_eq!(now.since(&none, &now.per(10.0), 5.0).sum(), 5.0);
        assert_eq!(now.since(&now, &none, 1.0).sum(), 0.0);
    }
}
