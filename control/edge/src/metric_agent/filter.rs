//! Keeps the samples of one consumer's pods in the text of a kubelet.
//!
//! A sample is kept if its labels `namespace` and `pod` name a pod of the consumer on the kubelet's node. Its label
//! `namespace` then gets the name that the namespace has in the consumer's cluster. All other samples are dropped,
//! except for the two totals of the node, which are summed over all nodes as by upstream's agent.

use super::exposition::{Line, Sample};
use super::families::{Description, Families};
use std::collections::{BTreeMap, BTreeSet};

/// Metrics of a node that consumers get as the sum over all nodes, for `kubectl top node`.
pub(crate) const TOTALS: [&str; 2] = [
    "node_cpu_usage_seconds_total",
    "node_memory_working_set_bytes",
];

/// Pods of a consumer on a node, by their namespace in this cluster.
pub(crate) type NodePods = BTreeMap<String, Visible>;

/// Pods of a namespace that a consumer may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visible {
    /// Name of the namespace in the consumer's cluster.
    pub(crate) original: String,
    /// Names of the pods.
    pub(crate) pods: BTreeSet<String>,
}

/// Samples of a node, for one consumer.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct NodeSamples {
    /// Samples of pods.
    pub(crate) families: Families,
    /// The node's totals, by name.
    pub(crate) totals: BTreeMap<&'static str, Total>,
    /// Number of lines.
    pub(crate) counts: Counts,
}

/// A total of one or more nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Total {
    pub(crate) description: Description,
    pub(crate) value: f64,
    /// Milliseconds since 1970, the latest of all nodes.
    pub(crate) timestamp: i64,
}

/// Number of lines of a kubelet, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Samples of the consumer's pods.
    pub(crate) kept: u64,
    /// Samples of other pods, and of no pod.
    pub(crate) others: u64,
    /// Lines that are not of the text format.
    pub(crate) malformed: u64,
}

/// Filters the lines of one kubelet.
#[derive(Debug)]
pub(crate) struct Filter<'a> {
    pods: &'a NodePods,
    /// The family whose description was read last.
    family: String,
    description: Description,
    samples: NodeSamples,
}

impl<'a> Filter<'a> {
    /// Creates a filter of the kubelet whose node has these pods of the consumer.
    pub(crate) fn new(pods: &'a NodePods) -> Self {
        Self {
            pods,
            family: String::new(),
            description: Description::default(),
            samples: NodeSamples::default(),
        }
    }

    /// Takes the next line.
    pub(crate) fn line(&mut self, line: &[u8]) {
        let text = std::str::from_utf8(line);
        match text.map(Line::parse) {
            Ok(Ok(Line::Help { family, text })) => {
                self.describe(family).help = Some(text.to_owned());
            }
            Ok(Ok(Line::Type { family, kind })) => self.describe(family).kind = Some(kind),
            Ok(Ok(Line::Sample(sample))) => self.sample(&sample),
            Ok(Ok(Line::Ignored)) => {}
            Ok(Err(_)) | Err(_) => self.samples.counts.malformed += 1,
        }
    }

    /// Returns the length of the samples so far, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.samples.families.len()
    }

    /// Returns the number of malformed lines so far.
    pub(crate) fn malformed(&self) -> u64 {
        self.samples.counts.malformed
    }

    /// Returns the samples. Lines that were too long for the filter count as malformed.
    pub(crate) fn finish(mut self, too_long: u64) -> NodeSamples {
        self.samples.counts.malformed += too_long;
        self.samples
    }

    fn describe(&mut self, family: &str) -> &mut Description {
        if self.family != family {
            family.clone_into(&mut self.family);
            self.description = Description::default();
        }
        &mut self.description
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        if let Some(visible) = self.visible(sample) {
            self.samples.counts.kept += 1;
            let none = Description::default();
            let (family, description) = if self.is_of_family(sample.name) {
                (self.family.as_str(), &self.description)
            } else {
                (sample.name, &none)
            };
            let write = |text: &mut String| sample.write_with_namespace(&visible.original, text);
            self.samples.families.add(family, description, write);
        } else if !self.total(sample) {
            self.samples.counts.others += 1;
        }
    }

    /// Returns the namespace of a sample, if the sample is of a pod of the consumer.
    ///
    /// Names contain no characters that need an escape, so the values are compared as they are written.
    fn visible(&self, sample: &Sample<'_>) -> Option<&'a Visible> {
        let pods: &'a NodePods = self.pods;
        let visible = pods.get(sample.namespace()?)?;
        visible.pods.contains(sample.pod()?).then_some(visible)
    }

    /// Takes a total of the node. Returns whether the sample is one.
    fn total(&mut self, sample: &Sample<'_>) -> bool {
        let name = TOTALS.into_iter().find(|name| *name == sample.name);
        let (Some(name), Some(timestamp)) = (name, sample.timestamp) else {
            return false;
        };
        if sample.has_labels || !sample.value.is_finite() {
            return false;
        }
        let description = match self.is_of_family(name) {
            true => self.description.clone(),
            false => Description::default(),
        };
        self.samples.totals.entry(name).or_insert(Total {
            description,
            value: sample.value,
            timestamp,
        });
        true
    }

    /// Returns whether a metric belongs to the family that was described last.
    fn is_of_family(&self, name: &str) -> bool {
        match name.strip_prefix(self.family.as_str()) {
            None => false,
            Some("") => true,
            Some("_sum" | "_count") => {
                matches!(self.description.kind, Some("histogram" | "summary"))
            }
            Some("_bucket") => self.description.kind == Some("histogram"),
            Some(_) => false,
        }
    }
}

/// Merges the samples of all nodes: pods as they are, and totals as their sums.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    families: Families,
    totals: BTreeMap<&'static str, Total>,
}

impl Merger {
    /// Adds the samples of a node.
    pub(crate) fn add(&mut self, node: NodeSamples) {
        self.families.merge(node.families);
        for (name, total) in node.totals {
            match self.totals.get_mut(name) {
                Some(sum) => {
                    sum.value += total.value;
                    sum.timestamp = sum.timestamp.max(total.timestamp);
                }
                None => {
                    self.totals.insert(name, total);
                }
            }
        }
    }

    /// Returns the families; with the sums of totals if the samples are those of all nodes. A sum over fewer nodes
    /// than before would look like a counter that was reset.
    pub(crate) fn finish(self, has_totals: bool) -> Families {
        let mut families = self.families;
        let totals = self.totals.into_iter().filter(|_| has_totals);
        for (name, total) in totals {
            families.add(name, &total.description, |text| {
                text.push_str(&format!("{name} {:.6} {}\n", total.value, total.timestamp));
            });
        }
        families
    }
}

#[cfg(test)]
mod tests;
