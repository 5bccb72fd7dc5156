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
            "{} has none",
            command.get_name()
        );
    }
}

#[test]
fn the_defaults_are_those_of_the_settings() {
    let cli = Cli::parse_from(["route-agent", "cleanup"]);

    let Command::Cleanup(args) = cli.command else {
        panic!("another command");
    };
    assert_eq!(args.settings, Settings::default());
}
