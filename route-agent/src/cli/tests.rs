use super::*;
use clap::CommandFactory as _;

#[test]
fn arguments_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_examples() {
    for command in Cli::command().get_subcommands() {
        let help = command.get_after_help().map(ToString::to_string);
        assert!(
            help.unwrap_or_default().contains("Examples:"),
            "the help of {} has no examples",
            command.get_name()
        );
    }
}

#[test]
fn the_defaults_are_those_of_the_settings() {
    let cli = Cli::parse_from(["route-agent", "cleanup"]);

    let Command::Cleanup(args) = cli.command else {
        panic!("not parsed as cleanup");
    };
    assert_eq!(args.settings, Settings::default());
}

#[test]
fn invalid_numbers_and_names_are_refused() {
    for (flag, values) in [
        ("--overlay-port", &["0", "65536"][..]),
        ("--probe-port", &["0"]),
        (
            "--probe-net",
            &["169.254.19.1/24", "169.254.19.0/25", "169.254.19.0"],
        ),
        ("--nft-lead", &["100", "-1"]),
        (
            "--trusted-interfaces",
            &["", "*", "a b", "a/b", "eth*0", "lxc*,", "sixteen-letters-"],
        ),
        ("--instance", &["", "..", "a/b", ".hidden", "a b"]),
    ] {
        for value in values {
            let arguments = ["route-agent", "cleanup", &format!("{flag}={value}")];
            let error = Cli::try_parse_from(arguments).unwrap_err().to_string();
            assert!(error.contains(flag), "{flag} {value}: {error}");
        }
    }
}

#[test]
fn numbers_and_names_at_their_limits_are_accepted() {
    let cli = Cli::try_parse_from([
        "route-agent",
        "cleanup",
        "--overlay-port=1",
        "--probe-port=65535",
        "--probe-net=10.99.0.0/16",
        "--nft-lead=99",
        "--trusted-interfaces=lxc*,eni0,fifteen-letters",
        "--instance=rome-1",
    ]);

    assert!(cli.is_ok(), "{cli:?}");
}
