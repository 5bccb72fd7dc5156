//! `liqoctl VERB KIND`: one module per kind, which declares its verbs and builds its objects.

pub(crate) mod configuration;
pub(crate) mod gateway;
pub(crate) mod gateway_client;
pub(crate) mod gateway_server;
pub(crate) mod identity;
pub(crate) mod kubeconfig;
pub(crate) mod nonce;
pub(crate) mod peering_user;
pub(crate) mod public_key;
pub(crate) mod resource_slice;
pub(crate) mod signed_nonce;
pub(crate) mod tenant;
pub(crate) mod virtual_node;

use crate::global::Global;
use crate::progress;
use crate::verbs::{Action, Parsed, Verb};
use anyhow::Result;
use clap::error::ErrorKind;
use clap::{ArgMatches, Command, Error, FromArgMatches, Subcommand};

/// A kind as a subcommand.
struct Entry {
    name: &'static str,
    aliases: &'static [&'static str],
    actions: &'static [Action],
}

impl Entry {
    const fn new(
        name: &'static str,
        aliases: &'static [&'static str],
        actions: &'static [Action],
    ) -> Self {
        Self {
            name,
            aliases,
            actions,
        }
    }
}

/// The kinds, in the order of the help pages.
const KINDS: &[Entry] = &[
    Entry::new(
        "configuration",
        &["config", "configurations"],
        configuration::ACTIONS,
    ),
    Entry::new(
        "gatewayserver",
        &["gatewayservers", "server", "servers", "gws"],
        gateway_server::ACTIONS,
    ),
    Entry::new(
        "gatewayclient",
        &["gatewayclients", "client", "clients", "gwc"],
        gateway_client::ACTIONS,
    ),
    Entry::new(
        "publickey",
        &["publickeys", "publickeies"],
        public_key::ACTIONS,
    ),
    Entry::new("nonce", &[], nonce::ACTIONS),
    Entry::new("tenant", &["tenants"], tenant::ACTIONS),
    Entry::new("identity", &["identities"], identity::ACTIONS),
    Entry::new(
        "resourceslice",
        &["resourceslices", "rs"],
        resource_slice::ACTIONS,
    ),
    Entry::new("virtualnode", &["vn"], virtual_node::ACTIONS),
    Entry::new("kubeconfig", &["kc"], kubeconfig::ACTIONS),
    Entry::new("peering-user", &[], peering_user::ACTIONS),
];

/// A command `liqoctl VERB KIND` with its flags.
#[derive(Debug)]
pub(crate) struct ObjectCommand {
    verb: Verb,
    flags: Box<dyn Parsed>,
}

impl ObjectCommand {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Returns an error that names the cause and the remedy.
    pub(crate) async fn run(self, global: &Global) -> Result<()> {
        if matches!(self.verb, Verb::Generate | Verb::Get) {
            progress::reserve_output();
        }
        self.flags.run(global).await
    }
}

/// Returns the kinds that have a verb, with their action.
fn actions(verb: Verb) -> impl Iterator<Item = (&'static Entry, &'static Action)> {
    KINDS.iter().filter_map(move |entry| {
        let action = entry.actions.iter().find(|it| it.verb == verb);
        action.map(|action| (entry, action))
    })
}

/// Returns the subcommand of a verb.
fn command(verb: Verb) -> Command {
    let kinds = actions(verb).map(|(entry, action)| action.command(entry.name, entry.aliases));
    Command::new(verb.name())
        .about(verb.about())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(kinds)
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
        let action = verb.and_then(|verb| actions(verb).find(|(entry, _)| entry.name == kind));
        let (_, action) = action.ok_or_else(unknown)?;

        let (verb, flags) = (action.verb, action.parse(matches)?);
        Ok(Self { verb, flags })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
