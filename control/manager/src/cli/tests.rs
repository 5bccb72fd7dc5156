use super::*;

fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(["controller-manager"].iter().chain(args))
}

#[test]
fn the_flags_of_the_chart_are_parsed() {
    let cli = parse(&[
        "--namespace=liqo-system",
        "--tenant-namespaces=peers,peers-of-old",
        "--pod-name=manager-0",
        "--pools=10.0.0.0/8,192.168.0.0/16",
        "--cluster-labels=region=eu,topology.liqo.io/type=lab",
        "--api-server-address-override=",
        "--default-limits-enforcement=Soft",
        "--allowed-node-labels=topology.kubernetes.io/zone,topology.kubernetes.io/region",
        "--enable-node-failure-controller=true",
        "--gateway-port=51840",
        "--gateway-deployments=true",
        "--gateway-deployment-image=pause",
        "--enable-resource-enforcement=false",
        "--webhook=true",
        "--webhook-address=0.0.0.0:9444",
        "--default-toleration-seconds=60",
        "--http=0.0.0.0:8080",
        "--leader-elect=false",
    ])
    .unwrap();

    let settings = cli.settings().unwrap();
    assert_eq!(settings.namespace, "liqo-system");
    assert_eq!(settings.tenant_namespaces, ["peers", "peers-of-old"]);
    assert_eq!(settings.pools.len(), 2);
    assert_eq!(settings.deployment_image.as_deref(), Some("pause"));
    assert_eq!(cli.identity(), "manager-0");
    let offloading = cli.offloading();
    assert_eq!(offloading.limits_enforcement, LimitsEnforcement::Soft);
    let keys = [
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    ];
    assert_eq!(offloading.allowed_node_labels, keys);
    assert!(!cli.leader_elect);
    assert!(cli.enable_node_failure_controller);
    assert!(cli.webhook.webhook);
    let webhook = cli.webhook.settings();
    assert!(!webhook.enforces_resources);
    assert_eq!(webhook.default_toleration_seconds, 60);
}

#[test]
fn by_default_a_leader_allocates_from_the_private_address_space() {
    let cli = parse(&[]).unwrap();

    assert!(cli.leader_elect);
    assert!(!cli.enable_node_failure_controller);
    assert_eq!(cli.pools, DEFAULT_POOLS);
    assert_eq!(cli.settings().unwrap().deployment_image, None);
    assert_eq!(cli.offloading().limits_enforcement, LimitsEnforcement::None);
    assert_eq!(cli.offloading().allowed_node_labels, [""; 0]);
}

#[test]
fn the_error_of_an_invalid_flag_names_the_remedy() {
    for (flag, remedy) in [
        ("--pools=10.0.0.1/8", "use 10.0.0.0/8"),
        ("--pools=fd00::/8", "use one like 10.0.0.0/8"),
        ("--cluster-labels=x", "use KEY=VALUE"),
        (
            "--default-limits-enforcement=none",
            "use None, Soft or Hard",
        ),
        ("--allowed-node-labels=a/b/c", "use one like"),
    ] {
        assert!(
            parse(&[flag]).unwrap_err().to_string().contains(remedy),
            "{flag}"
        );
    }
    assert!(parse(&["--gateway-port=0"]).is_err());
    let error = parse(&["--gateway-deployments"])
        .unwrap()
        .settings()
        .unwrap_err();
    assert!(error.to_string().contains("--gateway-deployment-image"));
}
