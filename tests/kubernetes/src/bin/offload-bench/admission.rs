//! The latency of the admission webhooks, from the histograms of the API servers that call them.

use crate::clusters::{OFFLOADED, Pair, ROME, Site};
use crate::pods;
use anyhow::{Context as _, Result};
use http::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const METRIC: &str = "apiserver_admission_webhook_admission_duration_seconds_bucket{";

/// End of the names of Liqo's webhooks.
const LIQO: &str = ".liqo.io";

/// Calls of each webhook at rest.
const CALLS: u32 = 100;

/// The calls of one webhook.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    webhook: String,
    calls: f64,
    /// The median, interpolated in its bucket, in milliseconds.
    median_ms: f64,
}

/// The histograms of the webhooks of both clusters, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Admission(BTreeMap<String, Histogram>);

/// Cumulative numbers of calls by the upper bounds of the buckets, in seconds, which are in ascending order.
#[derive(Clone, Debug, Default, PartialEq)]
struct Histogram(Vec<(f64, f64)>);

impl Admission {
    /// Reads the histograms of both API servers.
    pub(crate) async fn of(pair: &Pair) -> Result<Self> {
        let (rome, milan) = tokio::try_join!(metrics(&pair.rome), metrics(&pair.milan))?;
        let mut admission = Self::default();
        admission.parse(&rome)?;
        admission.parse(&milan)?;

        Ok(admission)
    }

    /// Adds the histograms in the metrics of an API server, whose series have further labels, such as the operation.
    fn parse(&mut self, text: &str) -> Result<()> {
        for sample in text.lines().filter_map(|line| line.strip_prefix(METRIC)) {
            let (labels, value) = sample.rsplit_once("} ").context("a sample has a value")?;
            let label = |name: &str| {
                let start = format!("{name}=\"");
                let mut labels = labels.split("\",");
                let value = labels.find_map(|it| it.strip_prefix(&*start));
                value.map(|it| it.trim_end_matches('"'))
            };
            let webhook = label("name").context("a webhook has a name")?;
            if !webhook.ends_with(LIQO) {
                continue;
            }
            let bound = match label("le").context("a bucket has a bound")? {
                "+Inf" => f64::INFINITY,
                bound => bound.parse()?,
            };
            let histogram = self.0.entry(webhook.to_owned()).or_default();
            histogram.add(bound, value.parse()?);
        }

        Ok(())
    }

    /// Returns the latencies of the webhooks that were called since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Vec<Latency> {
        let latencies = self.0.iter().filter_map(|(webhook, histogram)| {
            let none = Histogram::default();
            let earlier = earlier.0.get(webhook).unwrap_or(&none);
            let histogram = histogram.since(earlier);
            Some(Latency {
                webhook: webhook.clone(),
                calls: histogram.count(),
                median_ms: histogram.median()? * 1e3,
            })
        });

        latencies.collect()
    }
}

