//! Bad input: refused with a reason, and without harm to what runs.

use crate::fixture::{MILAN, Pair, ROME, eventually, two};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use tests::lab::Lab;
use tests::lab::key::{Key, base64};
use tests::lab::spec::Spec;
use tests::traffic::ping;

#[test]
fn a_bad_file_is_refused_by_check_with_object_and_field() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    lab.write_fabrics().unwrap();
    let good = fs::read_to_string(lab.fabric_path(ROME)).unwrap();
    let cases = [
        ("", "", &["no object"][..]),
        ("10.244.0.0/16", "10.244.0.1/16", &["pod-cidr", "cidr"]),
        (
            "10.70.0.0/16",
            "10.244.0.0/17",
            &["10.244.0.0/17", "overlaps"],
        ),
        (
            "kind: GatewayClient",
            "kind: GatewayGuest",
            &["GatewayGuest"],
        ),
        ("publicKey:", "publicKeys:", &["PublicKey", "publicKeys"]),
        ("CLUSTER_ID: rome", "CLUSTER_ID: milan", &["milan"]),
        (
            "publicKey: ",
            "publicKey: AAAA #",
            &["PublicKey", "publicKey"],
        ),
        ("mtu: 1340", "mtu: 13400000", &["mtu"]),
    ];

    for (find, replace, words) in cases {
        let text = if find.is_empty() {
            String::new()
        } else {
            assert!(good.contains(find), "the case {find:?} changes nothing");
            good.replace(find, replace)
        };
        let path = lab.identity().run_dir().join("bad.yaml");
        fs::write(&path, text).unwrap();

        for program in [&lab.binaries().gateway, &lab.binaries().route_agent] {
            let output = check(program, &path);
            let said = said(&output);
            assert!(!output.status.success(), "{replace:?} was accepted");
            for word in words {
                assert!(said.contains(word), "{replace:?}: no {word:?} in: {said}");
            }
        }
    }
}

#[test]
fn a_good_file_passes_check() {
    let mut lab = Lab::build(two(2, 2)).unwrap();
    lab.write_fabrics().unwrap();

    for program in [&lab.binaries().gateway, &lab.binaries().route_agent] {
        let output = check(program, &lab.fabric_path(ROME));
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn planning_again_changes_nothing() {
    let mut lab = Lab::build(two(2, 1)).unwrap();
    lab.write_fabrics().unwrap();
    let path = lab.fabric_path(ROME);
    let first = fs::read_to_string(&path).unwrap();

    let output = Command::new(&lab.binaries().gateway)
        .arg("plan")
        .arg(&path)
        .output()
        .unwrap();

    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read_to_string(&path).unwrap(), first);
}

#[test]
fn a_file_without_plan_is_refused_and_names_the_command() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    lab.write_fabrics().unwrap();
    let path = lab.identity().run_dir().join("unplanned.yaml");
    let text = fs::read_to_string(lab.fabric_path(ROME)).unwrap();
    let unplanned: Vec<&str> = text
        .split("---\n")
        .map(|document| match document.contains("kind: Configuration") {
            true => document.split("status:").next().unwrap_or_default(),
            false => document,
        })
        .collect();
    fs::write(&path, unplanned.join("---\n")).unwrap();

    let output = check(&lab.binaries().gateway, &path);

    assert!(!output.status.success());
    assert!(said(&output).contains("gateway plan"), "{}", said(&output));
}

#[test]
fn a_file_that_becomes_invalid_harms_nothing_and_is_told() {
    let pair = Pair::small();
    let path = pair.lab.fabric_path(ROME);
    let good = fs::read_to_string(&path).unwrap();

    replace(&path, "kind: Nonsense\n");

    eventually("both to tell", || {
        let gateway = pair.lab.gateway_status(ROME, 1)?.to_string();
        let agent = pair.lab.agent_status(ROME, 1)?.to_string();
        Ok(gateway.contains("Nonsense") && agent.contains("Nonsense"))
    });
    assert!(ping::reaches(&pair.rome.netns, pair.milan_seen).unwrap());

    replace(&path, &good);
    eventually("both to be content again", || {
        let gateway = pair.lab.gateway_status(ROME, 1)?.to_string();
        let agent = pair.lab.agent_status(ROME, 1)?.to_string();
        Ok(!gateway.contains("Nonsense") && !agent.contains("Nonsense"))
    });
    assert!(ping::reaches(&pair.rome.netns, pair.milan_seen).unwrap());
}

