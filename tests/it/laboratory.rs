//! The laboratory itself: what the other tests rely on.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tests::lab::link::{End, connect, ip};
use tests::lab::netns::Netns;
use tests::lab::{Identity, clean_crashed};

#[test]
fn two_connected_namespaces_reach_each_other() {
    let identity = Identity::claim().unwrap();
    let (a, b) = pair(&identity);

    let output = a.exec("ping", &["-c1", "-W1", "192.0.2.2"], "").unwrap();

    assert!(output.contains("1 received"), "{output}");
    drop(b);
}

#[test]
fn dropping_a_laboratory_leaves_nothing() {
    let identity = Identity::claim().unwrap();
    let (a, b) = pair(&identity);
    let run_dir = identity.run_dir().to_owned();
    let names = [a.name().to_owned(), b.name().to_owned()];
    let mut child = a.start(Command::new("sleep").arg("1000")).unwrap();

    drop((a, b, identity));

    let status = child.wait().unwrap();
    assert!(!status.success(), "the process was killed, not asked");
    assert!(!run_dir.exists());
    for name in names {
        assert!(!Path::new("/run/netns").join(name).exists());
    }
}

#[test]
fn a_destroyed_namespace_takes_its_processes_and_links_along() {
    let identity = Identity::claim().unwrap();
    let (a, b) = pair(&identity);
    let mut child = a.start(Command::new("sleep").arg("1000")).unwrap();

    a.destroy().unwrap();

    child.wait().unwrap();
    let links = b.exec("ip", &["-o", "link"], "").unwrap();
    assert!(!links.contains("eth0"), "{links}");
}

#[test]
fn cleaning_up_spares_the_laboratories_of_the_living() {
    let identity = Identity::claim().unwrap();
    let (a, _b) = pair(&identity);

    let removed = clean_crashed().unwrap();

    assert!(!removed.contains(&identity.id().to_owned()));
    assert!(Path::new("/run/netns").join(a.name()).exists());
}

#[test]
fn a_crashed_laboratory_is_cleaned_up() {
    // The crash: an id whose lock nobody holds.
    let identity = Identity::claim().unwrap();
    let (a, _b) = pair(&identity);
    std::fs::remove_file(identity.run_dir().join("lock")).unwrap();

    let removed = clean_crashed().unwrap();

    assert!(removed.contains(&identity.id().to_owned()));
    assert!(!Path::new("/run/netns").join(a.name()).exists());
    assert!(!identity.run_dir().exists());
}

#[test]
fn namespaces_are_made_quickly() {
    let identity = Identity::claim().unwrap();
    let started = Instant::now();

    let all: Vec<Netns> = (0..20)
        .map(|index| Netns::create(&identity, &format!("n{index}")).unwrap())
        .collect();

    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(2), "20 took {elapsed:?}");
    drop(all);
}

fn pair(identity: &Arc<Identity>) -> (Netns, Netns) {
    let a = Netns::create(identity, "a").unwrap();
    let b = Netns::create(identity, "b").unwrap();
    let end = |netns| End {
        netns,
        device: "eth0",
    };
    connect(end(&a), end(&b), 1500).unwrap();
    for (netns, address) in [(&a, "192.0.2.1"), (&b, "192.0.2.2")] {
        ip(
            netns,
            &[
                &format!("addr add {address}/24 dev eth0"),
                "link set dev eth0 up",
                "link set dev lo up",
            ],
        )
        .unwrap();
    }

    (a, b)
}
