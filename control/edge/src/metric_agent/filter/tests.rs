use super::*;
use proptest::prelude::*;

fn pods(visible: &[(&str, &str, &[&str])]) -> NodePods {
    let visible = visible.iter().map(|(namespace, original, pods)| {
        let visible = Visible {
            original: (*original).to_owned(),
            pods: pods.iter().map(|pod| (*pod).to_owned()).collect(),
        };
        ((*namespace).to_owned(), visible)
    });
    visible.collect()
}

fn filtered(pods: &NodePods, text: &str) -> NodeSamples {
    let mut filter = Filter::new(pods);
    for line in text.lines() {
        filter.line(line.as_bytes());
    }
    filter.finish(0)
}

fn merged(nodes: impl IntoIterator<Item = NodeSamples>, has_totals: bool) -> String {
    let mut merger = Merger::default();
    for node in nodes {
        merger.add(node);
    }
    merger.finish(has_totals).into_texts().collect()
}

#[test]
fn a_histogram_stays_below_its_description() {
    let pods = pods(&[("shop-rome", "shop", &["web"])]);
    let labels = "namespace=\"shop-rome\",pod=\"web\"";
    let text = format!(
        "# HELP h Durations\n# TYPE h histogram\nh_bucket{{{labels},le=\"1\"}} 2\nh_bucket{{{labels},le=\"+Inf\"}} 3\n\
         h_sum{{{labels}}} 4\nh_count{{{labels}}} 3\n# TYPE h2 gauge\nh2{{{labels}}} 1\nh2_sum{{{labels}}} 1\n"
    );
    let labels = "namespace=\"shop\",pod=\"web\"";

    let text = merged([filtered(&pods, &text), filtered(&pods, &text)], false);

    let samples = format!(
        "h_bucket{{{labels},le=\"1\"}} 2\nh_bucket{{{labels},le=\"+Inf\"}} 3\nh_sum{{{labels}}} 4\nh_count{{{labels}}} 3\n"
    );
    assert_eq!(
        text,
        format!(
            "# HELP h Durations\n# TYPE h histogram\n{samples}{samples}# TYPE h2 gauge\nh2{{{labels}}} 1\nh2{{{labels}}} 1\n\
             h2_sum{{{labels}}} 1\nh2_sum{{{labels}}} 1\n"
        )
    );
}

#[test]
fn families_without_samples_have_no_description() {
    let none = NodePods::new();
    let text = "# HELP secret_volumes of pods\n# TYPE secret_volumes gauge\nsecret_volumes{namespace=\"a\",pod=\"b\"} 1\n";

    assert_eq!(merged([filtered(&none, text)], true), "");
}

#[test]
fn totals_are_summed_with_the_latest_timestamp_and_in_the_format_of_upstream() {
    let none = NodePods::new();
    let first = filtered(
        &none,
        "# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes 1e9 1700\nnode_cpu_usage_seconds_total 1.5 1800\n",
    );
    let second = filtered(
        &none,
        "node_memory_working_set_bytes 5 1900\nnode_cpu_usage_seconds_total 2.25 1750\n",
    );

    assert_eq!(
        merged([first, second], true),
        "node_cpu_usage_seconds_total 3.750000 1800\n\
         # TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes 1000000005.000000 1900\n"
    );
}

#[test]
fn only_exact_totals_count() {
    let none = NodePods::new();
    for line in [
        "node_cpu_usage_seconds_total 1",
        "node_cpu_usage_seconds_total{node=\"a\"} 1 1700",
        "node_cpu_usage_seconds_total NaN 1700",
        "node_cpu_usage_seconds_total +Inf 1700",
        "node_cpu_usage_seconds_total_more 1 1700",
        "node_swap_usage_bytes 1 1700",
    ] {
        let samples = filtered(&none, line);
        assert!(samples.totals.is_empty(), "{line}");
        assert_eq!(samples.counts.others, 1, "{line}");
    }
    let twice = "node_cpu_usage_seconds_total 1 1700\nnode_cpu_usage_seconds_total 9 1700\n";
    assert_eq!(
        merged([filtered(&none, twice)], true),
        "node_cpu_usage_seconds_total 1.000000 1700\n"
    );
}