#[test]
fn a_key_of_wrong_length_is_refused_by_name() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    lab.write_fabrics().unwrap();
    let key = lab.key_dir(ROME).join("gw-milan").join("privateKey");
    fs::write(&key, "short").unwrap();

    lab.start_gateway(ROME, 1).unwrap();

    eventually("the gateway to say so", || {
        let log = lab.gateway(ROME, 1).log();
        Ok(log.contains("gw-milan") && log.contains("32"))
    });
}

#[test]
fn a_key_that_cannot_be_read_is_refused_by_name() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    lab.write_fabrics().unwrap();
    let key = lab.key_dir(ROME).join("gw-milan").join("privateKey");
    fs::remove_file(&key).unwrap();
    fs::create_dir(&key).unwrap();

    let log = last_words(&mut lab, ROME);

    assert!(log.contains("gw-milan/privateKey"), "{log}");
    assert!(log.contains("directory"), "no reason: {log}");
}

#[test]
fn a_key_that_only_root_may_read_is_refused_before_it_is_needed() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    lab.write_fabrics().unwrap();
    let key = lab.key_dir(ROME).join("gw-milan").join("privateKey");
    // Another user's: root reads it by a privilege that a running gateway gives up.
    nix::unistd::chown(&key, Some(nix::unistd::Uid::from_raw(65_534)), None).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();

    let log = last_words(&mut lab, ROME);

    assert!(log.contains("gw-milan/privateKey"), "{log}");
    assert!(log.contains("Permission denied"), "no reason: {log}");
}

#[test]
fn a_missing_kernel_feature_is_told_by_name() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    lab.write_fabrics().unwrap();
    let config = lab.fabric_path(ROME).display().to_string();
    let keys = lab.key_dir(ROME).display().to_string();
    let run_dir = lab.identity().run_dir().display().to_string();
    let gateway = lab.binaries().gateway.display().to_string();
    let instance = lab.gateway_instance(ROME, 1);
    let run = format!(
        "mount -t tmpfs none /dev/net && exec timeout 5 {gateway} run --config {config} --keys {keys} \
         --replica gateway-1 --instance {instance} --run-dir {run_dir}"
    );

    let pod = &lab.cluster(ROME).gateway(1).pod.netns;
    let hidden = ["--mount", "--propagation", "slave", "sh", "-c", &run];
    let output = pod.output("unshare", &hidden, "").unwrap();

    let said = said(&output);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("/dev/net/tun") && said.contains("CONFIG_TUN"),
        "{said}"
    );
}

#[test]
fn a_running_gateway_has_no_privilege_that_it_does_not_need() {
    let mut pair = Pair::small();
    let pid = pair.lab.gateway(ROME, 1).pid().unwrap();

    // CAP_NET_ADMIN is bit 12 in capability.h.
    let needed = format!("{:016x}", 1_u64 << 12);
    let tasks: Vec<_> = fs::read_dir(format!("/proc/{pid}/task")).unwrap().collect();
    assert!(tasks.len() > 1, "{tasks:?}");
    for task in tasks {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        for set in ["CapPrm:", "CapEff:"] {
            let line = status.lines().find_map(|line| line.strip_prefix(set));
            assert_eq!(line.map(str::trim), Some(needed.as_str()), "{status}");
        }
    }
}

