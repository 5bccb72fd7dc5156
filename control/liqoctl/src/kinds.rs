//! `liqoctl VERB KIND`: one module per kind, which declares its verbs and builds its objects.

pub(crate) mod configuration;
pub(crate) mod gateway;
pub(crate) mod gateway_client;
pub(crate) mod gateway_server;
pub(crate) mod public_key;

use crate::global::Global;
use crate::verbs::{Action, Parsed, Verb};
use anyhow::Result;
use clap::error::ErrorKind;
use clap::{ArgMatches, Command, Error, FromArgMatches, Subcommand};

/// Name of the subcommand and actions of each kind, in the order of the help pages.
const KINDS: &[(&str, &[Action])] = &[
    ("configuration", configuration::ACTIONS),
    ("gatewayserver", gateway_server::ACTIONS),
    ("gatewayclient", gateway_client::ACTIONS),
    ("publickey", public_key::ACTIONS),
];

/// A command `liqoctl VERB KIND` with its flags.
#[derive(Debug)]
pub(crate) struct ObjectCommand(Box<dyn Parsed>);

impl ObjectCommand {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Returns an error that names the cause and the remedy.
    pub(crate) async fn run(self, global: &Global) -> Result<()> {
        self.0.run(global).await
    }
}

/// Returns the kinds that have a verb, with their action.
fn actions(verb: Verb) -> impl Iterator<Item = (&'static str, &'static Action)> {
    let action = move |actions: &'static [Action]| actions.iter().find(|it| it.verb == verb);
    let with_action = move |(name, actions): &(&'static str, &'static [Action])| {
        action(actions).map(|action| (*name, action))
    };
    KINDS.iter().filter_map(with_action)
}

/// Returns the subcommand of a verb.
fn command(verb: Verb) -> Command {
    Command::new(verb.name())
        .about(verb.about())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(actions(verb).map(|(name, action)| action.command(name)))
}

impl Subcommand for ObjectCommand {
    fn augment_subcommands(parent: Command) -> Command {
        parent.subcommands(Verb::ALL.map(command))
    }

    fn augment_subcommands_for_update(parent: Command) -> Command {
        Self::augment_subcommands(parent)
    }

    fn has_subcommand(name: &str) -> bool {
        Verb::ALL.iter().any(|verb| verb.name() == name)
    }
}

impl FromArgMatches for ObjectCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let unknown = || Error::new(ErrorKind::InvalidSubcommand);
        let (verb, matches) = matches.subcommand().ok_or_else(unknown)?;
        let verb = Verb::ALL.into_iter().find(|it| it.name() == verb);
        let (kind, matches) = matches.subcommand().ok_or_else(unknown)?;
        let action = verb.and_then(|verb| actions(verb).find(|(name, _)| *name == kind));
        let (_, action) = action.ok_or_else(unknown)?;

        action.parse(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
