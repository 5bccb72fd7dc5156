use super::*;

/// Samples in which the containers run that a string names as `POD/UID/ID`, and `!` marks those that have ended.
fn history(samples: &[(&str, &[&str])]) -> History {
    let mut history = History::default();
    for (at, (node, containers)) in (0..).zip(samples) {
        let containers = containers.iter().map(|text| {
            let (text, task) = match text.strip_prefix('!') {
                Some(text) => (text, None),
                None => (*text, Some(task("7"))),
            };
            (container(text), task)
        });
        history.record(node, Duration::from_secs(at), containers.collect());
    }

    history
}

fn container(text: &str) -> Container {
    let parts: Vec<_> = text.split('/').map(str::to_owned).collect();
    Container {
        pod: parts[0].clone(),
        uid: parts[1].clone(),
        id: parts[2].clone(),
        name: "web".to_owned(),
        created: "2026-01-02T03:04:05Z".to_owned(),
    }
}

fn task(started: &str) -> Task {
    Task {
        pid: "9".to_owned(),
        started: started.to_owned(),
    }
}

#[test]
fn pods_of_two_nodes_that_run_in_all_samples_are_unchanged() {
    let history = history(&[
        ("one", &["a/1/x"]),
        ("two", &["b/2/y"]),
        ("one", &["a/1/x"]),
        ("two", &["b/2/y"]),
    ]);

    history.ensure_unchanged("a").unwrap();
    history.ensure_unchanged("b").unwrap();
    history.ensure_none_doubled().unwrap();
    history.ensure_none_restarted().unwrap();
    assert_eq!(history.pods(), ["a", "b"].into());
    assert_eq!(history.longest_gap(), Duration::from_secs(2));
}

#[test]
fn a_lost_pod_is_changed() {
    let gone = history(&[("one", &["a/1/x"]), ("one", &[])]);
    let ended = history(&[("one", &["a/1/x"]), ("one", &["!a/1/x"])]);
    let absent = history(&[("one", &["a/1/x"]), ("one", &[]), ("one", &["a/1/x"])]);
    let late = history(&[("one", &[]), ("one", &["a/1/x"])]);
    let never = history(&[("one", &[])]);

    for history in [gone, ended, absent, late, never] {
        assert!(history.ensure_unchanged("a").is_err(), "{history:?}");
    }
}

#[test]
fn a_restarted_container_is_changed() {
    let history = history(&[("one", &["a/1/x"]), ("one", &["!a/1/x", "a/1/y"])]);

    assert!(history.ensure_unchanged("a").is_err());
    assert!(history.ensure_none_restarted().is_err());
    history.ensure_none_doubled().unwrap();
}

#[test]
fn another_process_of_the_same_container_is_a_change() {
    let mut history = history(&[("one", &["a/1/x"])]);
    let restarted = vec![(container("a/1/x"), Some(task("8")))];

    history.record("one", Duration::from_secs(1), restarted);

    assert!(history.ensure_unchanged("a").is_err());
}

#[test]
fn a_pod_that_runs_on_two_nodes_is_doubled() {
    let history = history(&[
        ("one", &["a/1/x"]),
        ("two", &["a/2/y"]),
        ("one", &["a/1/x"]),
        ("two", &["a/2/y"]),
    ]);

    assert!(history.ensure_none_doubled().is_err());
    assert!(history.ensure_unchanged("a").is_err());
    history.ensure_none_restarted().unwrap();
}

#[test]
fn a_pod_that_is_replaced_after_the_loss_of_its_node_is_not_doubled() {
    let history = history(&[
        ("one", &["a/1/x"]),
        ("two", &[]),
        ("two", &["a/2/y"]),
        ("one", &["!a/1/x"]),
        ("two", &["a/2/y"]),
    ]);

    history.ensure_none_doubled().unwrap();
    history.ensure_none_restarted().unwrap();
    assert!(history.ensure_unchanged("a").is_err());
    assert!(history.ensure_none_left().is_err());
}

#[test]
fn ended_containers_are_not_left() {
    let history = history(&[("one", &["a/1/x", "b/2/y"]), ("one", &["!a/1/x"])]);

    history.ensure_none_left().unwrap();
}
