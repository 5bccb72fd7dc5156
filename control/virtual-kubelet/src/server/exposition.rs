//! Metrics in Prometheus' text format, which the provider has written.
//!
//! The provider is not trusted: a client attributes samples to pods by their labels, and scales workloads of this cluster
//! by them. So only samples of pods of this Node pass.

use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Longest line of a sample, in bytes.
const LINE_LEN_MAX: usize = 64 << 10;

/// Most labels of a sample.
const LABELS_MAX: usize = 64;

/// The pods of this Node, by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct OwnPods {
    names: BTreeMap<String, BTreeSet<String>>,
}

impl OwnPods {
    /// Returns the names of pods.
    pub(crate) fn new(pods: &[Arc<Pod>]) -> Self {
        let mut names = BTreeMap::<String, BTreeSet<String>>::new();
        for pod in pods {
            let metadata = &pod.metadata;
            if let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) {
                names
                    .entry(namespace.clone())
                    .or_default()
                    .insert(name.clone());
            }
        }

        Self { names }
    }

    /// Returns whether a sample is of one of the pods, or of the Node.
    fn has(&self, sample: &Sample<'_>) -> bool {
        match (sample.label("namespace"), sample.label("pod")) {
            (None, None) => true,
            (Some(namespace), Some(pod)) => {
                let pods = self.names.get(namespace);
                pods.is_some_and(|pods| pods.contains(pod))
            }
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

/// A sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample<'a> {
    /// Name of the metric.
    pub(crate) name: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    /// Value.
    pub(crate) value: f64,
    /// Time in milliseconds since 1970, if any.
    pub(crate) millis: Option<i64>,
}

impl<'a> Sample<'a> {
    /// Parses a line; `None` if it is no sample. Escape sequences in values of labels stay.
    fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim();
        let end = line.find(['{', ' ', '\t'])?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        let mut fields = rest.split_ascii_whitespace();
        let value = fields.next()?.parse().ok()?;
        let millis = match fields.next() {
            Some(millis) => Some(millis.parse().ok()?),
            None => None,
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
        let is_valid = !name.is_empty() && name.bytes().all(is_name) && fields.next().is_none();

        is_valid.then_some(Self {
            name,
            labels,
            value,
            millis,
        })
    }

    /// Returns the value of a label that is not empty.
    pub(crate) fn label(&self, name: &str) -> Option<&'a str> {
        let label = self.labels.iter().find(|(it, _)| *it == name);
        label.map(|(_, value)| *value).filter(|it| !it.is_empty())
    }
}

/// Returns the samples of pods of this Node and of the Node itself.
pub(crate) fn samples<'a>(text: &'a str, pods: &'a OwnPods) -> impl Iterator<Item = Sample<'a>> {
    let lines = text.lines().filter(|line| line.len() <= LINE_LEN_MAX);
    let samples = lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(Sample::parse);

    samples.filter(|sample| pods.has(sample))
}

/// Returns the text without samples of other pods, and the number of lines that were dropped.
pub(crate) fn filtered(text: &str, pods: &OwnPods) -> (String, u64) {
    let (mut kept, mut dropped) = (String::with_capacity(text.len()), 0);
    for line in text.lines() {
        let is_comment = line.starts_with('#') || line.is_empty();
        let is_kept = line.len() <= LINE_LEN_MAX
            && (is_comment || Sample::parse(line).is_some_and(|sample| pods.has(&sample)));
        if is_kept {
            kept.push_str(line);
            kept.push('\n');
        } else {
            dropped += 1;
        }
    }

    (kept, dropped)
}

/// Parses labels after `{`; returns them, and what follows `}`.
fn labels(mut text: &str) -> Option<(Vec<(&str, &str)>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\t', ',']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once('=')?;
        let name = name.trim();
        let rest = rest.trim_start().strip_prefix('"')?;
        let end = end_of_value(rest)?;
        // A second label of one name would hide the first from one of two readers.
        if labels.len() >= LABELS_MAX || labels.iter().any(|(it, _)| *it == name) {
            return None;
        }
        labels.push((name, &rest[..end]));
        text = &rest[end + 1..];
    }
}