#[test]
fn samples_of_names_that_only_begin_alike_are_dropped() {
    let pods = pods(&[("shop", "s", &["web"])]);
    for line in [
        "m{namespace=\"shop\",pod=\"web-1\"} 1",
        "m{namespace=\"shop-2\",pod=\"web\"} 1",
        "m{namespace=\"Shop\",pod=\"web\"} 1",
        "m{namespace=\"shop\"} 1",
        "m{pod=\"web\"} 1",
        "m{exported_namespace=\"shop\",exported_pod=\"web\"} 1",
        "m{namespace=\"\",pod=\"\"} 1",
        "m{x=\"namespace=\\\"shop\\\",pod=\\\"web\\\"\"} 1",
        "m 1",
    ] {
        let samples = filtered(&pods, line);
        assert_eq!(
            (samples.counts.kept, samples.counts.others),
            (0, 1),
            "{line}"
        );
    }
}

/// A line of a kubelet: of a pod, of something else, or of no format.
fn line() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c_sum"]);
    let namespace = prop::sample::select(vec!["shop", "shop2", "other", ""]);
    let pod = prop::sample::select(vec!["web", "db", "web2", ""]);
    let extra = prop::sample::select(vec![
        "",
        "x=\"y\",",
        "x=\"\\\"namespace=\\\"shop\\\"\",",
        "namespace=\"shop\",",
        "pod=\"web\"",
    ]);
    let sample = (name, extra, namespace, pod, any::<u8>()).prop_map(
        |(name, extra, namespace, pod, value)| {
            format!("{name}{{{extra}namespace=\"{namespace}\",pod=\"{pod}\"}} {value}")
        },
    );
    prop_oneof![
        4 => sample,
        1 => prop::sample::select(vec![
            "# TYPE a counter".to_owned(),
            "# HELP a text".to_owned(),
            "# TYPE c summary".to_owned(),
            "node_cpu_usage_seconds_total 1 2".to_owned(),
        ]),
        1 => "[a-z{}\"=, #\\\\]{0,20}",
    ]
}

proptest! {
    #[test]
    fn only_samples_of_visible_pods_are_kept_each_with_the_original_namespace(
        lines in prop::collection::vec(line(), 0..40),
    ) {
        let pods = pods(&[("shop", "original", &["web", "db"]), ("shop2", "original2", &["web2"])]);
        let samples = filtered(&pods, &lines.join("\n"));
        let counts = samples.counts;
        let text = merged([samples], false);

        let kept: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        prop_assert_eq!(kept.len() as u64, counts.kept);
        for line in kept {
            let Ok(Line::Sample(sample)) = Line::parse(line) else {
                return Err(TestCaseError::fail(line.to_owned()));
            };
            let is_visible = match sample.namespace() {
                Some("original") => matches!(sample.pod(), Some("web" | "db")),
                Some("original2") => sample.pod() == Some("web2"),
                _ => false,
            };
            prop_assert!(is_visible, "{}", line);
        }
        // Each family is described at most once, and its samples are together.
        let described: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let distinct: BTreeSet<_> = described.iter().collect();
        prop_assert_eq!(described.len(), distinct.len());
    }

    #[test]
    fn samples_of_nodes_are_those_of_each_of_them(
        first in prop::collection::vec(line(), 0..20),
        second in prop::collection::vec(line(), 0..20),
    ) {
        let pods = pods(&[("shop", "original", &["web", "db"])]);
        let texts = [first.join("\n"), second.join("\n")];
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().filter(|it| !it.starts_with('#')).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let both = merged(texts.iter().map(|text| filtered(&pods, text)), false);
        let each: String = texts.iter().map(|text| merged([filtered(&pods, text)], false)).collect();
        prop_assert_eq!(sorted(&both), sorted(&each));
    }
}
