//! Fuzzes the filter of the metrics that kubelets send.
//!
//! The first byte of the input is the length of the pieces in which the rest arrives. The target checks
//! that the pieces do not change the result, and that only samples of the consumer's pods are kept, below
//! one description for each family.

#![no_main]

use exposition::{LINE_LEN_MAX, Line, LineReader};
use filter::{Filter, Merger, NodePods, NodeSamples, Visible};
use std::collections::BTreeSet;

// The modules have no dependencies, so the fuzzer need not build the rest of their crate.
#[path = "../../control/edge/src/metric_agent/exposition.rs"]
mod exposition;
#[path = "../../control/edge/src/metric_agent/families.rs"]
mod families;
#[path = "../../control/edge/src/metric_agent/filter.rs"]
mod filter;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some((&length, text)) = input.split_first() {
        run(usize::from(length).max(1), text);
    }
});

fn run(length: usize, text: &[u8]) {
    let visible = Visible {
        original: "original".to_owned(),
        pods: ["web".to_owned(), "db".to_owned()].into(),
    };
    let pods: NodePods = [("shop".to_owned(), visible)].into();
    let whole = filtered(&pods, text, text.len().max(1));
    let pieces = filtered(&pods, text, length);
    assert_eq!(pieces, whole);

    let counts = whole.counts;
    let (without_totals, with_totals) = (finished(whole, false), finished(pieces, true));
    check(&without_totals, counts.kept);
    assert!(with_totals.len() >= without_totals.len());
}

fn finished(samples: NodeSamples, has_totals: bool) -> String {
    let mut merger = Merger::default();
    merger.add(samples);
    merger.finish(has_totals).into_texts().collect()
}

fn filtered(pods: &NodePods, text: &[u8], length: usize) -> NodeSamples {
    let mut filter = Filter::new(pods);
    let mut reader = LineReader::default();
    for piece in text.chunks(length) {
        reader.push(piece, |line| filter.line(line));
    }
    let too_long = reader.finish(|line| filter.line(line));
    assert!(filter.malformed() as usize <= text.len());
    assert!(filter.len() == 0 || text.len() > "shop".len());
    filter.finish(too_long)
}

/// Checks that all samples are of visible pods, and that each family is described once.
fn check(text: &str, kept: u64) {
    let mut samples = 0;
    let mut described = BTreeSet::new();
    for line in text.lines() {
        assert!(line.len() <= LINE_LEN_MAX + "original".len());
        match Line::parse(line) {
            Ok(Line::Sample(sample)) => {
                assert_eq!(sample.namespace(), Some("original"));
                assert!(matches!(sample.pod(), Some("web" | "db")));
                samples += 1;
            }
            Ok(Line::Type { family, .. }) => assert!(described.insert(family.to_owned())),
            Ok(Line::Help { .. }) => {}
            Ok(Line::Ignored) | Err(_) => panic!("{line}"),
        }
    }
    assert_eq!(samples, kept);
}