/// Returns the position of the quote that ends a value.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{from_value, json};

    fn pods() -> OwnPods {
        let pod = |namespace: &str, name: &str| {
            let pod = json!({"metadata": {"namespace": namespace, "name": name}});
            Arc::new(from_value(pod).unwrap())
        };
        OwnPods::new(&[pod("shop", "web"), pod("books", "api")])
    }

    #[test]
    fn samples_of_other_pods_are_dropped_and_counted() {
        let text = "\
# HELP container_cpu_usage_seconds_total Usage
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container=\"web\",namespace=\"shop\",pod=\"web\"} 1.5 1764230400000
container_cpu_usage_seconds_total{container=\"c\",namespace=\"kube-system\",pod=\"coredns\"} 99 1764230400000
container_cpu_usage_seconds_total{container=\"c\",namespace=\"shop\",pod=\"api\"} 99
container_cpu_usage_seconds_total{container=\"c\",namespace=\"shop\"} 99
container_cpu_usage_seconds_total{container=\"c\",pod=\"web\"} 99
container_cpu_usage_seconds_total{pod=\"web\",namespace=\"shop\",pod=\"coredns\"} 99
node_cpu_usage_seconds_total 4.25 1764230400000
machine_cpu_cores{namespace=\"\",pod=\"\"} 4
no sample
";
        let (kept, dropped) = filtered(text, &pods());

        assert_eq!(dropped, 6);
        let lines: Vec<_> = kept.lines().filter(|it| !it.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "container_cpu_usage_seconds_total{container=\"web\",namespace=\"shop\",pod=\"web\"} 1.5 1764230400000",
                "node_cpu_usage_seconds_total 4.25 1764230400000",
                "machine_cpu_cores{namespace=\"\",pod=\"\"} 4",
            ]
        );
        assert_eq!(kept.lines().count(), 5);
        assert_eq!(samples(text, &pods()).count(), 3);
    }

    #[test]
    fn labels_with_quotes_and_braces_are_parsed() {
        let sample = Sample::parse(r#"m{a="x\"}\\",namespace="shop", pod="web",} 1e3 -5"#).unwrap();

        assert_eq!(
            (sample.name, sample.value, sample.millis),
            ("m", 1000.0, Some(-5))
        );
        assert_eq!(sample.label("a"), Some(r#"x\"}\\"#));
        assert_eq!(sample.label("pod"), Some("web"));
        assert_eq!(sample.label("absent"), None);
    }

    #[test]
    fn lines_that_are_no_sample_have_no_meaning() {
        for line in [
            "",
            "m",
            "m{",
            "m{a}",
            "m{a=\"x\" 1",
            "m{a=x} 1",
            "m{} ",
            "m 1 2 3",
            "m x",
            "m 1 x",
            "{} 1",
            "a-b 1",
            "m{a=\"x\\\"} 1",
        ] {
            assert_eq!(Sample::parse(line), None, "{line}");
        }
        let long = format!("m{{a=\"{}\"}} 1", "x".repeat(LINE_LEN_MAX));
        assert_eq!(filtered(&long, &pods()), (String::new(), 1));
        let many: String = (0..=LABELS_MAX).map(|it| format!("l{it}=\"x\",")).collect();
        assert_eq!(Sample::parse(&format!("m{{{many}}} 1")), None);
    }

    proptest! {
        #[test]
        fn no_text_names_a_pod_of_another_node(
            text in r#"(m|node_x)?(\{(namespace|pod|a)="(shop|web|kube-system|dns|\\"|)"(,(namespace|pod)="(shop|web|dns)")*\})? ?[0-9]{0,2}"#,
        ) {
            let (kept, _) = filtered(&text, &pods());
            for sample in kept.lines().filter_map(Sample::parse) {
                let of = (sample.label("namespace"), sample.label("pod"));
                prop_assert!(matches!(of, (None, None) | (Some("shop"), Some("web"))), "{kept}");
            }
        }
    }
}