#[test]
fn planning_follows_a_node_whose_address_changed() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    lab.write_fabrics().unwrap();
    let path = lab.fabric_path(ROME);
    let old = lab.cluster(ROME).node(1).internal_ip.to_string();
    let text = fs::read_to_string(&path).unwrap();
    let moved: Vec<_> = text
        .split("---\n")
        .map(|document| match document.contains("kind: Node\n") {
            true => document.replace(&old, "100.64.9.9"),
            false => document.to_owned(),
        })
        .collect();
    let moved = moved.join("---\n");
    assert_ne!(moved, text);
    fs::write(&path, moved).unwrap();
    assert!(!check(&lab.binaries().gateway, &path).status.success());

    let output = Command::new(&lab.binaries().gateway)
        .arg("plan")
        .arg(&path)
        .output()
        .unwrap();

    let told = said(&output);
    assert!(told.contains("100.64.9.9"), "{told}");
    let checked = check(&lab.binaries().gateway, &path);
    assert!(checked.status.success(), "{}", said(&checked));
}

#[test]
fn a_port_in_use_is_told() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    lab.write_fabrics().unwrap();
    let pod = lab.cluster(MILAN).gateway(1).pod.clone();
    let _other = tests::traffic::udp::Echo::start(&pod.netns, [0, 0, 0, 0], 51840).unwrap();

    let log = last_words(&mut lab, MILAN);

    assert!(log.contains("51840"), "{log}");
}

#[test]
fn a_missing_privilege_is_told_by_name() {
    let mut lab = Lab::build(two(1, 1)).unwrap();
    lab.write_fabrics().unwrap();
    let config = lab.fabric_path(ROME).display().to_string();
    let keys = lab.key_dir(ROME).display().to_string();
    let run_dir = lab.identity().run_dir().display().to_string();
    let common = [
        "--config",
        &config,
        "--instance",
        "bare",
        "--run-dir",
        &run_dir,
    ];
    let agent = lab.binaries().route_agent.display().to_string();
    let gateway = lab.binaries().gateway.display().to_string();
    let commands = [
        vec![agent.as_str(), "run", "--node", "rome-1"],
        vec![&gateway, "run", "--keys", &keys, "--replica", "gateway-1"],
    ];

    for command in commands {
        let args = [
            &["--bounding-set", "-net_admin", "timeout", "5"],
            &command[..],
            &common[..],
        ]
        .concat();
        let node = &lab.cluster(ROME).node(1).netns;
        let output = node.output("setpriv", &args, "").unwrap();

        assert!(!output.status.success(), "{command:?}");
        let said = said(&output);
        assert!(said.contains("NET_ADMIN"), "{said}");
    }
}

#[test]
fn a_generated_key_is_that_of_the_printed_object() {
    let lab = Lab::build(Spec::new()).unwrap();
    let directory = lab.identity().run_dir().join("new-key");

    let output = Command::new(&lab.binaries().gateway)
        .arg("keygen")
        .arg(&directory)
        .output()
        .unwrap();

    let key = Key::open(&directory).unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&base64(&key.public())), "{said}");
}

#[test]
fn the_status_is_a_table_for_people() {
    let pair = Pair::small();
    let run_dir = pair.lab.identity().run_dir().join("run");
    let processes = [
        (
            &pair.lab.binaries().gateway,
            pair.lab.gateway_instance(ROME, 1),
        ),
        (
            &pair.lab.binaries().route_agent,
            pair.lab.agent_instance(ROME, 1),
        ),
    ];

    for (program, instance) in processes {
        let output = Command::new(program)
            .args(["status", "--instance", &instance, "--run-dir"])
            .arg(&run_dir)
            .output()
            .unwrap();

        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains(MILAN), "{}", said(&output));
    }
}

/// Starts a gateway that cannot run, and returns what it has logged when it has ended.
fn last_words(lab: &mut Lab, cluster: &str) -> String {
    lab.start_gateway(cluster, 1).unwrap();
    eventually("the gateway to end", || {
        Ok(!lab.gateway(cluster, 1).is_running())
    });

    lab.gateway(cluster, 1).log()
}

fn check(program: &Path, file: &Path) -> Output {
    Command::new(program)
        .arg("check")
        .arg(file)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

/// Replaces a file at once, as ConfigMap mounts do.
fn replace(path: &Path, text: &str) {
    let draft = path.with_extension("new");
    fs::write(&draft, text).unwrap();
    fs::rename(&draft, path).unwrap();
}
