//! A manager without authentication, which is the chart's default.

use super::*;

#[test]
fn only_networking_is_summarized() {
    let mut rome = Rome::with(7, false);
    for object in [
        ready_tenant(),
        ready_identity(),
        secret(),
        slice("Accepted", "Any"),
        quota(),
        virtual_node("milan", json!({})),
        node("milan", true),
    ] {
        rome.put(object);
    }
    rome.settle();
    assert_eq!(rome.summary(), None);

    rome.put(configuration());
    rome.settle();
    let lines = rome.lines();
    assert_eq!(lines[0], "Unknown");
    assert!(
        lines[1..].iter().all(|line| line.starts_with("Network")),
        "{lines:?}"
    );
}

/// Conditions of the time when authentication was enabled are removed.
#[test]
fn conditions_of_a_module_that_was_switched_off_are_removed() {
    let mut on = Rome::new();
    for object in [configuration(), ready_tenant(), ready_identity(), secret()] {
        on.put(object);
    }
    on.settle();
    let before = on.summary().unwrap();
    assert_eq!(on.lines()[0], "ConsumerAndProvider");

    let mut off = Rome::with(7, false);
    off.put(configuration());
    off.put(before);
    off.settle();

    let lines = off.lines();
    assert_eq!(
        (lines[0].as_str(), lines.len()),
        ("Unknown", 4),
        "{lines:?}"
    );
    let status = off.summary().unwrap()["status"].take();
    assert_eq!(
        status["modules"]["authentication"],
        json!({"enabled": false})
    );
    assert!(status["apiServerUrl"].is_null());
}