impl Histogram {
    fn add(&mut self, bound: f64, count: f64) {
        match self.0.binary_search_by(|it| it.0.total_cmp(&bound)) {
            Ok(index) => self.0[index].1 += count,
            Err(index) => self.0.insert(index, (bound, count)),
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        for (bound, count) in &earlier.0 {
            difference.add(*bound, -count);
        }

        difference
    }

    fn count(&self) -> f64 {
        self.0.last().map_or(0.0, |it| it.1)
    }

    /// Returns the median, as `histogram_quantile` of Prometheus: values are spread evenly over their bucket, and the last bucket has
    /// the value of its lower bound. `None` if there are no values.
    fn median(&self) -> Option<f64> {
        let rank = self.count() / 2.0;
        let mut below = (0.0, 0.0);
        for (bound, count) in self.0.iter().copied() {
            if count >= rank && count > below.1 {
                if bound.is_infinite() {
                    return Some(below.0);
                }
                let share = (rank - below.1) / (count - below.1);
                return Some(below.0 + (bound - below.0) * share);
            }
            below = (bound, count);
        }

        None
    }
}

/// Measures the webhooks for pods and ShadowPods at rest, with one request after another that stores nothing.
pub(crate) async fn at_rest(pair: &Pair) -> Result<Vec<Latency>> {
    let remote = format!("{OFFLOADED}-{ROME}");
    let pods = format!("/api/v1/namespaces/{OFFLOADED}/pods");
    let shadow_pods = format!("/apis/offloading.liqo.io/v1beta1/namespaces/{remote}/shadowpods");
    let pod = json!(pods::pod("review")?);
    // It names no creator, so that the webhook is called.
    let shadow_pod = json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod",
        "metadata": {"name": "review", "labels": {"offloading.liqo.io/origin": ROME}},
        "spec": {"pod": pod["spec"]},
    });
    let before = Admission::of(pair).await?;
    for _ in 0..CALLS {
        try_create(&pair.rome, &pods, &pod).await?;
        try_create(&pair.milan, &shadow_pods, &shadow_pod).await?;
    }

    Ok(Admission::of(pair).await?.since(&before))
}

/// Creates an object as a dry run.
async fn try_create(site: &Site, path: &str, object: &Value) -> Result<()> {
    let request = http::Request::post(format!("{path}?dryRun=All"));
    let request = request.header(CONTENT_TYPE, "application/json");
    let request = request.body(object.to_string().into_bytes())?;
    let created: kube::Result<Value> = site.client.request(request).await;
    created.map(drop).with_context(|| path.to_owned())
}

async fn metrics(site: &Site) -> Result<String> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = site.client.request_text(request).await;
    text.context("failed to read the metrics")
}

#[cfg(test)]
mod tests {
    use super::Admission;

    const PODS: &str = "pod.mutate.liqo.io";

    fn admission(buckets: &[(&str, &str, u32)]) -> Admission {
        let lines = buckets.iter().map(|(name, bound, count)| {
            format!(
                "apiserver_admission_webhook_admission_duration_seconds_bucket{{name=\"{name}\",operation=\"CREATE\",\
                 rejected=\"false\",type=\"admit\",le=\"{bound}\"}} {count}\n"
            )
        });
        let mut admission = Admission::default();
        admission.parse(&lines.collect::<String>()).unwrap();
        admission
    }

    fn median_ms(buckets: &[(&str, &str, u32)]) -> Option<f64> {
        let latencies = admission(buckets).since(&Admission::default());
        latencies.first().map(|it| it.median_ms)
    }

    #[test]
    fn the_median_is_interpolated_in_its_bucket() {
        let first = [(PODS, "0.005", 8), (PODS, "0.025", 10), (PODS, "+Inf", 10)];
        assert_eq!(median_ms(&first), Some(3.125));
        let second = [(PODS, "0.005", 0), (PODS, "0.025", 10), (PODS, "+Inf", 10)];
        assert_eq!(median_ms(&second), Some(15.0));
        let last = [(PODS, "0.005", 0), (PODS, "25", 1), (PODS, "+Inf", 10)];
        assert_eq!(median_ms(&last), Some(25_000.0));
    }

    #[test]
    fn series_of_one_webhook_are_added_and_those_of_others_left_out() {
        let series = [
            (PODS, "0.005", 1),
            (PODS, "+Inf", 2),
            (PODS, "0.005", 3),
            (PODS, "+Inf", 4),
            ("other.example.com", "0.005", 9),
        ];
        let latencies = admission(&series).since(&Admission::default());

        assert_eq!(latencies.len(), 1);
        assert_eq!((latencies[0].calls, latencies[0].median_ms), (6.0, 3.75));
    }

    #[test]
    fn a_webhook_that_was_not_called_meanwhile_has_no_latency() {
        let before = admission(&[(PODS, "0.005", 8), (PODS, "+Inf", 10)]);
        assert!(before.since(&before).is_empty());
    }
}
