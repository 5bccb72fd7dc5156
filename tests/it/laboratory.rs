//! Tests of the laboratory of network namespaces.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tests::lab::link::{End, connect, ip};
use tests::lab::netns::Netns;
use tests::lab::{Identity, clean_crashed, clean_on_signal, wait};

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
    assert!(!status.success(), "the process ended on its own");
    assert!(!run_dir.exists());
    for name in names {
        assert!(!Path::new("/run/netns").join(name).exists());
    }
}

#[test]
fn destroying_a_namespace_ends_its_processes_and_removes_its_links() {
    let identity = Identity::claim().unwrap();
    let (a, b) = pair(&identity);
    let mut child = a.start(Command::new("sleep").arg("1000")).unwrap();

    a.destroy().unwrap();

    child.wait().unwrap();
    let links = b.exec("ip", &["-o", "link"], "").unwrap();
    assert!(!links.contains("eth0"), "{links}");
}

#[test]
fn cleaning_up_spares_laboratories_of_running_processes() {
    let identity = Identity::claim().unwrap();
    let (a, _b) = pair(&identity);

    let removed = clean_crashed().unwrap();

    assert!(!removed.contains(&identity.id().to_owned()));
    assert!(Path::new("/run/netns").join(a.name()).exists());
}

#[test]
fn a_crashed_laboratory_is_cleaned_up() {
    // A missing lock file simulates a crash, after which no process holds the lock.
    let identity = Identity::claim().unwrap();
    let (a, _b) = pair(&identity);
    std::fs::remove_file(identity.run_dir().join("lock")).unwrap();

    let removed = clean_crashed().unwrap();

    assert!(removed.contains(&identity.id().to_owned()));
    assert!(!Path::new("/run/netns").join(a.name()).exists());
    assert!(!identity.run_dir().exists());
}

#[test]
fn the_namespace_of_a_gateway_without_laboratory_is_removed() {
    let identity = Identity::claim().unwrap();
    let name = format!("liqo-lq-{}0-gateway-1", identity.id());
    let status = Command::new("ip").args(["netns", "add", &name]).status();
    assert!(status.unwrap().success());

    // Parallel tests also call this function, so the namespace may already be gone.
    clean_crashed().unwrap();

    assert!(!Path::new("/run/netns").join(name).exists());
}

#[test]
fn an_interrupt_removes_the_laboratory() {
    if std::env::var_os(OWNER).is_some() {
        own_a_laboratory();
    }

    let (mut owner, id) = start_owner("laboratory::an_interrupt_removes_the_laboratory");
    signal(&owner, Signal::SIGINT);

    assert_eq!(owner.wait().unwrap().code(), Some(130));
    assert_gone(&id);
}

#[test]
fn the_laboratory_of_a_killed_owner_is_removed_by_another_process() {
    if std::env::var_os(OWNER).is_some() {
        own_a_laboratory();
    }

    let (mut owner, id) =
        start_owner("laboratory::the_laboratory_of_a_killed_owner_is_removed_by_another_process");
    signal(&owner, Signal::SIGKILL);
    owner.wait().unwrap();
    let namespace = format!("/run/netns/lq-{id}-a");
    assert!(Path::new(&namespace).exists());

    // Parallel tests also call this function, so the namespace may already be gone.
    clean_crashed().unwrap();

    assert_gone(&id);
}

/// The environment variable that makes this test program own a laboratory until a signal ends it.
const OWNER: &str = "LIQO_LAB_TEST_OWNER";

/// Builds a laboratory that runs a process, prints the laboratory's id, and waits for a signal.
fn own_a_laboratory() -> ! {
    clean_on_signal().unwrap();
    let identity = Identity::claim().unwrap();
    let (a, _b) = pair(&identity);
    let mut child = a.start(Command::new("sleep").arg("1000")).unwrap();
    println!("\nlaboratory {}", identity.id());
    child.wait().unwrap();
    // The signal handler has killed the child. The handler ends this process after the clean-up.
    loop {
        std::thread::park();
    }
}

/// Starts this test program again as the owner of a laboratory, and returns the process and the
/// laboratory's id.
fn start_owner(test: &str) -> (Child, String) {
    let mut owner = Command::new("/proc/self/exe")
        .args(["--exact", test, "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let id = lines
        .map_while(Result::ok)
        .find_map(|line| Some(line.strip_prefix("laboratory ")?.to_owned()))
        .unwrap();

    (owner, id)
}

fn signal(process: &Child, signal: Signal) {
    kill(Pid::from_raw(process.id().cast_signed()), signal).unwrap();
}

fn assert_gone(id: &str) {
    wait::until(Duration::from_secs(5), "everything to be removed", || {
        let names = std::fs::read_dir("/run/netns")?;
        let left = names
            .filter_map(Result::ok)
            .any(|entry| entry.file_name().to_string_lossy().contains(id));
        Ok(!left && !Path::new("/run/liqo-lab").join(id).exists())
    })
    .unwrap();
}

#[test]
fn twenty_namespaces_are_created_in_two_seconds() {
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
